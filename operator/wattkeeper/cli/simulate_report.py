"""Outcomes of simulations as JSON values, table, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Sequence
from typing import Any

from wattkeeper.sim.outcome import WH, Outcome

_WIDTH_WITHOUT_TERMINAL, _LEAST_WIDTH = 140, 104
_HEADINGS = (
    "GPU",
    "Policy",
    "Saved %",
    "Tax saved %",
    "Energy Wh",
    "Always on Wh",
    "Cold starts",
    "Delayed %",
    "Mean wait s",
    "T* s",
)
_CORRECTED = "Corrected saved %"
_MANY = 40  # models beyond which JSON alone lists each


def figures(outcome: Outcome) -> dict[str, Any]:
    """All figures of an outcome, as JSON has them."""
    ledger = outcome.ledger
    found: dict[str, Any] = {
        "name": outcome.name,
        "gpu": outcome.gpu,
        "policy": outcome.policy,
        "accounting": outcome.accounting.value.lower(),
        "horizon_hours": outcome.horizon_seconds / 3600,
        "always_on_wh": outcome.always_on_wh,
        "energy_wh": outcome.energy_wh,
        "saved_wh": outcome.saved_wh,
        "saved_percent": outcome.saved_percent,
        "tax_saved_percent": outcome.tax_saved_percent,
        "cold_starts": ledger.cold_starts,
        "break_even_seconds": _finite(outcome.break_even_seconds),
        "requests": ledger.requests,
        "delayed_requests": ledger.delayed,
        "delayed_percent": outcome.delayed_percent,
        "mean_wait_seconds": outcome.mean_wait_seconds,
        "idle_with_context_wh": ledger.kept_joules / WH,
        "parked_wh": ledger.parked_joules / WH,
        "loads_wh": ledger.load_joules / WH,
        "service_wh": ledger.service_joules / WH,
        "requests_after_horizon": outcome.beyond,
    }
    if outcome.true is not None:
        true = outcome.true
        found["corrected"] = {
            "energy_wh": true.energy_wh,
            "saved_wh": true.saved_wh,
            "saved_percent": true.saved_percent,
            "cold_starts": true.ledger.cold_starts,
            "delayed_percent": true.delayed_percent,
        }
    if outcome.models:
        found["models"] = [figures(each) for each in outcome.models]
    return found


def _percent(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"  # no minus before a zero


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells."""
    corrected = any(each.true is not None for each in outcomes)
    headings = list(_HEADINGS)
    if corrected:
        headings.insert(4, _CORRECTED)
    return headings, [_row(each, corrected=corrected) for each in outcomes]


def _row(outcome: Outcome, *, corrected: bool) -> list[str]:
    seconds = _finite(outcome.break_even_seconds)
    cells = [
        outcome.gpu,
        outcome.policy,
        _percent(outcome.saved_percent),
        _percent(outcome.tax_saved_percent),
        f"{outcome.energy_wh:.1f}",
        f"{outcome.always_on_wh:.1f}",
        str(outcome.ledger.cold_starts),
        f"{outcome.delayed_percent:.1f}",
        f"{outcome.mean_wait_seconds:.1f}",
        "–" if seconds is None else f"{seconds:.1f}",
    ]
    if corrected:
        cells.insert(4, "–" if outcome.true is None else _percent(outcome.true.saved_percent))
    return cells


def csv_text(outcomes: Sequence[Outcome]) -> str:
    """One line an outcome, and one for each model of it; the columns are JSON's names."""
    table = []
    for outcome in outcomes:
        for part in (outcome, *outcome.models):
            found = figures(part)
            found.pop("models", None)
            true = found.pop("corrected", None)
            if true is not None:
                found["corrected_saved_percent"] = true["saved_percent"]
            table.append(found)
    stream = io.StringIO()
    names = list(dict.fromkeys(name for row in table for name in row))
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return stream.getvalue()


def markdown(outcomes: Sequence[Outcome]) -> str:
    """A table for an issue or a report."""
    headings, cells = rows(outcomes)
    lines = [headings, ["---"] * 2 + ["---:"] * (len(headings) - 2), *cells]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{caption(outcomes)}"


def caption(outcomes: Sequence[Outcome]) -> str:
    """What the figures are of."""
    first = outcomes[0]
    what = f"{first.ledger.requests} requests of {first.name} in {first.horizon_seconds / 3600:g} h"
    how = {
        "Total": "as seed 002 published it; the corrected figure charges service, the time before the first "
        "request and the loader's own time",
        "Corrected": "all energy of the GPUs",
        "Marginal": "all energy of the GPUs, a load at what it takes above bare ones",
    }[first.accounting.value]
    return f"{what}. Accounting {first.accounting.value.lower()}: {how}."


def print_table(outcomes: Sequence[Outcome]) -> None:
    """To the terminal."""
    from rich.console import Console  # noqa: PLC0415  for tables only
    from rich.table import Table  # noqa: PLC0415

    headings, cells = rows(outcomes)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        split = heading.replace(" ", "\n", 1)
        table.add_column(split, justify="left" if number < 2 else "right", no_wrap=number != 1)
    for row in cells:
        table.add_row(*row)
    console = Console(highlight=False)
    # A terminal too narrow wraps the lines itself: figures are never cut.
    console.width = max(console.width, _LEAST_WIDTH) if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    console.print(table)
    console.print(f"\n{caption(outcomes)}", soft_wrap=True)
    if len(outcomes) == 1 and 1 < len(outcomes[0].models) <= _MANY:
        console.print()
        console.print(_models(outcomes[0]))


def _models(outcome: Outcome) -> Any:
    """Each model of one policy; models that share GPUs together."""
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Model", "Requests", "Saved %", "Cold starts", "Delayed %"):
        table.add_column(heading, justify="left" if heading == "Model" else "right")
    for each in outcome.models:
        table.add_row(
            each.name,
            str(each.ledger.requests),
            _percent(each.saved_percent),
            str(each.ledger.cold_starts),
            f"{each.delayed_percent:.1f}",
        )
    return table
