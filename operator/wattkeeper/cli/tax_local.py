"""`wattkeeper tax measure --local`: the dose-response on a GPU of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import typer

from wattkeeper.agent.cuda_driver import Context, CudaDriver, probe
from wattkeeper.agent.dose_response import Clock, Plan, SystemClock, default_levels
from wattkeeper.agent.dose_response import measure as carry_out
from wattkeeper.agent.errors import AgentError, DriverError, NotAloneError, StoppedError
from wattkeeper.agent.nvml import Board, choose, open_nvml
from wattkeeper.agent.recording import Record, records_of
from wattkeeper.agent.signals import stopped_by_signals
from wattkeeper.cli.manifest_files import InputError
from wattkeeper.cli.tax_measure import EXIT_DRIVER, EXIT_NOT_ALONE, PERF_BOOST, Timing
from wattkeeper.core import dose_response
from wattkeeper.core.dose_response import DoseResponse
from wattkeeper.core.parking_tax import ENOUGH_BATCHES
from wattkeeper.core.power_samples import GpuPowerState, RestState
from wattkeeper.core.tax_measurement import gather

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Measured:
    """A finished recording and what it says."""

    records: Sequence[Record]
    study: DoseResponse
    state: GpuPowerState

    @property
    def uuid(self) -> str:
        return self.records[0].uuid

    @property
    def gpu_name(self) -> str:
        return self.records[0].gpu_name

    @property
    def unboosted(self) -> bool:
        return self.records[0].unboosted


@dataclass(slots=True)
class _Writer:
    """Writes readings as they come, and says how it goes on standard error."""

    out: TextIO
    lines: list[str] = field(default_factory=list)

    def reading(self, line: str) -> None:
        self.lines.append(line)
        self.out.write(f"{line}\n")
        self.out.flush()

    def progress(self, text: str) -> None:
        typer.echo(text, err=True)


def check(timing: Timing) -> None:
    """Raises InputError for times and levels that make no study."""
    plan_of(timing, timing.levels_gib or default_levels(80 * 1024**3))


def plan_of(timing: Timing, levels_gib: tuple[float, ...]) -> Plan:
    """The plan with these levels. Raises InputError."""
    try:
        return Plan(
            levels_gib=levels_gib,
            bare_seconds=timing.bare_seconds,
            level_seconds=timing.level_seconds,
            settle_seconds=timing.settle_seconds,
            interval_seconds=timing.interval_seconds,
            unboosted=timing.unboosted,
        )
    except ValueError as error:
        raise InputError(f"--{error}") from None


def run(
    timing: Timing, gpu: str | None, record: str | None, *, as_json: bool, clock: Clock | None = None
) -> int:
    """Measure, write the recording and print the result; the exit code. Raises InputError."""
    if timing.unboosted:
        os.environ[PERF_BOOST] = "1"  # the driver reads it when it makes a context
    try:
        with stopped_by_signals(), open_nvml() as boards:
            board = choose(boards, gpu)
            plan = plan_of(timing, timing.levels_gib or _levels_for(board))
            file = record or _file_name(board)
            lines = _measure(board, plan, file, clock or SystemClock())
    except StoppedError as error:
        typer.echo(f"error: {error}; context and memory are given back", err=True)
        return 128 + error.signal_number
    except AgentError as error:
        typer.echo(f"error: {error}", err=True)
        return EXIT_NOT_ALONE if isinstance(error, NotAloneError) else EXIT_DRIVER
    measured = measured_from(lines)
    typer.echo(verdict(measured), err=True)
    if file != STDOUT:
        print_study(file, measured, as_json=as_json)
    return 0


def measured_from(lines: Sequence[str]) -> Measured:
    """The result of a recording's lines (or of a log that they are in). Raises ValueError."""
    records = list(records_of(lines))
    boards = {(record.uuid, record.unboosted) for record in records}
    if len(boards) != 1:
        raise ValueError(f"{len(boards)} boards in one recording: must be one")
    study = dose_response.analyze([each.dose() for each in records], tdp_watts=records[0].power_limit_watts)
    return Measured(records, study, gather(records[0].uuid, (each.rest() for each in records)))


def verdict(measured: Measured) -> str:
    """One line: the tax, and whether there is enough of it for the operator to call it measured."""
    study = measured.study
    tax = f"{study.step_watts:.1f} W ({study.step_low_watts:.1f} to {study.step_high_watts:.1f})"
    context = RestState.CONTEXT_UNBOOSTED if measured.unboosted else RestState.CONTEXT
    counts = {state: _batches(measured.state, state) for state in (RestState.BARE, context)}
    short = [f"{state.value} {count}" for state, count in counts.items() if count < ENOUGH_BATCHES]
    line = f"{measured.gpu_name}: an idle context costs {tax}"
    if short:
        line += (
            f"; too short for the operator to count it as measured on this GPU (five-minute batches: "
            f"{', '.join(short)} of {ENOUGH_BATCHES})"
        )
    return line


def print_study(file: str, measured: Measured, *, as_json: bool) -> None:
    """The study as `wattkeeper tax analyze` prints it."""
    from wattkeeper.cli.tax import Study, to_json  # noqa: PLC0415  that module holds this command

    if as_json:
        typer.echo(json.dumps(to_json(Study(file, measured.gpu_name, measured.study)), indent=2))
        return
    from wattkeeper.cli.tax_table import print_studies  # noqa: PLC0415  rich is loaded for tables only

    print_studies([(file, measured.gpu_name, measured.study)])


def study_json(file: str, measured: Measured) -> dict[str, Any]:
    """The study's figures, as JSON values."""
    from wattkeeper.cli.tax import Study, to_json  # noqa: PLC0415  that module holds this command

    return to_json(Study(file, measured.gpu_name, measured.study))


def _batches(state: GpuPowerState, rest: RestState) -> int:
    moments = state.moments.get(rest)
    return int(moments.weight) if moments is not None else 0


def _measure(board: Board, plan: Plan, file: str, clock: Clock) -> list[str]:
    identity = board.identity
    probe(identity.uuid, identity.pci_bus_id)

    def open_context() -> Context:
        driver = CudaDriver()
        return driver.context(driver.device_of(identity.uuid, identity.pci_bus_id))

    with _opened(file) as out:
        writer = _Writer(out)
        levels = ", ".join(f"{level:g}" for level in plan.levels_gib)
        writer.progress(
            f"GPU {identity.index}, {identity.name}, {identity.uuid}: bare, then {levels} GiB, "
            f"{plan.seconds / 60:.0f} minutes in all; readings go to "
            f"{'standard output' if file == STDOUT else file}"
        )
        carry_out(board, open_context, plan, clock, writer)
        return writer.lines


def _levels_for(board: Board) -> tuple[float, ...]:
    total = board.read().memory_total_bytes
    if total is None:
        raise DriverError(f"GPU {board.identity.uuid} doesn't tell its memory: give --levels")
    return default_levels(total)


def _file_name(board: Board) -> str:
    return f"tax-{board.identity.uuid[:12]}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl"


@contextlib.contextmanager
def _opened(file: str) -> Iterator[TextIO]:
    if file == STDOUT:
        yield sys.stdout
        return
    try:
        out = Path(file).open("w", encoding="utf-8")  # noqa: SIM115  closed below
    except OSError as error:
        raise InputError(f"--record: {file} can't be written: {error}") from None
    with out:
        yield out
