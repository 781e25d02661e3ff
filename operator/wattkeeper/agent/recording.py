"""A dose-response recording: JSON lines, one reading a line, with the columns of seed 002's recordings.

`timestamp` (RFC 3339), `gpu_name`, `uuid`, `gpu_id`, `phase` (`bare_idle`, then `phase1_0gb` …),
`target_vram_gb` (GiB allocated beside the context), `power_w`, `power_limit_w`, `sm_clock_mhz`,
`mem_clock_mhz`, `gpu_temp_c`, `mem_temp_c`, `gpu_util_pct`, `mem_util_pct`, `mem_total_mb`, `mem_used_mb`,
`mem_free_mb` (MiB). Beyond the seed's: `energy_j`, `driver_version`, `perf_boost_disabled`. What isn't known
is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from wattkeeper.agent.nvml import BoardIdentity, BoardState
from wattkeeper.core.dose_response import DoseReading
from wattkeeper.core.power_samples import RestState
from wattkeeper.core.tax_measurement import RestReading

BARE_PHASE = "bare_idle"
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Record:
    """One reading whose power is known. `gibibytes` is None without a context."""

    at: float  # Unix seconds
    uuid: str
    gpu_name: str
    watts: float
    phase: str
    gibibytes: float | None
    sm_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    power_limit_watts: float | None = None
    unboosted: bool = False

    def dose(self) -> DoseReading:
        """The reading as the study takes it."""
        return DoseReading(
            self.gibibytes,
            self.watts,
            self.sm_clock_mhz,
            self.temperature_celsius,
            self.memory_temperature_celsius,
        )

    def rest(self) -> RestReading:
        """The reading as the running figures take it."""
        context = RestState.CONTEXT_UNBOOSTED if self.unboosted else RestState.CONTEXT
        state = RestState.BARE if self.gibibytes is None else context
        return RestReading(self.at, state, self.watts, self.sm_clock_mhz)


def line_of(  # noqa: PLR0913  a row has its columns
    identity: BoardIdentity,
    state: BoardState,
    *,
    at: float,
    phase: str,
    gibibytes: float | None,
    unboosted: bool,
) -> str:
    """One line of the file, without its end."""
    row = {
        "timestamp": datetime.fromtimestamp(at, UTC).isoformat(),
        "gpu_name": identity.name,
        "mem_total_mb": _mib(state.memory_total_bytes),
        "mem_used_mb": _mib(state.memory_used_bytes),
        "mem_free_mb": _mib(state.memory_free_bytes),
        "power_w": state.power_watts,
        "power_limit_w": state.power_limit_watts,
        "gpu_temp_c": state.temperature_celsius,
        "mem_temp_c": state.memory_temperature_celsius,
        "sm_clock_mhz": state.sm_clock_mhz,
        "mem_clock_mhz": state.memory_clock_mhz,
        "uuid": identity.uuid,
        "gpu_util_pct": _percent(state.gpu_util_ratio),
        "mem_util_pct": _percent(state.memory_util_ratio),
        "phase": phase,
        "target_vram_gb": gibibytes or 0,
        "gpu_id": identity.index,
        "energy_j": state.energy_joules,
        "driver_version": identity.driver_version,
        "perf_boost_disabled": unboosted,
    }
    return json.dumps(row)


def records_of(lines: Iterable[str]) -> Iterator[Record]:
    """The readings among lines that may hold other text too (a container's log).

    Raises ValueError for a reading that can't be read, with its field.
    """
    for line in lines:
        if line.startswith("{"):
            yield _record(line)


def _record(line: str) -> Record:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"no valid JSON: {error}: {line:.80}") from None
    phase = str(row.get("phase") or "")
    if not phase:
        raise ValueError("phase is missing")
    return Record(
        at=_time(row),
        uuid=str(row.get("uuid") or ""),
        gpu_name=str(row.get("gpu_name") or "unknown GPU"),
        watts=_needed(row, "power_w"),
        phase=phase,
        gibibytes=None if phase == BARE_PHASE else _needed(row, "target_vram_gb"),
        sm_clock_mhz=_number(row, "sm_clock_mhz"),
        temperature_celsius=_number(row, "gpu_temp_c"),
        memory_temperature_celsius=_number(row, "mem_temp_c"),
        power_limit_watts=_number(row, "power_limit_w"),
        unboosted=row.get("perf_boost_disabled") is True,
    )


def _time(row: Mapping[str, Any]) -> float:
    text = row.get("timestamp")
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        raise ValueError(f"timestamp must be a time as RFC 3339 writes it, got {text!r:.40}") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _needed(row: Mapping[str, Any], field: str) -> float:
    value = _number(row, field)
    if value is None:
        raise ValueError(f"{field} is missing")
    return value


def _number(row: Mapping[str, Any], field: str) -> float | None:
    value = row.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{field} must be a number from 0, got {value!r:.40}")
    return float(value)


def _mib(size: int | None) -> float | None:
    return None if size is None else size / _MIB


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else round(100 * ratio, 3)
