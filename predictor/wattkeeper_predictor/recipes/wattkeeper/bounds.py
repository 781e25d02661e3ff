"""Which intervals apply to a question, and what its answer should say about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from wattkeeper_predictor.prediction import Regime

from .intervals import KINDS, UNMEASURED_FACTOR, Bound, Intervals

# Watt Counts' server runs had prompts of fifteen tokens, at most a few hundred of context and a handful of
# sequences: beyond, a sweep's errors count as well.
_MOST_CONTEXT, _MOST_RUNNING = 512.0, 8.0


class Situation(NamedTuple):
    """What of a question decides its bounds."""

    regime: str  # measured, unseen_model, unseen_gpu, unseen_both
    scenario: str  # server or offline
    kinds: tuple[str, ...]  # of KINDS; none for plain configurations
    swept_gpu: bool  # a GPU that batch sweeps measured
    old: bool  # before compute capability 8.0
    swept_pair: bool  # the very configuration was in a sweep
    far: bool  # contexts or batches beyond what server runs had
    idle_known: bool
    guesses: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Factors for each target."""

    itl: Bound
    power: Bound
    p95: Bound
    first_token: Bound

    def widened(self, factor: float) -> Bounds:
        """All of them wider by a factor."""
        return Bounds(
            self.itl.widened(factor),
            self.power.widened(factor),
            self.p95.widened(factor),
            self.first_token.widened(factor),
        )


def situation_kinds(mixture: bool, quantized: bool, parallel: bool, hybrid: bool) -> tuple[str, ...]:
    """The kinds that hold."""
    return tuple(
        name for name, holds in zip(KINDS, (mixture, quantized, parallel, hybrid), strict=True) if holds
    )


class BoundTables:
    """Bounds by situation; each distinct one is looked up once."""

    def __init__(self, intervals: Intervals) -> None:
        self._intervals = intervals
        self._found: dict[tuple[Situation, float], Bounds] = {}

    def of(self, situation: Situation, confidence_percent: float, widening: float) -> Bounds:
        """The situation's bounds, wider by the factor."""
        key = (situation, confidence_percent)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = _bounds_of(self._intervals, situation, confidence_percent)
        return found if widening == 1 else found.widened(widening)


def _bounds_of(intervals: Intervals, of: Situation, confidence_percent: float) -> Bounds:
    itl = _target(intervals, of, "itl", confidence_percent)
    power = _target(intervals, of, "power", confidence_percent)
    tail = _tail(intervals, of, confidence_percent)
    prompts = "prompt/parallel" if "parallel" in of.kinds else "prompt/single"
    first = intervals.widest([prompts, "prompt/single"], "first_token", confidence_percent)
    bounds = Bounds(itl=itl, power=power, p95=tail.joined(itl), first_token=first.joined(itl))
    return bounds.widened(UNMEASURED_FACTOR**of.guesses)


def _target(intervals: Intervals, of: Situation, target: str, confidence: float) -> Bound:
    regime = f"{of.regime}/{of.scenario}"
    if not of.kinds:
        bound = _regime_bound(intervals, of, regime, target, confidence)
        if of.swept_gpu and of.regime.startswith("unseen"):
            # Measured in sweeps only: as good as those were with whole families held out.
            bound = intervals.widest(["sweep/plain", "unseen_model/server"], target, confidence)
        elif of.far and of.regime != "measured":
            bound = bound.joined(intervals.widest(["sweep/plain"], target, confidence))
        return bound
    if of.swept_pair:
        return intervals.widest(["measured/sweep"], target, confidence)
    tables = [f"sweep/{kind}" for kind in of.kinds]
    if "mixture" in of.kinds:
        tables += ["old/mixture"] if of.old else []
        tables += ["offline/mixture"] if of.scenario == "offline" else []
    bound = intervals.widest(tables, target, confidence)
    if of.swept_gpu:
        return bound
    return bound.compounded(_regime_bound(intervals, of, "unseen_gpu/server", target, confidence))


def _regime_bound(intervals: Intervals, of: Situation, table: str, target: str, confidence: float) -> Bound:
    if target == "power" and of.idle_known and intervals.has(table, "power_idle_known"):
        return intervals.bound(table, "power_idle_known", confidence)
    return intervals.widest([table], target, confidence)


def _tail(intervals: Intervals, of: Situation, confidence: float) -> Bound:
    tables = [f"sweep/{kind}" for kind in of.kinds] or ["sweep/plain"]
    return intervals.widest([*tables, "sweep/plain"], "itl_p95", confidence)


def is_far(context: float, running: float) -> bool:
    """Whether contexts or batches are beyond what server runs had."""
    return context > _MOST_CONTEXT or running > _MOST_RUNNING


def public_regime(of: Situation) -> Regime:
    """The coarse name of the regime."""
    if of.regime == "measured" or of.swept_pair:
        return "Measured"
    return "UnseenModel" if of.regime == "unseen_model" or of.swept_gpu else "UnseenGpu"


def regime_note(of: Situation, runs: int) -> str:
    """What the figures rest on, in a sentence."""
    if of.regime == "measured" or of.swept_pair:
        return f"measured: corrected by {runs} runs of this model on this GPU"
    if of.kinds and of.swept_gpu:
        return f"as {', '.join(of.kinds)} on a GPU of the batch sweeps; bounded by whole families held out"
    if of.kinds:
        return f"{', '.join(of.kinds)} on a GPU without batch sweeps: bounds of both apply together"
    return {
        "unseen_model": "the model wasn't measured on this GPU; other models were",
        "unseen_gpu": "the GPU wasn't measured; the model was, on other GPUs",
        "unseen_both": "neither model nor GPU was measured",
    }[of.regime]
