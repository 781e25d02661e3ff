"""The timeouts of one model under one policy, for many idle periods at once; the core decides."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from wattkeeper.core import adaptive
from wattkeeper.core.adaptive_replay import Gaps, replay
from wattkeeper.core.eviction import own_timeout_seconds
from wattkeeper.core.waiting_replay import WaitingReplay
from wattkeeper.sim.arrivals import Floats
from wattkeeper.sim.idle_periods import IdlePeriods, LastPeriod
from wattkeeper.sim.policies import Kind, Policy

_AT_ONCE = 512  # gaps whose tables stay in the processor's cache


class Timeouts(Protocol):
    """Seconds after which each idle period would end in an eviction. Periods come in order, each once."""

    def ended(self, periods: IdlePeriods) -> Floats:
        """For periods that a request ended; learns from them."""

    def last(self, period: LastPeriod) -> float:
        """For the period that the horizon ends."""


class Constant:
    """Never, BreakEven, Fixed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def ended(self, periods: IdlePeriods) -> Floats:
        return np.full(len(periods.gaps), self._seconds)

    def last(self, period: LastPeriod) -> float:
        return self._seconds


class Clairvoyant:
    """Evicts at once where the gap will cost more than the load, and keeps otherwise."""

    def __init__(self, worth_seconds: float) -> None:
        """`worth_seconds`: what a load costs, in seconds of the tax."""
        self._worth = worth_seconds

    def ended(self, periods: IdlePeriods) -> Floats:
        return np.where(periods.gaps > self._worth, 0.0, math.inf)

    def last(self, period: LastPeriod) -> float:
        return 0.0


class Adaptive:
    """`core/adaptive.py`, many gaps at a time."""

    def __init__(self, break_even_seconds: float, starts_at: float, min_idle_seconds: float) -> None:
        self._seconds, self._starts_at, self._least = break_even_seconds, starts_at, min_idle_seconds
        self._state = adaptive.initial()

    def ended(self, periods: IdlePeriods) -> Floats:
        timeouts = np.empty(len(periods.gaps))
        for first in range(0, len(timeouts), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            gaps = Gaps(
                periods.gaps[part] / self._seconds,
                periods.starts[part] + self._starts_at,
                periods.busy[part] / self._seconds,
                periods.requests[part],
            )
            timeouts[part], self._state = replay(self._state, gaps)
        return np.maximum(timeouts * self._seconds, self._least)

    def last(self, period: LastPeriod) -> float:
        proposal = adaptive.propose(
            self._state, period.start + self._starts_at, period.busy / self._seconds, period.requests
        )
        return max(proposal.timeout * self._seconds, self._least)


class Budgeted:
    """A budget for waiting around another policy. The first request finds no model loaded and waits."""

    def __init__(self, inner: Timeouts, share: float, starts_at: float) -> None:
        self._inner, self._starts_at = inner, starts_at
        self._budget = WaitingReplay(share)
        self._begun = False

    def ended(self, periods: IdlePeriods) -> Floats:
        asked = self._inner.ended(periods).tolist()
        arrivals = (periods.arrivals + self._starts_at).tolist()
        starts, gaps = (periods.starts + self._starts_at).tolist(), periods.gaps.tolist()
        found, noted = np.empty(len(gaps)), 0
        for i, (request, start, gap) in enumerate(zip(periods.ending.tolist(), starts, gaps, strict=True)):
            self._note(arrivals[noted:request])
            found[i] = timeout = self._budget.timeout_seconds(start, gap, asked[i])
            self._budget.note_request(arrivals[request], gap, gap > timeout)
            noted = request + 1
        self._note(arrivals[noted:])
        return found

    def _note(self, arrivals: list[float]) -> None:
        for at in arrivals:
            self._budget.note_request(at, None, not self._begun)
            self._begun = True

    def last(self, period: LastPeriod) -> float:
        asked = self._inner.last(period)
        return self._budget.timeout_seconds(period.start + self._starts_at, period.gap, asked)


def timeouts_for(
    policy: Policy, break_even_seconds: float, worth_seconds: float, starts_at: float
) -> Timeouts:
    """A policy's timeouts for a model alone on its GPUs.

    `worth_seconds` is what a load is charged, in seconds of the tax: T* but for accountings that charge
    something else than T* counts on.
    """
    if policy.kind is Kind.OPTIMUM:
        return Clairvoyant(worth_seconds)
    learns = policy.kind is Kind.ADAPTIVE and 0 < break_even_seconds < math.inf
    inner: Timeouts = (
        Adaptive(break_even_seconds, starts_at, policy.min_idle_seconds)
        if learns
        else Constant(own_timeout_seconds(policy.rules, break_even_seconds))
    )
    if policy.max_delayed is None or policy.kind is Kind.NEVER:
        return inner
    return Budgeted(inner, policy.max_delayed, starts_at)
