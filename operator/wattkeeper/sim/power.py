"""Power over time, as mean watts in steps of equal length."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from wattkeeper.sim.arrivals import Floats

STEP_SECONDS = 300.0


class PowerProfile:
    """Joules in each step."""

    def __init__(self, step_seconds: float = STEP_SECONDS) -> None:
        self.step_seconds = step_seconds
        self._joules = np.zeros(0)

    @property
    def watts(self) -> Floats:
        """Mean power of each step."""
        return self._joules / self.step_seconds

    def hold(self, starts: Floats, durations: Floats, watts: float) -> None:
        """Add constant power over spans that don't overlap, in their order."""
        used = durations > 0
        starts, durations = starts[used], durations[used]
        if not len(starts):
            return
        ends = starts + durations
        first, last = int(starts[0] // self.step_seconds), math.ceil(ends[-1] / self.step_seconds)
        self._reach(last)
        edges = np.arange(first, last + 1) * self.step_seconds
        times = np.column_stack([starts, ends]).ravel()
        spent = np.cumsum(durations) * watts
        joules = np.column_stack([np.concatenate([[0.0], spent[:-1]]), spent]).ravel()
        self._joules[first:last] += np.diff(np.interp(edges, times, joules))

    def pulse(self, times: Floats, joules: float) -> None:
        """Add energy that is spent at once at each of the times."""
        if not len(times):
            return
        steps = (times // self.step_seconds).astype(np.int64)
        self._reach(int(steps.max()) + 1)
        np.add.at(self._joules, steps, joules)

    def _reach(self, steps: int) -> None:
        if steps > len(self._joules):
            self._joules = np.concatenate([self._joules, np.zeros(steps - len(self._joules))])

    @classmethod
    def total(cls, profiles: Iterable[PowerProfile]) -> PowerProfile:
        """Several profiles of one step together."""
        found = list(profiles)
        result = cls(found[0].step_seconds)
        for each in found:
            result._reach(len(each._joules))
            result._joules[: len(each._joules)] += each._joules
        return result
