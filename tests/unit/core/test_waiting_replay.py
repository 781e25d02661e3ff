"""The budget for waiting over many requests: the decisions are those of request by request."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattkeeper.core.waiting_budget import DAY, WaitingBudget, note_request, waiting_timeout_seconds
from wattkeeper.core.waiting_replay import WaitingReplay

# (busy until the next idle period, then a gap); none: requests that overlap
GAPS = st.one_of(st.none(), st.floats(0.1, 3600), st.floats(3600, 12 * DAY))
REQUESTS = st.lists(st.tuples(st.floats(0, 600), GAPS), min_size=1, max_size=200)


def evicted_after(budget: WaitingBudget, since: float, gap: float, energy: float) -> float:
    """When a sweep that looks at every moment would evict: tried at the start and at each midnight."""
    if not budget.may_evict:
        return math.inf
    moments = [since]
    while moments[-1] < since + gap:
        moments.append((moments[-1] // DAY + 1) * DAY)
    for now, following in zip(moments, [*moments[1:], math.inf], strict=True):
        due = max(now, since + max(energy, waiting_timeout_seconds(budget, now)))
        if due < following:
            return due - since
    return math.inf


@settings(max_examples=60)
@given(requests=REQUESTS, share=st.sampled_from([0.01, 0.05, 0.3, 1.0]), energy=st.sampled_from([0.0, 270.0]))
def test_the_same_as_request_by_request(
    requests: list[tuple[float, float | None]], share: float, energy: float
) -> None:
    budget, replay, now = WaitingBudget(share), WaitingReplay(share), 1000.0
    budget = note_request(budget, now, None, True)
    replay.note_request(now, None, True)
    for busy, gap in requests:
        now += busy
        delayed = False
        if gap is not None:
            expected = evicted_after(budget, now, gap, energy)
            found = replay.timeout_seconds(now, gap, energy)
            delayed = gap > found
            assert delayed == (gap > expected)
            if delayed:
                assert found == pytest.approx(expected)
            now += gap
        budget = note_request(budget, now, gap, delayed)
        replay.note_request(now, gap, delayed)
        assert replay.tokens == budget.tokens


def test_a_share_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="maxDelayedRequests"):
        WaitingReplay(0.0)
