"""Studies of the parking tax as tables for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wattkeeper.core.dose_response import DoseLevel, DoseResponse, ModelIdle, Slope
from wattkeeper.core.parking_catalogue import IDLE_TDP_YARDSTICK
from wattkeeper.core.production_profiles import Group, Observational

_WIDTH_WITHOUT_TERMINAL = 140
Answer = DoseResponse | ModelIdle | Observational


def print_studies(studies: Sequence[tuple[str, str, Answer]]) -> None:
    """Print each study: file, GPU and answer."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL, highlight=False)
    doses = {gpu: answer for _, gpu, answer in studies if isinstance(answer, DoseResponse)}
    for number, (file, gpu, answer) in enumerate(studies):
        if number:
            console.print()
        console.print(Text.assemble((gpu, "bold"), f"  {file}"))
        if isinstance(answer, DoseResponse):
            console.print(_levels(answer))
            lines = _dose_lines(answer)
        elif isinstance(answer, ModelIdle):
            lines = _model_lines(answer, doses.get(gpu))
        else:
            lines = _observational_lines(answer)
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1)
        for line in lines:
            table.add_row(*line)
        console.print(table)


def _levels(study: DoseResponse) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Allocated", "Readings", "Power", "±", "SM clock", "GPU", "Memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for level in (study.bare, *study.levels):
        table.add_row(*_cells(level))
    return table


def _cells(level: DoseLevel) -> list[str]:
    return [
        "bare" if level.gigabytes is None else f"{level.gigabytes:g} GB",
        str(level.readings),
        f"{level.mean_watts:.2f} W",
        f"{level.deviation_watts:.2f}",
        _known(level.sm_clock_mhz, ".0f", " MHz"),
        _known(level.temperature_celsius, ".1f", " °C"),
        _known(level.memory_temperature_celsius, ".1f", " °C"),
    ]


def _known(value: float | None, form: str, unit: str) -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


def _dose_lines(study: DoseResponse) -> list[tuple[str, str]]:
    clocks = (study.bare.sm_clock_mhz, study.levels[0].sm_clock_mhz)
    step = f"{study.step_watts:+.1f} W ({study.step_low_watts:.1f} to {study.step_high_watts:.1f})"
    if None not in clocks:
        step += f", SM clock {clocks[0]:.0f} → {clocks[1]:.0f} MHz"
    same = study.equivalence
    lines = [
        ("Context", step),
        ("Memory", f"{_slope(study.slope)} over {study.slope.points} levels"),
        ("", f"{_slope(study.slope_of_readings)} over {study.slope_of_readings.points} single readings"),
        (
            "Equivalence",
            f"{'within' if same.equivalent else 'not shown to be within'} ±{same.bound:g} W/GB "
            f"(two one-sided tests, p {same.p_value:.1g})",
        ),
    ]
    for covariate in study.covariates:
        explained = "explains the slope" if covariate.explains_the_slope else "leaves a slope"
        lines.append(
            (
                "Temperature",
                f"{covariate.sensor} {covariate.watts_per_celsius:+.4f} W/°C "
                f"(±{covariate.celsius_error:.4f}) {explained}: {_slope(covariate.slope)}",
            )
        )
    lines.append(("Share", f"the context is {study.context_share:.1%} of the tax"))
    if study.tdp_watts and study.bare_of_tdp is not None and study.context_of_tdp is not None:
        yardstick = f"{IDLE_TDP_YARDSTICK:.0%} of TDP would be {IDLE_TDP_YARDSTICK * study.tdp_watts:.0f} W"
        seen = f"bare it is {study.bare_of_tdp:.1%}, with a context {study.context_of_tdp:.1%}"
        lines.append(("Yardstick", f"{yardstick}; {seen}"))
    return lines


def _slope(slope: Slope) -> str:
    verdict = "differs from zero" if slope.differs_from_zero else "no slope"
    interval = f"{slope.low:+.5f} to {slope.high:+.5f}"
    return f"{slope.watts_per_gb:+.5f} W/GB ({interval}), {verdict}, p {slope.p_value:.2g}"


def _model_lines(study: ModelIdle, dose: DoseResponse | None) -> list[tuple[str, str]]:
    idle = study.idle
    lines = [
        ("Model", f"{study.model}, {idle.gigabytes or 0:.1f} GB, {idle.readings} readings"),
        (
            "Idle",
            f"{idle.mean_watts:.2f} W against {study.bare.mean_watts:.2f} W bare: {study.step_watts:+.1f} W "
            f"({study.step_low_watts:.1f} to {study.step_high_watts:.1f})",
        ),
    ]
    if dose is not None:
        foretold = dose.watts_at(idle.gigabytes or 0.0)
        difference = idle.mean_watts - foretold
        lines.append(("Foretold", f"{foretold:.2f} W by the dose-response: {difference:+.2f} W"))
    return lines


def _observational_lines(study: Observational) -> list[tuple[str, str]]:
    return [
        ("Bare", _group(study.bare)),
        ("Context", _group(study.context)),
        (
            "Step",
            f"{study.step_watts:+.2f} W ({study.step_low_watts:.2f} to {study.step_high_watts:.2f}), "
            f"Cohen's d {study.cohens_d:.2f}",
        ),
        (
            "Memory",
            f"{study.slope_watts_per_gb:+.4f} W/GB over the GPUs with a context, "
            f"p {study.slope_p_value:.2f}, R² {study.r_squared:.4f}, Spearman {study.spearman:.2f}",
        ),
        ("A year", f"{study.kwh_a_year:.0f} kWh for each GPU that idles with a context"),
    ]


def _group(group: Group) -> str:
    return f"{group.mean_watts:.2f} W ± {group.deviation_watts:.2f}, {group.readings} readings"
