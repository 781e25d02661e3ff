"""The adaptive timeout: its guard on any gaps, its figures on the seed's traces."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattkeeper.core import adaptive
from wattkeeper.core.adaptive import EXPERTS, LONGEST, RHO, SLACK, AdaptiveState, cost

GAPS = st.lists(
    st.one_of(st.floats(0, 50), st.sampled_from([0.0, 0.02, 0.999, 1.0, 1.001, 7.99, 8.01, 1e4])),
    max_size=120,
)


def run(gaps: list[float], spacing: float = 1000.0) -> AdaptiveState:
    state = adaptive.initial()
    for i, gap in enumerate(gaps):
        proposal = adaptive.propose(state, i * spacing)
        assert 0 <= proposal.timeout <= LONGEST
        assert proposal.proposals[0] == 1.0
        state = adaptive.observe(state, proposal, gap, i * spacing)
    return state


@settings(max_examples=60, deadline=None)
@given(gaps=GAPS)
def test_the_guard_holds_on_any_gaps(gaps: list[float]) -> None:
    state = run(gaps)
    by_break_even = sum(cost(1.0, gap) for gap in gaps)
    optimum = sum(min(gap, 1.0) for gap in gaps)
    assert state.cost_break_even == pytest.approx(by_break_even)
    assert state.cost <= RHO * by_break_even + SLACK + 1e-9
    assert state.cost <= 2 * RHO * optimum + SLACK + 1e-9


def test_it_starts_as_break_even() -> None:
    proposal = adaptive.propose(adaptive.initial(), 0.0)
    assert (proposal.timeout, proposal.expert) == (1.0, "break-even")


@pytest.mark.parametrize(
    ("gap", "low", "high"),
    [
        (30.0, 0.0, 0.1),  # always long: evict at once
        (1.5, 0.0, 0.1),  # always just beyond T*: keeping would cost 1.5, evicting 1
        (0.5, 0.5, LONGEST),  # always short: keep
    ],
)
def test_it_learns_a_steady_rhythm(gap: float, low: float, high: float) -> None:
    state = run([gap] * 200)
    assert low <= adaptive.propose(state, 0.0).timeout <= high


def test_it_learns_the_rhythm_of_the_day() -> None:
    state, rhythm = adaptive.initial(), EXPERTS.index("rhythm")
    for day in range(30):
        for hour, gap in ((3, 20.0), (15, 0.6)):
            since = day * 86_400.0 + hour * 3600
            for _ in range(6):
                proposal = adaptive.propose(state, since)
                state = adaptive.observe(state, proposal, gap, since)
            if day == 29:
                proposed = adaptive.propose(state, since).proposals[rhythm]
                assert proposed < 0.1 if gap == 20.0 else proposed > 0.6


@settings(max_examples=25, deadline=None)
@given(gaps=GAPS)
def test_what_was_learnt_survives_a_restart(gaps: list[float]) -> None:
    state = run(gaps)
    plain = json.loads(json.dumps(adaptive.to_plain(state)))
    again = adaptive.from_plain(plain)
    assert adaptive.to_plain(again) == plain
    before, after = adaptive.propose(state, 5e5), adaptive.propose(again, 5e5)
    assert after.proposals[3] == pytest.approx(before.proposals[3], rel=1e-3)
    assert len(json.dumps(plain)) < 12_000


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"grid": 3},
        {"grid": 27, "recent": "x"},
        {**adaptive.to_plain(adaptive.initial()), "losses": [1, 2]},
    ],
)
def test_a_state_of_another_form_is_refused(plain: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"adaptive|numbers|grid|convert"):
        adaptive.from_plain(plain)


@pytest.mark.parametrize("gap", [-0.1, math.nan, math.inf])
def test_a_gap_that_is_none_is_refused(gap: float) -> None:
    state = adaptive.initial()
    with pytest.raises(ValueError, match="gap"):
        adaptive.observe(state, adaptive.propose(state, 0.0), gap, 0.0)


class Idle(NamedTuple):
    start: float
    gap: float
    busy: float  # from the first request since the last idle period
    requests: int
    last: bool


def idle_periods(path: Path, horizon: float = 86_400.0) -> list[Idle]:
    """Each gap after a request's own end, in seconds; overlapping requests give negative ones."""
    with path.open() as file:
        rows = [(float(row["arrival_s"]), float(row["service_s"])) for row in csv.DictReader(file)]
    following = [*(arrival for arrival, _ in rows[1:]), horizon]
    periods, first = [], 0
    for i, ((arrival, service), after) in enumerate(zip(rows, following, strict=True)):
        end = arrival + service
        periods.append(Idle(end, after - end, end - rows[first][0], i - first + 1, i == len(rows) - 1))
        if after > end:
            first = i + 1
    return periods


def saved_percent(path: Path, bare: float, context: float, load_watts: float) -> tuple[float, int]:
    """The seed's accounting: percent saved against always on, and cold starts, under the adaptive policy."""
    load_joules = load_watts * 45.0
    break_even = load_joules / (context - bare)
    state, joules, cold = adaptive.initial(), load_joules, 1
    for start, gap, busy, requests, last in idle_periods(path):
        if gap <= 0:
            joules += gap * context
            continue
        proposal = adaptive.propose(state, start, busy / break_even, requests)
        timeout = proposal.timeout * break_even
        joules += gap * context if gap <= timeout else timeout * context + (gap - timeout) * bare
        if gap > timeout and not last:
            joules, cold = joules + load_joules, cold + 1
        if not last:
            state = adaptive.observe(state, proposal, gap / break_even, start)
    return 100 * (1 - joules / (86_400 * context)), cold


@pytest.mark.data
@pytest.mark.parametrize(
    ("gpu", "low", "bursty"),
    [
        ((71.8, 121.7, 300.0), (25.8, 128), (24.3, 61)),
        ((53.7, 80.0, 250.0), (13.3, None), (17.6, None)),
        ((35.6, 102.0, 280.0), (47.4, None), (37.6, None)),
    ],
)
def test_the_figures_on_the_seeds_traces(
    gpu: tuple[float, float, float],
    low: tuple[float, int | None],
    bursty: tuple[float, int | None],
    data_dir: Path,
) -> None:
    for name, (percent, cold_starts) in (("low", low), ("bursty", bursty)):
        saved, cold = saved_percent(data_dir / "parking-tax" / f"arrivals_{name}.csv", *gpu)
        assert saved == pytest.approx(percent, abs=0.1)
        if cold_starts is not None:
            assert cold == cold_starts
