"""A measurement becomes figures that count like daily readings, and is combined with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.parking_catalogue import Basis, figures_for
from wattkeeper.core.parking_tax import ENOUGH_BATCHES, PoolFigures, gpu_tax
from wattkeeper.core.power_samples import EMPTY_STATE, GpuPowerState, Moments, RestState
from wattkeeper.core.tax_measurement import RestReading, combine, gather

UUID = "GPU-1"


def study(bare_seconds: float = 2100.0, level_seconds: float = 1200.0) -> list[RestReading]:
    """The default plan's readings: bare, then four levels, with 90 s between."""
    readings, at = [], 0.0
    plan = [
        (RestState.BARE, 71.8, 345.0, bare_seconds),
        *[(RestState.CONTEXT, 121.7, 1980.0, level_seconds)] * 4,
    ]
    for state, watts, clock, seconds in plan:
        at += 90.0
        for number in range(int(seconds / 30)):
            # Readings come a little late now and then, as on a real machine.
            ripple = 0.1 if number % 2 else -0.1
            readings.append(RestReading(at + 0.004 * (number % 3), state, watts + ripple, clock))
            at += 30.0
    return readings


def test_a_whole_study_counts_as_measured_on_the_gpu() -> None:
    kept = gather(UUID, study())
    assert all(kept.moments[state].weight >= ENOUGH_BATCHES for state in (RestState.BARE, RestState.CONTEXT))
    assert kept.batch is None
    tax = gpu_tax(kept, PoolFigures(), figures_for("NVIDIA-H100-80GB-HBM3"))
    assert tax is not None and tax.basis is Basis.MEASURED
    assert tax.watts == pytest.approx(49.9, abs=0.05)
    assert (tax.bare_sm_clock_mhz, tax.context_sm_clock_mhz) == (345, 1980)


def test_a_short_study_gives_figures_that_count_for_less() -> None:
    kept = gather(UUID, study(bare_seconds=1200.0))
    assert 0 < kept.moments[RestState.BARE].weight < ENOUGH_BATCHES
    tax = gpu_tax(kept, PoolFigures(), figures_for("NVIDIA-H100-80GB-HBM3"))
    assert tax is not None and tax.basis is Basis.CATALOGUE
    assert gather(UUID, []) == EMPTY_STATE


SERIES = st.lists(st.floats(10, 700), max_size=20)


def moments(values: list[float], clock: float | None) -> Moments:
    found = Moments()
    for value in values:
        found = found.add(value, clock)
    return found


@given(SERIES, SERIES, st.sampled_from([None, 345.0]))
def test_combining_is_counting_together(one: list[float], other: list[float], clock: float | None) -> None:
    state = RestState.BARE
    combined = combine(
        GpuPowerState({state: moments(one, clock)} if one else {}),
        GpuPowerState({state: moments(other, clock)} if other else {}),
    )
    if not one and not other:
        assert combined.moments == {}
        return
    together, found = moments(one + other, clock), combined.moments[state]
    assert found.weight == pytest.approx(together.weight)
    assert found.mean_watts == pytest.approx(together.mean_watts)
    assert found.m2 == pytest.approx(together.m2, abs=1e-6)
    assert found.sm_clock_mhz == (None if clock is None else pytest.approx(clock))


def test_an_unknown_clock_leaves_the_known_one() -> None:
    known, unknown = moments([50.0], 345.0), moments([50.0], None)
    for one, other in ((known, unknown), (unknown, known)):
        combined = combine(GpuPowerState({RestState.BARE: one}), GpuPowerState({RestState.BARE: other}))
        assert combined.moments[RestState.BARE].sm_clock_mhz == 345.0
