"""The dose-response analysis on readings whose answer is known."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.dose_response import (
    DoseReading,
    Equivalence,
    Slope,
    analyze,
    analyze_model,
    effective_size,
    equivalence,
)

SIZES = (0.0, 4.0, 16.0, 48.0, 64.0)


def readings(
    slope: float = 0.0, step: float = 50.0, noise: float = 0.1, drift: float = 0.0, each: int = 20
) -> list[DoseReading]:
    """A board at 70 W bare; the memory's temperature falls by `drift` °C a level and costs 1 W/°C."""
    rng = random.Random(7)
    made = [DoseReading(None, 70 + rng.gauss(0, noise), 345.0, 36.0, 42.0) for _ in range(each)]
    for n, size in enumerate(SIZES):
        for _ in range(each):
            celsius = 46.0 - drift * n + rng.gauss(0, 0.2)
            watts = 70 + step + slope * size + (celsius - 46.0 if drift else 0.0) + rng.gauss(0, noise)
            made.append(DoseReading(size, watts, 1980.0, 40.0, celsius))
    return made


def test_a_flat_response_is_a_step() -> None:
    found = analyze(readings(), tdp_watts=700.0)
    assert found.step_watts == pytest.approx(50, abs=0.1)
    assert found.step_low_watts < found.step_watts < found.step_high_watts
    assert abs(found.slope.watts_per_gb) < 0.005
    assert found.equivalence.equivalent
    assert found.context_share > 0.99
    assert (found.bare.sm_clock_mhz, found.levels[0].sm_clock_mhz) == (345.0, 1980.0)
    assert found.bare_of_tdp == pytest.approx(0.1, abs=0.001)
    assert found.context_of_tdp == pytest.approx(120 / 700, abs=0.001)
    assert found.watts_at(32.0) == pytest.approx(120, abs=0.3)


@pytest.mark.parametrize(
    ("slope", "equivalent"), [(0.05, True), (0.15, False), (-0.15, False), (-0.05, True)]
)
def test_a_real_slope_is_found_and_tested_against_the_bound(slope: float, equivalent: bool) -> None:
    found = analyze(readings(slope))
    assert found.slope.watts_per_gb == pytest.approx(slope, abs=0.005)
    assert found.slope.low < slope < found.slope.high
    assert found.slope.differs_from_zero
    assert found.equivalence.equivalent is equivalent
    assert found.context_share == pytest.approx(50 / (50 + abs(slope) * 64), abs=0.01)


def test_a_slope_of_the_temperature_is_told_from_one_of_the_memory() -> None:
    drifting = analyze(readings(drift=0.5))
    assert drifting.slope.watts_per_gb < -0.02
    (covariate,) = drifting.covariates  # the GPU's sensor didn't move
    assert covariate.sensor == "memory"
    assert covariate.watts_per_celsius == pytest.approx(1.0, abs=0.15)
    assert abs(covariate.slope.watts_per_gb) < 0.005
    assert not analyze(readings(0.1)).covariates[0].explains_the_slope


def test_levels_without_temperature_have_no_covariate() -> None:
    bare = [DoseReading(None, 70.0 + n / 10) for n in range(3)]
    doses = [DoseReading(size, 120.0 + n / 10) for size in SIZES for n in range(3)]
    found = analyze([*bare, *doses])
    assert found.covariates == () and found.bare_of_tdp is None and found.levels[0].sm_clock_mhz is None


@pytest.mark.parametrize(
    ("given_readings", "message"),
    [
        ([], "no bare readings"),
        ([DoseReading(None, 70.0)] * 2, "0 levels"),
        ([DoseReading(None, 70.0)] * 2 + [DoseReading(4.0, 120.0)] * 9, "1 levels"),
        ([DoseReading(size, 120.0) for size in SIZES], "no bare readings"),
    ],
)
def test_an_incomplete_study_is_refused(given_readings: list[DoseReading], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        analyze(given_readings)


def test_a_model_needs_both_states() -> None:
    with pytest.raises(ValueError, match="2 bare readings and 0 with llm"):
        analyze_model("llm", [DoseReading(None, 70.0)] * 2)


def test_readings_that_resemble_each_other_count_for_less() -> None:
    rng = random.Random(3)
    independent = [rng.gauss(0, 1) for _ in range(400)]
    walk, series = 0.0, []
    for _ in range(400):
        walk = 0.95 * walk + rng.gauss(0, 1)
        series.append(walk)
    assert effective_size(independent) > 300
    assert effective_size(series) < 60
    assert effective_size([5.0] * 10) == 10


@given(slope=st.floats(-1, 1), error=st.floats(1e-6, 1), points=st.integers(3, 40))
def test_equivalence_is_stricter_than_the_bare_bound(slope: float, error: float, points: int) -> None:
    line = Slope(slope, error, slope - error, slope + error, 0.5, 0.0, points)
    found = equivalence(line, 0.1)
    assert 0 <= found.p_value <= 1
    if found.equivalent:
        assert abs(slope) < 0.1
    # The 90 % interval lies within the bound exactly when both one-sided tests pass.
    assert equivalence(line, math.inf).equivalent


def test_an_exact_line_needs_no_test() -> None:
    flat = Slope(0.01, 0.0, 0.01, 0.01, 0.0, 1.0, 5)
    assert equivalence(flat, 0.1) == Equivalence(0.1, 0.0)
    assert not equivalence(flat, 0.01).equivalent
