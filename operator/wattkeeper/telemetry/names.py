"""DCGM's metric names over the years, as one quantity each, in one unit.

Sources: dcgm-exporter's collector lists (3.x, 4.x, the 1.x compatibility list) and DCGM 4.6's field header,
which gives every field a second name with a unit. Those are names of the same fields and keep their units:
`GPU_UTIL_RATIO` is field 203, a percentage. Whether an exporter will write it as a ratio isn't known, so each
value decides. Only the energy in J and the clocks in Hz are fields of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from wattkeeper.telemetry.series import FaultKind

# DCGM's blank values begin here for 32-bit fields; those of 64-bit and of double fields are larger still.
BLANK = 2_147_483_632.0
# The energy counter may pass the 32-bit blanks; no double counts beyond this without gaps.
BLANK_ENERGY = 2.0**53


@dataclass(frozen=True, slots=True)
class Quantity:
    """A field of GpuReading as one metric gives it.

    `factor` makes our unit of the exporter's; `low` and `high` bound, in the exporter's unit, what can be
    true. Where an exporter writes a field under two names, the one of lower `rank` is read.
    """

    field: str
    factor: float = 1.0
    low: float = 0.0
    high: float = BLANK
    blank: float = BLANK
    percent_or_ratio: bool = False
    rank: int = 0

    def read(self, value: float) -> float | FaultKind:
        """The value in our unit, or what is wrong with it."""
        if not math.isfinite(value):
            return FaultKind.NOT_A_NUMBER
        if value >= self.blank:
            return FaultKind.BLANK
        if not self.low <= value <= self.high:
            return FaultKind.OUT_OF_RANGE
        if self.percent_or_ratio and value <= 1.0:
            # 1 % may pass for full load here, which keeps a GPU from looking idle; never the reverse.
            return value
        return value * self.factor


_DEV = "DCGM_FI_DEV_"
_PROF = "DCGM_FI_PROF_"


def _watts(field: str) -> Quantity:
    return Quantity(field, low=0.1, high=5000.0)  # a GPU that answers draws something


def _percent(field: str) -> Quantity:
    return Quantity(field, factor=0.01, high=100.0)


def _ratio(field: str) -> Quantity:
    return Quantity(field, high=1.001)  # means of samples overshoot a little


def _mib(field: str) -> Quantity:
    return Quantity(field, factor=2.0**20, high=2.0**24)


def _mhz(field: str) -> Quantity:
    return Quantity(field, high=1e5)


def _hertz(field: str) -> Quantity:
    return Quantity(field, factor=1e-6, high=1e11, blank=BLANK_ENERGY)


def _celsius(field: str) -> Quantity:
    return Quantity(field, low=-50.0, high=250.0)


# Names without a prefix of their own (dcgm_ is the 1.x list's) get the one beside them; best first.
_TABLE: tuple[tuple[Quantity, str, tuple[str, ...]], ...] = (
    (_watts("power_watts"), _DEV, ("POWER_USAGE", "BOARD_POWER_WATTS", "dcgm_power_usage")),
    (_watts("power_instant_watts"), _DEV, ("POWER_USAGE_INSTANT", "BOARD_POWER_RAW_WATTS")),
    (_watts("power_limit_watts"), _DEV, ("ENFORCED_POWER_LIMIT", "BOARD_POWER_LIMIT_ENFORCED_WATTS")),
    (_watts("power_limit_watts"), _DEV, ("POWER_MGMT_LIMIT", "BOARD_POWER_LIMIT_REQUESTED_WATTS")),
    (_watts("power_default_watts"), _DEV, ("POWER_MGMT_LIMIT_DEF", "BOARD_POWER_LIMIT_DEFAULT_WATTS")),
    (
        Quantity("energy_joules", factor=1e-3, high=BLANK_ENERGY, blank=BLANK_ENERGY),
        _DEV,
        ("TOTAL_ENERGY_CONSUMPTION", "dcgm_total_energy_consumption"),
    ),
    (
        Quantity("energy_joules", high=BLANK_ENERGY / 1e3, blank=BLANK_ENERGY),
        _DEV,
        ("GPU_ENERGY_JOULES_TOTAL",),
    ),
    (_percent("gpu_util_ratio"), _DEV, ("GPU_UTIL", "dcgm_gpu_utilization")),
    (replace(_percent("gpu_util_ratio"), percent_or_ratio=True), _DEV, ("GPU_UTIL_RATIO",)),
    (_percent("memory_copy_ratio"), _DEV, ("MEM_COPY_UTIL", "dcgm_mem_copy_utilization")),
    (_ratio("engine_active_ratio"), _PROF, ("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO")),
    (_ratio("sm_active_ratio"), _PROF, ("SM_ACTIVE", "SM_UTIL_RATIO")),
    (_ratio("tensor_active_ratio"), _PROF, ("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO")),
    (_ratio("dram_active_ratio"), _PROF, ("DRAM_ACTIVE", "DRAM_UTIL_RATIO")),
    (_mib("memory_used_bytes"), _DEV, ("FB_USED", "dcgm_fb_used")),
    (_mib("memory_free_bytes"), _DEV, ("FB_FREE", "dcgm_fb_free")),
    (_mhz("sm_clock_mhz"), _DEV, ("SM_CLOCK", "dcgm_sm_clock")),
    (_hertz("sm_clock_mhz"), _DEV, ("SM_CLOCK_HERTZ",)),
    (_mhz("memory_clock_mhz"), _DEV, ("MEM_CLOCK", "dcgm_memory_clock")),
    (_hertz("memory_clock_mhz"), _DEV, ("MEMORY_CLOCK_HERTZ",)),
    (_celsius("temperature_celsius"), _DEV, ("GPU_TEMP", "GPU_TEMP_CELSIUS", "dcgm_gpu_temp")),
    (
        _celsius("memory_temperature_celsius"),
        _DEV,
        ("MEMORY_TEMP", "MEMORY_TEMP_CELSIUS", "dcgm_memory_temp"),
    ),
)


def _full_names(prefix: str, names: tuple[str, ...]) -> Iterable[str]:
    for name in names:
        if name.startswith("dcgm_"):
            yield name
        else:
            yield prefix + name
            yield (prefix + name).lower()  # the old namespace writes all names in small letters


def _ranked() -> dict[str, Quantity]:
    table: dict[str, Quantity] = {}
    for quantity, prefix, names in _TABLE:
        for name in _full_names(prefix, names):
            table[name] = replace(quantity, rank=len(table))
    return table


#: By metric name.
QUANTITIES: Mapping[str, Quantity] = MappingProxyType(_ranked())

#: What decisions rest on. Other fields are read where a scraped page has them, and not asked of Prometheus.
ESSENTIAL = (
    "power_watts",
    "power_default_watts",
    "energy_joules",
    "gpu_util_ratio",
    "engine_active_ratio",
    "memory_used_bytes",
    "sm_clock_mhz",
)


def names_of(field: str) -> tuple[str, ...]:
    """Every name under which exporters write a field of GpuReading, best first."""
    return tuple(name for name, quantity in QUANTITIES.items() if quantity.field == field)


def is_gpu_metric(name: str) -> bool:
    """Whether a metric is read at all."""
    return name in QUANTITIES
