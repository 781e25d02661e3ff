"""The budget for waiting over many requests, for simulations: the same decisions as request by request.

`core/waiting_budget.py` sums its histograms whenever it is asked; here the sum is kept up to date, and a
pointer stays at the gap that the budget has no room for.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from wattkeeper.core.waiting_budget import (
    CAP_DAYS,
    CAUTIOUS_SECONDS,
    DAY,
    FEW,
    WINDOW_DAYS,
    WaitingBudget,
    bin_seconds,
    gap_bin,
)


@dataclass(slots=True)
class _Day:
    number: int
    requests: int = 0
    gaps: dict[int, int] = field(default_factory=dict)


class WaitingReplay:
    """One model's budget as its requests come. Times are Unix seconds and never go back."""

    def __init__(self, share: float) -> None:
        self.share = WaitingBudget(share).share  # checks it
        self.tokens = 1.0
        self._days: deque[_Day] = deque()
        self._requests = 0
        self._counts: list[int] = []  # gaps of all days, by bin
        self._pointer, self._above = -1, 0  # gaps in bins above the pointer

    def timeout_seconds(self, idle_since: float, gap: float, energy_timeout: float) -> float:
        """When the model would be evicted after `idle_since` if the gap lasts; infinite without a token.

        The budget's own limit changes at midnight, when the window moves: the first moment counts at which
        the model has been idle for as long as it asks then.
        """
        if self.tokens < 1.0:
            return math.inf
        day, earliest = int(idle_since // DAY), 0.0
        while True:
            timeout = max(energy_timeout, self._limit(day), earliest)
            midnight = (day + 1) * DAY - idle_since
            if timeout < midnight or gap <= midnight or timeout == math.inf:
                return timeout
            day, earliest = day + 1, midnight

    def note_request(self, at: float, idle_seconds: float | None, delayed: bool) -> None:
        """As `waiting_budget.note_request`."""
        number = int(at // DAY)
        self._move_to(number)
        if not self._days or self._days[-1].number < number:
            self._days.append(_Day(number))
        today = self._days[-1]
        today.requests += 1
        self._requests += 1
        if idle_seconds is not None and idle_seconds > 0:
            key = gap_bin(idle_seconds)
            today.gaps[key] = today.gaps.get(key, 0) + 1
            if key >= len(self._counts):
                self._counts.extend([0] * (key + 1 - len(self._counts)))
            self._counts[key] += 1
            self._above += key > self._pointer
        recent = sum(day.requests for day in self._days if number - day.number < CAP_DAYS)
        cap = max(4.0, self.share * recent)
        self.tokens = min(cap, self.tokens + self.share) - (1.0 if delayed else 0.0)

    def _move_to(self, number: int) -> None:
        while self._days and number - self._days[0].number > WINDOW_DAYS:
            gone = self._days.popleft()
            self._requests -= gone.requests
            for key, count in gone.gaps.items():
                self._counts[key] -= count
                self._above -= count * (key > self._pointer)

    def _limit(self, day: int) -> float:
        """`waiting_budget.waiting_timeout_seconds` on that day."""
        self._move_to(day)
        allowed = math.floor(self.share * self._requests)
        while self._above > allowed:
            self._pointer += 1
            self._above -= self._counts[self._pointer]
        while self._pointer >= 0 and self._above + self._counts[self._pointer] <= allowed:
            self._above += self._counts[self._pointer]
            self._pointer -= 1
        timeout = bin_seconds(self._pointer) if self._pointer >= 0 else 0.0
        return max(timeout, CAUTIOUS_SECONDS / (1 + allowed)) if allowed < FEW else timeout
