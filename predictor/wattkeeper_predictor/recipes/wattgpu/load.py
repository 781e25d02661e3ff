"""From the two measured request rates to any rate near them.

A board's mean power is linear in the share of time that the engine is busy. With Poisson arrivals and
``running`` sequences on average (arrival rate × tokens × ITL), that share is 1 − e^(−running). Two measured
levels give the line; it ends at the power of a full queue. The latency moves little between the levels, so
it is interpolated in generated tokens a second, and beyond the higher level carried on at the same slope.
A load within a few per cent of a measured level is taken as that level. Upper bounds are interpolated like
the figures that they bound, so that a slightly other load never has quite another bound.

All functions are pure and never fall with rising load, save that the latency keeps its two measured
values even where the lower load's is the higher by noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

_NEAR = 1.05


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """What is known of a model on a GPU at one level."""

    requests_per_second: float
    output_tokens: float
    power_watts: float
    itl_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens that are asked for a second."""
        return self.requests_per_second * self.output_tokens

    @property
    def running(self) -> float:
        """Mean number of sequences at work."""
        return self.tokens_per_second * self.itl_seconds


@dataclass(frozen=True, slots=True)
class LoadedFigures:
    """Power and latency at the asked load, and how many sequences run on average.

    The two shares say how far the figures are from those of the lower level (0) towards the higher's (1).
    """

    power_watts: float
    itl_seconds: float
    running: float
    power_share: float
    itl_share: float


class Position(Enum):
    """Where a load lies; a few per cent from a measured level are as good as the level."""

    BELOW = "below"
    AT_LOW = "at low"
    BETWEEN = "between"
    AT_HIGH = "at high"
    ABOVE = "above"


def position(low: LevelFigures, high: LevelFigures, tokens_per_second: float) -> Position:
    """The place of a load among the measured ones."""
    if tokens_per_second < low.tokens_per_second / _NEAR:
        return Position.BELOW
    if tokens_per_second <= low.tokens_per_second * _NEAR:
        return Position.AT_LOW
    if tokens_per_second < high.tokens_per_second / _NEAR:
        return Position.BETWEEN
    if tokens_per_second <= high.tokens_per_second * _NEAR:
        return Position.AT_HIGH
    return Position.ABOVE


def busy_share(running: float) -> float:
    """The share of time with at least one of Poisson arrivals at work."""
    return -math.expm1(-running)


def at_load(
    low: LevelFigures,
    high: LevelFigures,
    *,
    full_power_watts: float,
    tokens_per_second: float,
    prefill_running: float = 0.0,
) -> LoadedFigures:
    """Figures at ``tokens_per_second`` generated.

    ``full_power_watts`` is the power of a full queue; ``prefill_running`` the mean number of prompts
    being read beyond what was measured, which keeps the board busy but generates nothing.
    """
    rate = _settled(low.tokens_per_second, high.tokens_per_second, tokens_per_second)
    itl = _itl(low, high, rate)
    running = _running(low, high, rate, itl)
    busy = busy_share(running + prefill_running)
    return LoadedFigures(
        power_watts=_power(low, high, busy, full_power_watts),
        itl_seconds=itl,
        running=running,
        power_share=_share(busy_share(low.running), busy_share(high.running), busy),
        itl_share=_share(low.tokens_per_second, high.tokens_per_second, rate),
    )


def factor_between(
    share: float, figures: tuple[float, float], factors: tuple[float, float], *, rising: bool
) -> float:
    """The factor of the upper bound on a figure that is ``share`` of the way between two levels' ``figures``.

    The bound itself goes in a line from the one level's to the other's. ``rising``: the figure is known to
    rise with load, so that what bounds it at the higher level bounds it at the lower one too.
    """
    low, high = figures
    at_low, at_high = low * factors[0], high * factors[1]
    if rising:
        at_low = min(at_low, at_high)
    return (at_low + share * (at_high - at_low)) / (low + share * (high - low))


def _share(low: float, high: float, value: float) -> float:
    """How far from ``low`` to ``high``: 0 to 1."""
    if value <= low:
        return 0.0
    return 1.0 if value >= high else (value - low) / (high - low)


def _settled(low: float, high: float, rate: float) -> float:
    """The rate with a plateau around each measured one; continuous and never falling."""
    if rate < low / _NEAR:
        return rate * _NEAR
    if rate <= low * _NEAR:
        return low
    if rate < high / _NEAR:
        span = high / _NEAR - low * _NEAR
        return low + (high - low) * (rate - low * _NEAR) / span if span > 0 else low
    return max(high, rate / _NEAR)


def _itl(low: LevelFigures, high: LevelFigures, rate: float) -> float:
    span = high.tokens_per_second - low.tokens_per_second
    if rate <= low.tokens_per_second:
        return low.itl_seconds
    slope = (high.itl_seconds - low.itl_seconds) / span if span > 0 else 0.0
    if rate <= high.tokens_per_second:
        return low.itl_seconds + slope * (rate - low.tokens_per_second)
    return high.itl_seconds + max(0.0, slope) * (rate - high.tokens_per_second)


def _running(low: LevelFigures, high: LevelFigures, rate: float, itl: float) -> float:
    if rate <= low.tokens_per_second or rate >= high.tokens_per_second:
        return rate * itl
    share = (rate - low.tokens_per_second) / (high.tokens_per_second - low.tokens_per_second)
    return low.running + share * max(0.0, high.running - low.running)


def _power(low: LevelFigures, high: LevelFigures, busy: float, full_power_watts: float) -> float:
    most = max(low.power_watts, high.power_watts)
    span = busy_share(high.running) - busy_share(low.running)
    slope = (most - low.power_watts) / span if span > 1e-6 else 0.0
    line = low.power_watts + slope * (busy - busy_share(low.running))
    return min(max(line, 0.5 * low.power_watts), max(most, full_power_watts))
