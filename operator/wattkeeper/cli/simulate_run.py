"""`wattkeeper simulate` between its options and its output: what to simulate, the runs, the plot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattkeeper.cli.manifest_files import InputError
from wattkeeper.cli.simulate_fleet import read_fleet
from wattkeeper.cli.simulate_input import Board, Requests, placed, read_requests
from wattkeeper.cli.simulate_progress import reported
from wattkeeper.sim.arrivals import TraceError
from wattkeeper.sim.fleet import Options, simulate
from wattkeeper.sim.outcome import Outcome
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.residents import SharedModel


@dataclass(frozen=True, slots=True)
class Scene:
    """One set of models to simulate; several are compared."""

    gpu: str
    models: list[SharedModel]


def scenes_of(
    fleet: Path | None,
    requests: Requests,
    boards: list[Board],
    model: dict[str, Any],
    models_per_gpu: int,
) -> tuple[list[Scene], list[str]]:
    """What to simulate, and what to know of it. Raises InputError and TraceError."""
    if fleet is not None:
        if requests.traces or requests.generated:
            raise InputError("--fleet stands for --trace and --generate: give either")
        models, notes = read_fleet(fleet, requests)
        return [Scene(str(fleet), models)], notes
    if not (requests.traces or requests.generated):
        raise InputError("no requests: give --trace, --generate or --fleet")
    replicas = [board.with_model("--gpu", **model) for board in boards]
    traces, notes = read_requests(requests)
    return [Scene(each.gpu, placed(traces, each, models_per_gpu)) for each in replicas], notes


def run(scenes: list[Scene], chosen: list[Policy], options: Options, *, progress: bool) -> list[Outcome]:
    """The outcomes of all policies on all scenes. Raises InputError."""
    outcomes = []
    with reported(scenes[0].models, wanted=progress) as report:
        for scene in scenes:
            try:
                outcomes.extend(simulate(scene.models, chosen, options, report))
            except TraceError:
                raise
            except ValueError as error:
                raise InputError(str(error)) from None
    for each in outcomes:
        if each.beyond and not each.ledger.requests:
            raise InputError(
                f"{each.name}: no request comes before the horizon of {each.horizon_seconds:g} s: "
                "give a longer --horizon"
            )
    return outcomes


def draw(scene: Scene, chosen: list[Policy], outcomes: list[Outcome], options: Options, target: Path) -> None:
    """Draw the first scene. Raises InputError."""
    try:
        from wattkeeper.cli.simulate_plot import PARETO_SECONDS, save_plot  # noqa: PLC0415  optional
    except ImportError:
        raise InputError("--plot needs matplotlib: install wattkeeper[plots]") from None
    curve = [Policy(Kind.FIXED, seconds, group=chosen[0].group) for seconds in PARETO_SECONDS]
    along = simulate(
        scene.models, curve, Options(options.accounting, options.horizon, options.loads_take_time)
    )
    try:
        save_plot(outcomes[: len(chosen)], along, target)
    except (OSError, ValueError) as error:
        raise InputError(f"--plot: {target}: can't be written: {error}") from None


def notes_of(scenes: list[Scene], outcomes: list[Outcome]) -> list[str]:
    """What to know of the outcomes."""
    notes = list(
        dict.fromkeys(
            f"{model.hardware.gpu}: {model.hardware.note}"
            for scene in scenes
            for model in scene.models
            if model.hardware.note
        )
    )
    beyond = max((each.beyond for each in outcomes), default=0)
    if beyond:
        notes.append(f"{beyond} requests came after the horizon and were left out")
    return notes
