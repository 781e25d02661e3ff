"""Idle periods against a plain count, however the trace is cut into chunks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sim.traces import STEPS, trace
from wattkeeper.sim.arrivals import Chunk
from wattkeeper.sim.idle_periods import Splitter


def plainly(
    arrivals: list[float], services: list[float], horizon: float, own_ends: bool
) -> list[tuple[float, float, float, int]]:
    """(start, gap, busy, requests) of each idle period, the last one included."""
    found, end, since, count = [], 0.0, 0.0, 0
    for i, (at, service) in enumerate(zip(arrivals, services, strict=True)):
        if i and at > end:
            found.append((end, at - end, end - since, count))
            since, count = at, 0
        elif not i:
            since = at
        end = at + service if own_ends else max(end, at + service)
        count += 1
    end = end if own_ends else min(end, horizon)
    return [*found, (end, max(0.0, horizon - end), end - since, count)]


@given(
    steps=STEPS,
    cuts=st.lists(st.integers(0, 60), max_size=4),
    own_ends=st.booleans(),
    extra=st.floats(0, 1e5),
)
def test_the_same_as_a_plain_count(
    steps: list[tuple[float, float]], cuts: list[int], own_ends: bool, extra: float
) -> None:
    (whole,) = trace(steps).chunks()
    horizon = float(whole.arrivals[-1]) + extra + 1e-6
    splitter, periods = Splitter(horizon, own_ends=own_ends), []
    bounds = [0, *sorted(min(cut, len(steps)) for cut in cuts), len(steps)]
    for low, high in pairwise(bounds):
        part = splitter.feed(Chunk(whole.arrivals[low:high], whole.services[low:high]))
        columns = (part.starts, part.gaps, part.busy, part.requests)
        periods.extend(zip(*(column.tolist() for column in columns), strict=True))
        assert (part.arrivals[part.ending] == part.starts + part.gaps).all() or part.arrivals[
            part.ending
        ] == pytest.approx(part.starts + part.gaps)
    last = splitter.finish(horizon)
    periods.append((last.start, last.gap, last.busy, last.requests))
    expected = plainly(whole.arrivals.tolist(), whole.services.tolist(), horizon, own_ends)
    assert np.array(periods) == pytest.approx(np.array(expected), abs=1e-6)
    assert splitter.requests == len(steps)
    if own_ends:
        # All gaps and services together reach from the first arrival to the horizon.
        gaps = sum(period[1] for period in periods) + splitter.negative_seconds
        assert gaps + whole.services.sum() == pytest.approx(horizon - whole.arrivals[0], abs=1e-6)
    else:
        idle = sum(period[1] for period in periods)
        assert splitter.busy_seconds + idle == pytest.approx(horizon - whole.arrivals[0], abs=1e-6)


def test_what_comes_after_the_horizon_is_left_out_and_counted() -> None:
    (whole,) = trace([(10, 5), (10, 100), (30, 1), (1, 1)]).chunks()
    splitter = Splitter(40.0, own_ends=False)
    splitter.feed(whole)
    assert (splitter.requests, splitter.beyond) == (2, 2)
    last = splitter.finish(40.0)
    assert (last.gap, splitter.busy_seconds) == (0.0, 25.0)
