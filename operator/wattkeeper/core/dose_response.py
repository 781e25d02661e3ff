"""Seed 002's dose-response study: does an idle GPU draw more the more of its memory is allocated?

One board, bare first, then with a CUDA context and ever more memory allocated, some minutes a level. Answered
are the step that the context causes (with the SM clock beside it), the slope over the allocated memory, and
whether that slope is equivalent to nothing (two one-sided tests against ±0.1 W/GB).

Readings half a minute apart are not independent, so the regression is over the levels' means, each one point,
and the step's interval counts readings by their autocorrelation. The regression over single readings, which
the seed's small p-values rest on, is given beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

EQUIVALENCE_WATTS_PER_GB = 0.1
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DoseReading:
    """One reading. `gigabytes` is None without a context; temperatures None where the board has no sensor."""

    gigabytes: float | None
    watts: float
    sm_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None


@dataclass(frozen=True, slots=True)
class DoseLevel:
    """The readings at one level of allocation."""

    gigabytes: float | None
    readings: int
    mean_watts: float
    deviation_watts: float
    sm_clock_mhz: float | None
    temperature_celsius: float | None
    memory_temperature_celsius: float | None


@dataclass(frozen=True, slots=True)
class Slope:
    """An ordinary least-squares slope in W/GB with its 95 % interval and p-value against zero."""

    watts_per_gb: float
    error: float
    low: float
    high: float
    p_value: float
    r_squared: float
    points: int

    @property
    def differs_from_zero(self) -> bool:
        return self.p_value < 0.05


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two one-sided tests: is the slope within ±bound? The larger of both p-values decides."""

    bound: float
    p_value: float

    @property
    def equivalent(self) -> bool:
        return self.p_value < 0.05


@dataclass(frozen=True, slots=True)
class ThermalCovariate:
    """The slope over single readings with a temperature beside the memory in the regression."""

    sensor: str  # "memory" or "gpu"
    slope: Slope
    watts_per_celsius: float
    celsius_error: float

    @property
    def explains_the_slope(self) -> bool:
        """With the temperature in it, no slope is left over."""
        return not self.slope.differs_from_zero


@dataclass(frozen=True, slots=True)
class DoseResponse:
    """The study's answer for one board."""

    bare: DoseLevel
    levels: tuple[DoseLevel, ...]  # with a context, by allocated memory
    step_watts: float  # first context level above bare: the parking tax of a context
    step_low_watts: float
    step_high_watts: float
    slope: Slope  # over the levels' means
    slope_of_readings: Slope
    equivalence: Equivalence
    covariates: tuple[ThermalCovariate, ...]
    tdp_watts: float | None

    def watts_at(self, gigabytes: float) -> float:
        """Idle power with a context and so much memory, by the levels' regression."""
        sizes = [level.gigabytes or 0.0 for level in self.levels]
        watts = [level.mean_watts for level in self.levels]
        centre = math.fsum(sizes) / len(sizes)
        return math.fsum(watts) / len(watts) + self.slope.watts_per_gb * (gigabytes - centre)

    @property
    def context_share(self) -> float:
        """The step's share of the whole tax at the largest allocation."""
        memory = abs(self.slope.watts_per_gb) * (self.levels[-1].gigabytes or 0.0)
        return self.step_watts / (self.step_watts + memory)

    @property
    def bare_of_tdp(self) -> float | None:
        """Bare idle power over TDP, beside the rule of thumb of 20 %."""
        return self.bare.mean_watts / self.tdp_watts if self.tdp_watts else None

    @property
    def context_of_tdp(self) -> float | None:
        """Idle power with a context over TDP, beside the rule of thumb of 20 %."""
        return self.levels[0].mean_watts / self.tdp_watts if self.tdp_watts else None


@dataclass(frozen=True, slots=True)
class ModelIdle:
    """A real model's idle power beside the bare board: does it behave as the empty allocations did?"""

    model: str
    bare: DoseLevel
    idle: DoseLevel
    step_watts: float
    step_low_watts: float
    step_high_watts: float


def analyze_model(model: str, readings: Sequence[DoseReading]) -> ModelIdle:
    """The step from the bare board to an idle model. Raises ValueError where either is missing."""
    bare = [each for each in readings if each.gigabytes is None]
    idle = [each for each in readings if each.gigabytes is not None]
    if len(bare) < 2 or len(idle) < 2:
        raise ValueError(f"{len(bare)} bare readings and {len(idle)} with {model}: needs two of each")
    step, margin = _step(bare, idle)
    size = _mean([each.gigabytes for each in idle])
    return ModelIdle(model, _level(None, bare), _level(size, idle), step, step - margin, step + margin)


