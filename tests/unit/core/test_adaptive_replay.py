"""Many gaps at once: the timeouts and the state are those of gap by gap."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattkeeper.core import adaptive
from wattkeeper.core.adaptive import AdaptiveState
from wattkeeper.core.adaptive_replay import Gaps, replay

GAP = st.one_of(st.floats(0, 40), st.sampled_from([0.0, 0.02, 1.0, 8.0, 8.5, 1e5]))
PERIOD = st.tuples(GAP, st.floats(0, 5000), st.floats(0, 3), st.integers(1, 30))


def step_by_step(state: AdaptiveState, periods: Gaps) -> tuple[list[float], AdaptiveState]:
    timeouts = []
    for i, gap in enumerate(periods.gaps.tolist()):
        since = float(periods.idle_since[i])
        proposal = adaptive.propose(state, since, float(periods.busy[i]), int(periods.requests[i]))
        timeouts.append(proposal.timeout)
        state = adaptive.observe(state, proposal, gap, since)
    return timeouts, state


def part(periods: Gaps, chosen: slice) -> Gaps:
    return Gaps(
        periods.gaps[chosen], periods.idle_since[chosen], periods.busy[chosen], periods.requests[chosen]
    )


@settings(max_examples=40)
@given(drawn=st.lists(PERIOD, min_size=1, max_size=150), cut=st.integers(0, 150))
def test_the_same_as_gap_by_gap_however_it_is_cut(
    drawn: list[tuple[float, float, float, int]], cut: int
) -> None:
    gaps, pauses, busy, requests = (np.array(column) for column in zip(*drawn, strict=True))
    periods = Gaps(gaps, np.cumsum(pauses), busy, requests)
    timeouts, state = step_by_step(adaptive.initial(), periods)
    first, between = replay(adaptive.initial(), part(periods, slice(cut)))
    second, after = replay(between, part(periods, slice(cut, None)))
    assert [*first, *second] == timeouts
    assert (after.cost, after.cost_break_even) == pytest.approx((state.cost, state.cost_break_even))
    assert after.last_gaps == pytest.approx(state.last_gaps)
    assert after.steady.costs == pytest.approx(state.steady.costs)
    assert after.hours.keys() == state.hours.keys() and after.classes.keys() == state.classes.keys()
    assert after.traffic.states == pytest.approx(state.traffic.states, abs=1e-9)
    # It goes on either way, and into a cluster: the state is the operator's own.
    json.dumps(adaptive.to_plain(after))
    assert step_by_step(after, periods)[0] == step_by_step(state, periods)[0]


def test_gaps_that_are_none_are_refused() -> None:
    ones = np.ones(1)
    for gap in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="gaps"):
            replay(adaptive.initial(), Gaps(np.array([gap]), ones, ones, ones.astype(np.int64)))
