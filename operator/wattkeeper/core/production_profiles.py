"""Seed 002's observational study: idle GPUs of a production cluster, bare and with a context, side by side.

Works on one row of moments a GPU (mean, deviation and number of its idle readings), which is what such a
study can keep. The seed's intervals count every reading as independent; so do these, to be compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from scipy import stats

HOURS_A_YEAR = 8760.0


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """One GPU's idle readings."""

    host: str
    index: int
    has_context: bool
    memory_gb: float
    mean_watts: float
    deviation_watts: float
    readings: int
    sm_clock_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """All readings of one state together."""

    mean_watts: float
    deviation_watts: float
    readings: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two GPUs of one host with a context: what more memory seems to cost."""

    host: str
    one: int
    other: int
    watts: float  # other − one
    gigabytes: float
    watts_per_gb: float | None
    cohens_d: float


@dataclass(frozen=True, slots=True)
class Observational:
    """The study's answer."""

    bare: Group
    context: Group
    step_watts: float
    step_low_watts: float
    step_high_watts: float
    cohens_d: float
    slope_watts_per_gb: float  # over the GPUs with a context
    slope_error: float
    slope_p_value: float
    r_squared: float
    spearman: float
    contrasts: tuple[Contrast, ...]

    @property
    def kwh_a_year(self) -> float:
        """What one idle context costs in a year, in kWh."""
        return self.step_watts * HOURS_A_YEAR / 1000


def analyze(profiles: Sequence[GpuProfile]) -> Observational:
    """Compare the two states over all GPUs. Raises ValueError where one is missing."""
    bare = [each for each in profiles if not each.has_context]
    context = [each for each in profiles if each.has_context]
    if not bare or len(context) < 3:
        raise ValueError(
            f"{len(bare)} bare GPUs and {len(context)} with a context: needs at least 1 and 3 of them"
        )
    one, other = _pool(bare), _pool(context)
    variances = [group.deviation_watts**2 / group.readings for group in (one, other)]
    error = math.sqrt(sum(variances))
    freedom = sum(variances) ** 2 / sum(
        variance**2 / (group.readings - 1) for variance, group in zip(variances, (one, other), strict=True)
    )
    step = other.mean_watts - one.mean_watts
    margin = float(stats.t.ppf(0.975, freedom)) * error
    memory = [each.memory_gb for each in context]
    watts = [each.mean_watts for each in context]
    line, ranks = stats.linregress(memory, watts), stats.spearmanr(memory, watts)
    return Observational(
        one,
        other,
        step,
        step - margin,
        step + margin,
        step / _deviation(one, other),
        float(line.slope),
        float(line.stderr),
        float(line.pvalue),
        float(line.rvalue**2),
        float(ranks.statistic),
        tuple(
            _contrast(a, b)
            for a, b in combinations(sorted(context, key=lambda each: (each.host, each.memory_gb)), 2)
            if a.host == b.host
        ),
    )


def _pool(profiles: Sequence[GpuProfile]) -> Group:
    readings = sum(each.readings for each in profiles)
    mean = math.fsum(each.mean_watts * each.readings for each in profiles) / readings
    squares = math.fsum(
        (each.readings - 1) * each.deviation_watts**2 + each.readings * (each.mean_watts - mean) ** 2
        for each in profiles
    )
    return Group(mean, math.sqrt(squares / (readings - 1)), readings)


def _deviation(one: Group, other: Group) -> float:
    """Cohen's d is in units of the mean variance of both, as in the seed."""
    return math.sqrt((one.deviation_watts**2 + other.deviation_watts**2) / 2)


def _contrast(one: GpuProfile, other: GpuProfile) -> Contrast:
    watts, size = other.mean_watts - one.mean_watts, other.memory_gb - one.memory_gb
    groups = [Group(each.mean_watts, each.deviation_watts, each.readings) for each in (one, other)]
    return Contrast(
        one.host,
        one.index,
        other.index,
        watts,
        size,
        watts / size if size else None,
        watts / _deviation(*groups),
    )
