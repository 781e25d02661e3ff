"""The load levels that Watt Counts measured: a full queue, and two Poisson rates."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """A measured load; the value is the code that recipes see."""

    OFFLINE = 0
    LOW = 1
    HIGH = 2

    @property
    def requests_per_second(self) -> float | None:
        """The nominal Poisson rate, None for a queue that is never empty."""
        return _RATES[self]


_RATES = {Level.OFFLINE: None, Level.LOW: 0.017, Level.HIGH: 0.33}
_BOUNDARY = 0.2


def level_of_rate(requests_per_second: float | None) -> Level:
    """The level a measured run belongs to (the boundary is WattGPU's)."""
    if requests_per_second is None:
        return Level.OFFLINE
    return Level.LOW if requests_per_second < _BOUNDARY else Level.HIGH
