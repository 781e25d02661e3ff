"""From two measured rates to any: exact at both, never falling between and beyond."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper_predictor.recipes.wattgpu.load import (
    LevelFigures,
    Position,
    at_load,
    factor_between,
    position,
)

LOW = LevelFigures(0.017, 254.0, 40.1, 0.0595)
HIGH = LevelFigures(0.33, 254.0, 71.1, 0.0620)


def test_measured_levels_answer_with_their_own_figures() -> None:
    for level in (LOW, HIGH):
        for factor in (0.96, 1.0, 1.04):
            there = at_load(
                LOW, HIGH, full_power_watts=72, tokens_per_second=level.tokens_per_second * factor
            )
            assert there.power_watts == pytest.approx(level.power_watts)
            assert there.itl_seconds == pytest.approx(level.itl_seconds)


def test_a_full_queue_bounds_the_power() -> None:
    busy = at_load(LOW, HIGH, full_power_watts=71.2, tokens_per_second=1000)
    assert busy.power_watts == 71.2


def test_without_load_the_line_goes_on_towards_idle() -> None:
    idle = at_load(LOW, HIGH, full_power_watts=72, tokens_per_second=1e-9)
    assert 0.5 * LOW.power_watts <= idle.power_watts < LOW.power_watts
    assert idle.itl_seconds == LOW.itl_seconds


def test_reading_prompts_keeps_the_board_busy() -> None:
    rate = 0.5 * (LOW.tokens_per_second + HIGH.tokens_per_second)
    calm = at_load(LOW, HIGH, full_power_watts=72, tokens_per_second=rate)
    reading = at_load(LOW, HIGH, full_power_watts=72, tokens_per_second=rate, prefill_running=0.2)
    assert reading.power_watts > calm.power_watts
    assert reading.itl_seconds == calm.itl_seconds


@st.composite
def levels(draw: st.DrawFn) -> tuple[LevelFigures, LevelFigures]:
    tokens = st.floats(1, 256)
    watts = st.floats(5, 1000)
    seconds = st.floats(1e-3, 0.3)
    return (
        LevelFigures(0.017, draw(tokens), draw(watts), draw(seconds)),
        LevelFigures(0.33, draw(tokens), draw(watts), draw(seconds)),
    )


@given(pair=levels(), full=st.floats(5, 1000), rate=st.floats(1e-6, 1e4), factor=st.floats(1, 100))
def test_more_load_never_lowers_power(
    pair: tuple[LevelFigures, LevelFigures], full: float, rate: float, factor: float
) -> None:
    low, high = pair
    if low.itl_seconds > high.itl_seconds:
        high = replace(high, itl_seconds=low.itl_seconds)
    calm = at_load(low, high, full_power_watts=full, tokens_per_second=rate)
    busy = at_load(low, high, full_power_watts=full, tokens_per_second=rate * factor)
    assert busy.power_watts >= calm.power_watts * (1 - 1e-9)
    assert busy.itl_seconds >= calm.itl_seconds * (1 - 1e-9)
    assert busy.running >= calm.running * (1 - 1e-9)


@given(
    figures=st.tuples(st.floats(1, 1000), st.floats(1, 10)),
    factors=st.tuples(st.floats(1, 9), st.floats(1, 9)),
    share=st.floats(0, 1),
    more=st.floats(0, 1),
)
def test_a_bound_is_the_levels_own_at_each_and_a_line_between(
    figures: tuple[float, float], factors: tuple[float, float], share: float, more: float
) -> None:
    low, high = figures[0], figures[0] * figures[1]

    def bound(share: float, *, rising: bool) -> float:
        figure = low + share * (high - low)
        return figure * factor_between(share, (low, high), factors, rising=rising)

    for rising in (False, True):
        assert bound(1, rising=rising) == pytest.approx(high * factors[1])
        assert bound(share, rising=rising) >= (low + share * (high - low)) * (1 - 1e-9)
    assert bound(0, rising=False) == pytest.approx(low * factors[0])
    assert bound(0, rising=True) == pytest.approx(min(low * factors[0], high * factors[1]))
    assert bound(share + more * (1 - share), rising=True) >= bound(share, rising=True) * (1 - 1e-9)


@given(pair=levels(), full=st.floats(5, 1000), rate=st.floats(1e-6, 1e4))
def test_power_stays_between_half_the_low_level_and_the_most_known(
    pair: tuple[LevelFigures, LevelFigures], full: float, rate: float
) -> None:
    low, high = pair
    there = at_load(low, high, full_power_watts=full, tokens_per_second=rate)
    assert 0.5 * low.power_watts <= there.power_watts <= max(low.power_watts, high.power_watts, full) + 1e-9


@pytest.mark.parametrize(
    ("rate", "place"),
    [
        (0.5, Position.BELOW),
        (0.017 * 254, Position.AT_LOW),
        (20, Position.BETWEEN),
        (0.33 * 256, Position.AT_HIGH),
        (120, Position.ABOVE),
    ],
)
def test_positions(rate: float, place: Position) -> None:
    assert position(LOW, HIGH, rate) is place
