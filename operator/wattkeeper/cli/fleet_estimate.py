"""`wattkeeper estimate`: what idle contexts cost a fleet in a year, with every input in sight."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from wattkeeper.cli.manifest_files import InputError
from wattkeeper.sim.fleet_estimate import (
    PUBLISHED,
    Estimate,
    Range,
    Yearly,
    estimate,
    saved_percent,
    tax_share_saved,
    with_inputs,
)

BAD_INPUT = 2
_RANGE = "VALUE or LOW:BASE:HIGH"
#: What is published beside the formula's result.
PUBLISHED_GWH, PUBLISHED_RANGE_GWH, PUBLISHED_KILOTONNES = 462.0, (92.0, 1745.0), 180.0
_WIDTH_WITHOUT_TERMINAL = 120

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command(
    name="estimate",
    epilog="Exit codes: 0 done, 2 an input can't be used (standard error says which, why and what to do).",
)
def command(
    gpus: Annotated[str | None, typer.Option(metavar=_RANGE, help="GPUs of the fleet.")] = None,
    utilisation: Annotated[
        str | None, typer.Option(metavar=_RANGE, help="Share of the time that they work, such as 0.65.")
    ] = None,
    tax_watts: Annotated[
        str | None, typer.Option(metavar=_RANGE, help="The parking tax of one, mean over the fleet.")
    ] = None,
    carbon: Annotated[str | None, typer.Option(metavar=_RANGE, help="kg of CO2 a kWh.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Say what idle contexts cost a fleet in a year.

    Energy is GPUs × (1 − utilisation) × tax × 8,760 h. Without options these are the inputs of seed 002's
    estimate of the world's datacentre GPUs; one value in place of three takes that input's range away. Beside
    it stand the seed's fixed timeouts and T*, each with what it would have taken off.
    """
    given = {"gpus": gpus, "utilisation": utilisation, "tax_watts": tax_watts, "carbon_kg_per_kwh": carbon}
    try:
        ranges = {name: _range(text, name) for name, text in given.items() if text is not None}
        try:
            found = estimate(with_inputs(ranges))
        except ValueError as error:
            raise InputError(str(error)) from None
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        typer.echo(json.dumps(to_json(found, seed=not ranges), indent=2))
        return
    _print(found, seed=not ranges)


def _range(text: str, name: str) -> Range:
    option = "--carbon" if name == "carbon_kg_per_kwh" else "--" + name.replace("_", "-")
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in {1, 3}:
        raise InputError(f"{option}: {text!r} is no range: write a number, or LOW:BASE:HIGH")
    try:
        return Range(*numbers) if len(numbers) == 3 else Range(numbers[0], numbers[0], numbers[0])
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None


def to_json(found: Estimate, *, seed: bool) -> dict[str, Any]:
    """All figures; the published ones beside them where the inputs are the seed's."""
    answer: dict[str, Any] = {
        "inputs": asdict(found.inputs),
        "base": asdict(found.base),
        "least": asdict(found.least),
        "most": asdict(found.most),
        "alone": {
            name: {"low": asdict(low), "high": asdict(high)} for name, (low, high) in found.alone.items()
        },
        "policies": {
            traffic: [
                {
                    "policy": row.policy,
                    "energy_wh": row.energy_wh,
                    "cold_starts": row.cold_starts,
                    "saved_percent": saved_percent(row),
                    "tax_saved_percent": 100 * tax_share_saved(row),
                    "fleet_gwh": tax_share_saved(row) * found.base.gwh,
                }
                for row in rows
            ]
            for traffic, rows in PUBLISHED.items()
        },
    }
    if seed:
        answer["published"] = {
            "gwh": PUBLISHED_GWH,
            "range_gwh": list(PUBLISHED_RANGE_GWH),
            "co2_kilotonnes": PUBLISHED_KILOTONNES,
        }
    return answer


def _print(found: Estimate, *, seed: bool) -> None:
    from rich.console import Console  # noqa: PLC0415  for tables only
    from rich.table import Table  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL, highlight=False)
    inputs = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(("Input", "Low", "Base", "High", "At low alone", "At high alone")):
        inputs.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for name, (low, high) in found.alone.items():
        each = getattr(found.inputs, name)
        figures = (f"{value:,.10g}" for value in (each.low, each.base, each.high))
        inputs.add_row(name.replace("_", " "), *figures, _both(low), _both(high))
    console.print(inputs)
    console.print(
        f"\nA year: {_both(found.base)}; with all inputs at their ends "
        f"{_both(found.least)} to {_both(found.most)}.",
        soft_wrap=True,
    )
    if seed:
        least, most = PUBLISHED_RANGE_GWH
        console.print(
            f"Published: {PUBLISHED_GWH:g} GWh ({least:,.0f} to {most:,.0f}), "
            f"{PUBLISHED_KILOTONNES:g} kt CO2.",
            soft_wrap=True,
        )
    policies = Table(box=None, pad_edge=False, header_style="bold")
    headings = ("Traffic", "Evict after", "Saved %", "Cold starts", "Tax saved %", "Off the base GWh")
    for number, heading in enumerate(headings):
        policies.add_column(heading, justify="left" if number < 2 else "right", no_wrap=True)
    for traffic, rows in PUBLISHED.items():
        for number, row in enumerate(rows):
            share = tax_share_saved(row)
            policies.add_row(
                "" if number else traffic,
                row.policy,
                f"{saved_percent(row):.1f}",
                str(row.cold_starts),
                f"{100 * share:.1f}",
                f"{share * found.base.gwh:,.4g}",
            )
    console.print()
    console.print(policies)
    console.print(
        "\nAs published, for an H100 over 24 h: service and the time before the first request cost nothing "
        "there, so the savings are flattered by 2 to 6 points. `wattkeeper simulate` gives both accounts.",
        soft_wrap=True,
    )


def _both(year: Yearly) -> str:
    return f"{year.gwh:,.4g} GWh, {year.co2_kilotonnes:,.4g} kt CO2"
