"""A budget for waiting: at most a share δ of the requests may meet a cold start.

Users feel cold starts, not watts. Two limits keep the share: a timeout long enough that only the rarest gaps
of the last seven days would have been longer, and tokens, of which every request earns δ and every delayed
one costs 1; without a whole token nothing is evicted. Gaps are kept as a histogram a day, so the memory
doesn't grow with traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DAY = 86_400.0
WINDOW_DAYS = 7
CAP_DAYS = 3
# With hardly any requests to learn from, a timeout no shorter than this over the number of allowed waits.
CAUTIOUS_SECONDS = 1800.0
FEW = 3
# Histogram of gaps: each bin's upper edge is 5 % above the one before, from one second on.
_STEP = math.log(1.05)


@dataclass(frozen=True, slots=True)
class Day:
    """One day's requests: how many, and the gaps before them by bin."""

    number: int
    requests: int
    gaps: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class WaitingBudget:
    """What is remembered of one model's requests, and the tokens left."""

    share: float  # δ
    tokens: float = 1.0
    days: tuple[Day, ...] = ()  # oldest first, WINDOW_DAYS + today at most

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"maxDelayedRequests must be above 0 % and at most 100 %, got {self.share:.1%}")

    @property
    def may_evict(self) -> bool:
        """Whether the next request may be kept waiting."""
        return self.tokens >= 1.0


def note_request(
    budget: WaitingBudget, at: float, idle_seconds: float | None, delayed: bool
) -> WaitingBudget:
    """The budget after a request at `at` (Unix seconds) that ended an idle period, if it did (else None)."""
    number = int(at // DAY)
    days = [day for day in budget.days if number - day.number <= WINDOW_DAYS]
    today = days.pop() if days and days[-1].number >= number else Day(number, 0, {})
    gaps = today.gaps
    if idle_seconds is not None and idle_seconds > 0:
        key = gap_bin(idle_seconds)
        gaps = {**gaps, key: gaps.get(key, 0) + 1}
    days.append(Day(today.number, today.requests + 1, gaps))
    recent = sum(day.requests for day in days if number - day.number < CAP_DAYS)
    cap = max(4.0, budget.share * recent)
    tokens = min(cap, budget.tokens + budget.share) - (1.0 if delayed else 0.0)
    return WaitingBudget(budget.share, tokens, tuple(days))


def waiting_timeout_seconds(budget: WaitingBudget, now: float) -> float:
    """The shortest timeout that would have kept the budget over the last seven days.

    K = ⌊δ · requests⌋ waits were allowed, so it is the (K+1)-th largest gap; rounded up by at most 5 %.
    """
    number = int(now // DAY)
    days = [day for day in budget.days if number - day.number <= WINDOW_DAYS]
    allowed = math.floor(budget.share * sum(day.requests for day in days))
    counts: dict[int, int] = {}
    for day in days:
        for key, count in day.gaps.items():
            counts[key] = counts.get(key, 0) + count
    timeout, left = 0.0, allowed
    for key in sorted(counts, reverse=True):
        if left < counts[key]:
            timeout = bin_seconds(key)
            break
        left -= counts[key]
    if allowed < FEW:
        timeout = max(timeout, CAUTIOUS_SECONDS / (1 + allowed))
    return timeout


def to_plain(budget: WaitingBudget) -> dict[str, Any]:
    """As JSON values."""
    return {
        "tokens": round(budget.tokens, 6),
        "days": [
            [day.number, day.requests, [list(pair) for pair in sorted(day.gaps.items())]]
            for day in budget.days
        ],
    }


def from_plain(plain: Mapping[str, Any], share: float) -> WaitingBudget:
    """What `to_plain` gave, under today's share; ValueError where it is of another form."""
    try:
        days = tuple(
            Day(int(number), int(requests), {int(key): int(count) for key, count in gaps})
            for number, requests, gaps in plain["days"]
        )
        return WaitingBudget(share, float(plain["tokens"]), days)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a waiting budget: {error}") from error


def gap_bin(seconds: float) -> int:
    """The histogram's bin of a gap."""
    return math.ceil(math.log(max(seconds, 1.0)) / _STEP)


def bin_seconds(number: int) -> float:
    """A bin's upper edge."""
    return math.exp(number * _STEP)