def analyze(
    readings: Sequence[DoseReading],
    *,
    tdp_watts: float | None = None,
    bound: float = EQUIVALENCE_WATTS_PER_GB,
) -> DoseResponse:
    """Answer the study's questions for one board's readings, in the order in which they were taken.

    Raises ValueError where bare readings are missing or fewer than three levels were held.
    """
    bare = [each for each in readings if each.gigabytes is None]
    doses = [each for each in readings if each.gigabytes is not None]
    grouped: dict[float, list[DoseReading]] = {}
    for each in doses:
        grouped.setdefault(each.gigabytes or 0.0, []).append(each)
    if len(bare) < 2:
        raise ValueError("no bare readings: the study begins without a CUDA context")
    if len(grouped) < 3:
        raise ValueError(f"{len(grouped)} levels of allocated memory: a slope needs at least 3")
    levels = tuple(_level(size, grouped[size]) for size in sorted(grouped))
    first = grouped[min(grouped)]
    step, margin = _step(bare, first)
    x = np.array([level.gigabytes for level in levels])
    slope = _slope(x, np.array([level.mean_watts for level in levels]))
    sizes = np.array([each.gigabytes for each in doses])
    watts = np.array([each.watts for each in doses])
    return DoseResponse(
        _level(None, bare),
        levels,
        step,
        step - margin,
        step + margin,
        slope,
        _slope(sizes, watts),
        equivalence(slope, bound),
        tuple(_covariates(doses, sizes, watts)),
        tdp_watts,
    )


def equivalence(slope: Slope, bound: float = EQUIVALENCE_WATTS_PER_GB) -> Equivalence:
    """Test whether a slope is within ±bound (TOST)."""
    if slope.error == 0:
        return Equivalence(bound, 0.0 if abs(slope.watts_per_gb) < bound else 1.0)
    nearer = (bound - abs(slope.watts_per_gb)) / slope.error
    return Equivalence(bound, float(stats.t.sf(nearer, slope.points - 2)))


def effective_size(values: Sequence[float]) -> float:
    """How many independent readings a series is worth, by its first autocorrelation."""
    series = np.asarray(values, dtype=np.float64)
    centred = series - series.mean()
    total = float(centred @ centred)
    if len(series) < 3 or total == 0:
        return float(len(series))
    correlation = min(max(float(centred[:-1] @ centred[1:]) / total, 0.0), 0.99)
    return max(2.0, len(series) * (1 - correlation) / (1 + correlation))


def _level(gigabytes: float | None, readings: Sequence[DoseReading]) -> DoseLevel:
    watts = np.array([each.watts for each in readings])
    return DoseLevel(
        gigabytes,
        len(readings),
        float(watts.mean()),
        float(watts.std(ddof=1)) if len(readings) > 1 else 0.0,
        _mean([each.sm_clock_mhz for each in readings]),
        _mean([each.temperature_celsius for each in readings]),
        _mean([each.memory_temperature_celsius for each in readings]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _step(bare: Sequence[DoseReading], context: Sequence[DoseReading]) -> tuple[float, float]:
    """Difference of means and the half-width of its 95 % interval (Welch)."""
    errors, freedom = [], []
    for readings in (bare, context):
        watts = [each.watts for each in readings]
        size = effective_size(watts)
        errors.append(float(np.var(watts, ddof=1)) / size if len(watts) > 1 else 0.0)
        freedom.append(size - 1)
    step = float(np.mean([each.watts for each in context]) - np.mean([each.watts for each in bare]))
    variance = sum(errors)
    if variance == 0:
        return step, 0.0
    parts = [error**2 / free for error, free in zip(errors, freedom, strict=True) if free > 0]
    return step, float(stats.t.ppf(0.975, variance**2 / sum(parts))) * math.sqrt(variance)


def _slope(x: Floats, y: Floats) -> Slope:
    found = stats.linregress(x, y)
    margin = float(stats.t.ppf(0.975, len(x) - 2) * found.stderr)
    slope = float(found.slope)
    return Slope(
        slope,
        float(found.stderr),
        slope - margin,
        slope + margin,
        float(found.pvalue),
        float(found.rvalue**2),
        len(x),
    )


def _covariates(doses: Sequence[DoseReading], sizes: Floats, watts: Floats) -> list[ThermalCovariate]:
    """One regression for each sensor that was there throughout and moved."""
    sensors = {
        "gpu": [each.temperature_celsius for each in doses],
        "memory": [each.memory_temperature_celsius for each in doses],
    }
    found = []
    for sensor, values in sensors.items():
        known = [value for value in values if value is not None]
        if len(known) == len(doses) and len(set(known)) > 1:
            found.append(_with_covariate(sensor, sizes, np.array(known), watts))
    return found


def _with_covariate(sensor: str, sizes: Floats, celsius: Floats, watts: Floats) -> ThermalCovariate:
    design = np.column_stack([np.ones_like(sizes), sizes, celsius])
    solution, *_ = np.linalg.lstsq(design, watts, rcond=None)
    residuals = watts - design @ solution
    freedom = len(watts) - design.shape[1]
    variance = float(residuals @ residuals) / freedom
    errors = np.sqrt(variance * np.diag(np.linalg.pinv(design.T @ design)))
    slope, error = float(solution[1]), float(errors[1])
    margin = float(stats.t.ppf(0.975, freedom)) * error
    p_value = float(2 * stats.t.sf(abs(slope) / error, freedom)) if error > 0 else 0.0
    spread = watts - watts.mean()
    r_squared = 1 - float(residuals @ residuals) / float(spread @ spread)
    fitted = Slope(slope, error, slope - margin, slope + margin, p_value, r_squared, len(watts))
    return ThermalCovariate(sensor, fitted, float(solution[2]), float(errors[2]))
