"""What idle contexts cost a whole fleet in a year: seed 002's estimate, from its inputs.

    energy = GPUs · (1 − utilisation) · tax · 8,760 h        CO2 = energy · carbon intensity

The seed's inputs are those of its published sensitivity analysis: NVIDIA's datacentre GPUs shipped in 2023, a
utilisation of 65 %, a parking tax of 40 W between A100's and L40S', and the grid of the United States. It
publishes 462 GWh; its own inputs give 461.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

HOURS_A_YEAR = 8760.0


@dataclass(frozen=True, slots=True)
class Range:
    """An input with the values between which it may lie."""

    low: float
    base: float
    high: float

    def __post_init__(self) -> None:
        if not (all(map(math.isfinite, (self.low, self.base, self.high))) and self.low >= 0):
            raise ValueError("must be finite numbers, none negative")
        if not self.low <= self.base <= self.high:
            raise ValueError(
                f"low, base and high must ascend, got {self.low:g}, {self.base:g}, {self.high:g}"
            )


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the estimate is made of."""

    gpus: Range = Range(2.0e6, 3.76e6, 6.0e6)
    utilisation: Range = Range(0.50, 0.65, 0.80)
    tax_watts: Range = Range(26.3, 40.0, 66.4)
    carbon_kg_per_kwh: Range = Range(0.05, 0.39, 0.50)

    def __post_init__(self) -> None:
        if self.utilisation.high > 1:
            raise ValueError(f"utilisation must be at most 1, got {self.utilisation.high:g}")


@dataclass(frozen=True, slots=True)
class Yearly:
    """A year of a fleet."""

    gwh: float
    co2_kilotonnes: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The base, both ends with all inputs at theirs, and what each input alone does."""

    inputs: Inputs
    base: Yearly
    least: Yearly
    most: Yearly
    alone: Mapping[str, tuple[Yearly, Yearly]]  # by input: at its low and at its high value


def yearly(gpus: float, utilisation: float, tax_watts: float, carbon_kg_per_kwh: float) -> Yearly:
    """The formula."""
    gwh = gpus * (1.0 - utilisation) * tax_watts * HOURS_A_YEAR / 1e9
    return Yearly(gwh, gwh * carbon_kg_per_kwh)


def estimate(inputs: Inputs | None = None) -> Estimate:
    """The estimate with its ranges."""
    inputs = inputs or Inputs()
    names = [each.name for each in fields(inputs)]
    base = {name: getattr(inputs, name).base for name in names}
    low = {name: getattr(inputs, name).low for name in names}
    high = {name: getattr(inputs, name).high for name in names}
    # The more a fleet works, the less it idles.
    least = {**low, "utilisation": high["utilisation"]}
    most = {**high, "utilisation": low["utilisation"]}
    alone = {
        name: (yearly(**{**base, name: low[name]}), yearly(**{**base, name: high[name]})) for name in names
    }
    return Estimate(inputs, yearly(**base), yearly(**least), yearly(**most), MappingProxyType(alone))


def with_inputs(given: Mapping[str, Range]) -> Inputs:
    """The seed's inputs but for those given."""
    return replace(Inputs(), **given)


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A policy of seed 002's simulation: 24 h on an H100, in its own accounting."""

    policy: str
    energy_wh: float
    cold_starts: int


ALWAYS_ON_WH = 2920.8
BARE_WH = 24 * 71.8
PUBLISHED: Mapping[str, tuple[PublishedRow, ...]] = MappingProxyType(
    {
        "low (5 requests/h)": (
            PublishedRow("1 min", 2232.48, 119),
            PublishedRow("2 min", 2306.34, 113),
            PublishedRow("5 min", 2413.06, 78),
            PublishedRow("10 min", 2543.27, 44),
            PublishedRow("15 min", 2643.97, 30),
            PublishedRow("30 min", 2767.55, 8),
            PublishedRow("60 min", 2848.64, 2),
            PublishedRow("T*", 2391.64, 81),
            PublishedRow("T*, fast loader", 2212.84, 119),
        ),
        "bursty (2 and 60 requests/h)": (
            PublishedRow("1 min", 2491.41, 176),
            PublishedRow("2 min", 2275.39, 90),
            PublishedRow("5 min", 2263.77, 47),
            PublishedRow("10 min", 2368.07, 34),
            PublishedRow("15 min", 2486.96, 31),
            PublishedRow("30 min", 2687.79, 11),
            PublishedRow("60 min", 2727.20, 1),
            PublishedRow("T*", 2248.39, 48),
            PublishedRow("T*, fast loader", 2587.61, 210),
        ),
        "diurnal (30 requests/h at its peak)": (
            PublishedRow("1 min", 2721.93, 231),
            PublishedRow("2 min", 2694.97, 179),
            PublishedRow("5 min", 2670.56, 87),
            PublishedRow("10 min", 2700.98, 34),
            PublishedRow("15 min", 2722.81, 14),
            PublishedRow("30 min", 2750.14, 4),
            PublishedRow("60 min", 2763.57, 1),
            PublishedRow("T*", 2681.48, 100),
            PublishedRow("T*, fast loader", 2749.75, 249),
        ),
    }
)


def saved_percent(row: PublishedRow) -> float:
    """Against a model that is always on."""
    return 100 * (1 - row.energy_wh / ALWAYS_ON_WH)


def tax_share_saved(row: PublishedRow) -> float:
    """The part of the tax that the policy avoided: what it would take off the fleet's estimate."""
    return (ALWAYS_ON_WH - row.energy_wh) / (ALWAYS_ON_WH - BARE_WH)
