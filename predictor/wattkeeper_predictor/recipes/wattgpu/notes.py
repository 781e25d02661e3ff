"""What the reader of a prediction should know about it, in a sentence each."""

from __future__ import annotations

from collections.abc import Sequence

from wattkeeper_predictor.levels import Level

from .features import ITL_FEATURES, POWER_FEATURES, Case, unknown_features
from .known import Cell, Known
from .load import LevelFigures, Position

OFFLINE_NOTE = "offline: the latency is the engine's inverse throughput, not what one request sees"
_NOTEWORTHY_SHARE = 0.01
_UNSEEN_NOTES = {
    "unseen_model": "the model wasn't measured; the GPU was, with other models",
    "unseen_gpu": "the GPU wasn't measured; the model was, on other GPUs",
    "unseen_both": "neither model nor GPU was measured",
}


def basis_notes(known: Known, cells: Sequence[Cell]) -> list[str]:
    """What the figures rest on."""
    if known.cells is not None:
        return [f"measured: the mean of {sum(cell.runs for cell in cells)} runs of this model on this GPU"]
    if known.model_seen and known.gpu_seen:
        notes = ["model and GPU were measured, but not together; bounded as an unseen model"]
    else:
        notes = [_UNSEEN_NOTES[known.interval_table]]
    case = Case(known.model, known.gpu, Level.OFFLINE)
    unknown = sorted({*unknown_features(POWER_FEATURES, case), *unknown_features(ITL_FEATURES, case)})
    if unknown:
        notes.append(f"not known of {known.gpu.name}: {', '.join(unknown)}; training means stand in")
    return notes


def confidence_notes(confidence_percent: float, groups: int, supported_percent: int) -> list[str]:
    """Whether so few groups can guarantee so much."""
    if confidence_percent <= supported_percent:
        return []
    return [f"{groups} groups can't guarantee {confidence_percent:g} %; the largest of their bounds is used"]


def extra_work_notes(share: float) -> list[str]:
    """Whether requests are longer than those measured."""
    if share <= _NOTEWORTHY_SHARE:
        return []
    return [
        f"longer prompts or contexts than measured add at least {share:.0%} to a step; "
        "the latency's bound includes it"
    ]


def load_notes(
    position: Position, low: LevelFigures, high: LevelFigures, asked: float, running: float
) -> list[str]:
    """Where the asked load (generated tokens a second) lies between the measured ones."""
    lowest, highest = low.tokens_per_second, high.tokens_per_second
    return {
        Position.AT_LOW: [],
        Position.AT_HIGH: [],
        Position.BELOW: [
            f"below the lowest measured load of {lowest:.1f} generated tokens/s: carried on from it"
        ],
        Position.BETWEEN: [
            f"interpolated between the measured loads of {lowest:.1f} and {highest:.0f} generated tokens/s"
        ],
        Position.ABOVE: [
            f"above the highest measured load of {highest:.0f} generated tokens/s (here {asked:.0f}, with "
            f"{running:.1f} requests at work): carried on"
        ],
    }[position]
