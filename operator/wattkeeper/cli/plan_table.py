"""The decisions of a plan as tables for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wattkeeper.api.errors import SpecErrors
from wattkeeper.core.decision import Candidate, PlacementDecision
from wattkeeper.core.demand import Demand
from wattkeeper.core.wording import latency, watts

_WIDTH_WITHOUT_TERMINAL = 160


def print_tables(outcomes: Iterable[tuple[Demand, PlacementDecision, bool, SpecErrors | None]]) -> None:
    """Print each decision with its candidate table.

    The third value says whether it is placed, the fourth why its pods can't be made, where they can't.
    """
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    # Names and labels are anybody's: nothing in them is markup.
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    for number, (demand, decision, placed, refusal) in enumerate(outcomes):
        if number:
            console.print()
        if refusal is not None:
            console.print(_unplaced(demand, f"not accepted ({refusal.reason})"))
            console.print(Text(str(refusal)))
            continue
        console.print(_headline(demand, decision, placed))
        console.print(Text(decision.message))
        if decision.table:
            console.print(_candidates(decision))
        left_out = decision.pools_considered - len(decision.table)
        if left_out > 0:
            console.print(f"and {left_out} more pools, none of them better")


def _unplaced(demand: Demand, why: str) -> Text:
    return _start(demand).append(why, "bold red")


def _start(demand: Demand) -> Text:
    return Text.assemble((f"{demand.namespace}/{demand.name}", "bold"), " → ")


def _headline(demand: Demand, decision: PlacementDecision, placed: bool) -> Text:
    chosen = decision.chosen
    if not placed or chosen is None:
        return _unplaced(demand, f"not placed ({decision.reason})")
    gpus = f"{chosen.gpus_per_replica} × {chosen.gpu_name or chosen.gpu_label}"
    replicas = f"{demand.replicas} replica{'' if demand.replicas == 1 else 's'}"
    return _start(demand).append(chosen.pool, "bold green").append(f" ({replicas} of {gpus})")


def _candidates(decision: PlacementDecision) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Pool", "GPU"):
        table.add_column(heading, no_wrap=True)
    for heading in ("GPUs", "Free", "Power", "at most", "ITL", "at most"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Why", ratio=1, min_width=24)
    for candidate in decision.table:
        chosen = candidate == decision.chosen
        style = "green" if chosen else None if candidate.feasible else "dim"
        table.add_row(*_cells(candidate), _why(candidate, chosen), style=style)
    return table


def _cells(candidate: Candidate) -> list[str]:
    forecast = candidate.forecast
    figures = (
        [
            watts(forecast.power_watts),
            watts(forecast.power_upper_watts, upward=True),
            latency(forecast.itl_seconds),
            latency(forecast.itl_upper_seconds, upward=True),
        ]
        if forecast
        else ["–"] * 4
    )
    return [
        candidate.pool,
        candidate.gpu_name or candidate.gpu_label or "unknown",
        str(candidate.gpus_per_replica),
        str(candidate.gpus_free),
        *figures,
    ]


def _why(candidate: Candidate, chosen: bool) -> Text:
    if candidate.rejection is not None:
        return Text(f"{candidate.rejection.reason}: {candidate.rejection.message}")
    return Text("chosen: least power" if chosen else "feasible")
