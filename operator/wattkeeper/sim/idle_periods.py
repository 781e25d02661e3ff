"""From requests to idle periods, chunk by chunk: when a model was idle, for how long, and after what.

Two ways to count. The true one: a model is idle when no request is being served. The paper's (seed 002): a
gap reaches from each request's own end to the next arrival, so that it is negative where requests overlap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattkeeper.sim.arrivals import Chunk, Floats


@dataclass(frozen=True, slots=True)
class IdlePeriods:
    """Idle periods that a request ended, in seconds, and the requests of the chunk they were found in.

    `ending[i]` is the index in `arrivals` of the request that ended period i.
    """

    starts: Floats
    gaps: Floats
    busy: Floats  # from the first request since the last idle period to this one's start
    requests: NDArray[np.int64]  # in that time
    arrivals: Floats
    ending: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LastPeriod:
    """What follows the last request: an idle period that the horizon ends. `gap` 0: none is left."""

    start: float
    gap: float
    busy: float
    requests: int


class Splitter:
    """Finds the idle periods of one trace."""

    def __init__(self, horizon: float | None, *, own_ends: bool) -> None:
        """`horizon` in seconds, None: given at the end; `own_ends`: the paper's way."""
        self.requests = 0
        self.beyond = 0  # arrivals after the horizon, left out
        self.first_arrival = math.nan
        self.busy_seconds = 0.0
        self.negative_seconds = 0.0  # of the paper's gaps; at most 0
        self.last_end = 0.0
        self._horizon, self._own_ends = horizon, own_ends
        self._end = math.nan  # of what was served so far, by either way
        self._busy_since, self._busy_requests = 0.0, 0

    def feed(self, chunk: Chunk) -> IdlePeriods:
        """The idle periods that requests of this chunk ended."""
        arrivals, services = chunk.arrivals, chunk.services
        if self._horizon is not None and len(arrivals) and arrivals[-1] >= self._horizon:
            inside = int(np.searchsorted(arrivals, self._horizon, "left"))
            self.beyond += len(arrivals) - inside
            arrivals, services = arrivals[:inside], services[:inside]
        if not len(arrivals):
            none, no_index = np.empty(0), np.empty(0, np.int64)
            return IdlePeriods(none, none, none, no_index, none, no_index)
        ends = arrivals + services
        self.last_end = max(self.last_end, float(ends.max()))
        if not self.requests:
            self.first_arrival = self._busy_since = float(arrivals[0])
        before = math.nan if not self.requests else self._end
        if not self._own_ends:
            ends = np.maximum.accumulate(ends)
            if self.requests:
                ends = np.maximum(ends, before)
        earlier = np.concatenate([[before], ends[:-1]])
        gaps = arrivals - earlier  # NaN ahead of the very first request
        ending = np.flatnonzero(gaps > 0)
        if self._own_ends:
            self.negative_seconds += float(gaps[gaps <= 0].sum())
        periods = self._periods(arrivals, earlier, gaps, ending)
        self.requests += len(arrivals)
        self._end = float(ends[-1])
        return periods

    def _periods(
        self, arrivals: Floats, earlier: Floats, gaps: Floats, ending: NDArray[np.int64]
    ) -> IdlePeriods:
        starts = earlier[ending]
        since, counts = np.empty(len(ending)), np.empty(len(ending), np.int64)
        if len(ending):
            since[0], counts[0] = self._busy_since, self._busy_requests + ending[0]
            since[1:], counts[1:] = arrivals[ending[:-1]], np.diff(ending)
            self._busy_since = float(arrivals[ending[-1]])
            self._busy_requests = len(arrivals) - int(ending[-1])
        else:
            self._busy_requests += len(arrivals)
        busy = starts - since
        self.busy_seconds += float(busy.sum())
        return IdlePeriods(starts, gaps[ending], busy, counts, arrivals, ending)

    def finish(self, horizon: float) -> LastPeriod:
        """Up to the horizon, once all chunks were fed; not without a request."""
        end = self._end if self._own_ends else min(self._end, horizon)
        gap, busy = horizon - end, end - self._busy_since
        self.busy_seconds += busy
        if gap < 0:
            self.negative_seconds += gap
        return LastPeriod(end, max(gap, 0.0), busy, self._busy_requests)
