"""What `wattkeeper tax analyze` reads: dose-response runs, idle models, profiles of production GPUs.

A recording (JSON lines or CSV) is one reading a row, with the columns of seed 002's: `power_w`, and where
known `phase`, `mem_used_mb` (MiB), `target_vram_gb`, `sm_clock_mhz`, `gpu_temp_c`, `mem_temp_c`,
`power_limit_w`, `gpu_name`, `model`. A profile (CSV) has one GPU a row: `power_mean`, `power_std`,
`n_samples`, `vram_gb`, `power_state`, `hostname`, `gpu_slot`.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattkeeper.cli.manifest_files import InputError
from wattkeeper.core.dose_response import DoseReading
from wattkeeper.core.power_samples import EMPTY_BYTES
from wattkeeper.core.production_profiles import GpuProfile

_MOST_WATTS = 5000.0
_BARE_PHASE = "bare_idle"
_MIB = 1024.0**2


@dataclass(frozen=True, slots=True)
class Recording:
    """One file's readings in their order, on one board."""

    file: str
    gpu: str
    model: str  # empty: empty allocations
    tdp_watts: float | None
    readings: tuple[DoseReading, ...]


@dataclass(frozen=True, slots=True)
class Profiles:
    """One file of GPU profiles."""

    file: str
    profiles: tuple[GpuProfile, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    values: Mapping[str, Any]

    def number(self, field: str, *, low: float = -math.inf, high: float = math.inf) -> float | None:
        value = self.values.get(field)
        if value is None or value == "":
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and low <= number <= high):
            raise InputError(
                f"{self.where}: {field} must be a number from {low:g} to {high:g}, got {value!r}"
            )
        return number

    def needed(self, field: str, *, low: float = -math.inf, high: float = math.inf) -> float:
        number = self.number(field, low=low, high=high)
        if number is None:
            raise InputError(f"{self.where}: {field} is missing")
        return number

    def text(self, field: str) -> str:
        return str(self.values.get(field) or "")


def read(file: str) -> Recording | Profiles:
    """Read one file, whichever of the kinds it is. Raises InputError with the line and the field."""
    rows = list(_rows(file))
    if not rows:
        raise InputError(f"{file}: no readings")
    if "power_mean" in rows[0].values:
        return Profiles(file, tuple(_profile(row) for row in rows))
    gpus = {(row.text("gpu_name"), row.text("uuid")) for row in rows}
    if len(gpus) > 1:
        names = ", ".join(sorted(" ".join(filter(None, gpu)) for gpu in gpus))
        raise InputError(f"{file}: readings of several boards ({names}): give one file a board")
    return Recording(
        file,
        rows[0].text("gpu_name") or "unknown GPU",
        next((row.text("model") for row in rows if row.text("model") not in {"", "none"}), ""),
        rows[0].number("power_limit_w", low=1, high=_MOST_WATTS),
        tuple(_readings(rows)),
    )


def _rows(file: str) -> Iterator[_Row]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: can't be read: {error}") from None
    if text.lstrip()[:1] != "{":
        table = csv.DictReader(text.splitlines(), strict=True)
        try:
            for row in table:
                yield _Row(f"{file}: line {table.line_num}", row)
        except csv.Error as error:
            raise InputError(f"{file}: line {table.line_num}: no valid CSV: {error}") from None
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file}: line {number}: no valid JSON: {error}") from None
        if not isinstance(values, dict):
            raise InputError(f"{file}: line {number}: must be a JSON object")
        yield _Row(f"{file}: line {number}", values)


def _readings(rows: list[_Row]) -> Iterator[DoseReading]:
    bare = [_is_bare(row) for row in rows]
    held = [row.number("mem_used_mb", low=0) for row in rows]
    # What the context itself holds isn't allocated memory.
    context = min(
        (mib for mib, is_bare in zip(held, bare, strict=True) if mib is not None and not is_bare), default=0
    )
    for row, is_bare, mib in zip(rows, bare, held, strict=True):
        gigabytes = row.number("target_vram_gb", low=0, high=1024)
        if gigabytes is None and mib is not None:
            gigabytes = (mib - context) / 1024
        if gigabytes is None and not is_bare:
            raise InputError(f"{row.where}: needs target_vram_gb or mem_used_mb")
        yield DoseReading(
            None if is_bare else gigabytes,
            row.needed("power_w", low=0, high=_MOST_WATTS),
            row.number("sm_clock_mhz", low=0),
            row.number("gpu_temp_c", low=-50, high=200),
            row.number("mem_temp_c", low=-50, high=200),
        )


def _is_bare(row: _Row) -> bool:
    if phase := row.text("phase"):
        return phase == _BARE_PHASE
    mib = row.number("mem_used_mb", low=0)
    if mib is None:
        raise InputError(f"{row.where}: needs phase ({_BARE_PHASE} without a context) or mem_used_mb")
    return mib * _MIB < EMPTY_BYTES


def _profile(row: _Row) -> GpuProfile:
    state = row.text("power_state")
    if state not in {_BARE_PHASE, "cuda_active"}:
        raise InputError(f"{row.where}: power_state must be {_BARE_PHASE} or cuda_active, got {state!r}")
    return GpuProfile(
        row.text("hostname"),
        int(row.needed("gpu_slot", low=0, high=1e6)),
        state == "cuda_active",
        row.needed("vram_gb", low=0, high=1024),
        row.needed("power_mean", low=0, high=_MOST_WATTS),
        row.needed("power_std", low=0, high=_MOST_WATTS),
        int(row.needed("n_samples", low=2, high=1e12)),
        row.number("sm_clock_median", low=0),
    )
