"""One model in an event-driven simulation: what it does, and the timeout that its policy wants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from wattkeeper.core import adaptive
from wattkeeper.core.adaptive import AdaptiveState, Proposal
from wattkeeper.core.break_even import BreakEven
from wattkeeper.core.eviction import own_timeout_seconds
from wattkeeper.core.waiting_budget import WaitingBudget, note_request, waiting_timeout_seconds
from wattkeeper.sim.arrivals import Trace
from wattkeeper.sim.gpus import Gpu
from wattkeeper.sim.hardware import Hardware
from wattkeeper.sim.policies import Kind, Policy


@dataclass(frozen=True, slots=True)
class SharedModel:
    """A model, its requests and the GPUs it holds, by name; others may hold them too."""

    name: str
    trace: Trace
    hardware: Hardware
    gpus: tuple[str, ...]


class Residence(Enum):
    PARKED = 0
    LOADING = 1
    LOADED = 2


class Resident:
    """A model as the simulation goes on. Times are seconds since its start."""

    def __init__(
        self,
        model: SharedModel,
        policy: Policy,
        break_even: BreakEven,
        home_break_even: float,
        gpus: list[Gpu],
    ) -> None:
        """`home_break_even`: T* of all that share its GPUs, by which the adaptive policy measures gaps."""
        self.model, self.policy, self.break_even, self.gpus = model, policy, break_even, gpus
        self.residence = Residence.PARKED
        self.ready_at = 0.0
        self.busy_until = 0.0
        self.busy_since = 0.0
        self.busy_requests = 0
        self.idle_since: float | None = None  # kept while parked: the gap ends with the next request
        self.working = False  # from a request, through a load, to the end of the last one's service
        self.watched = False  # an event at its end of work is due
        self.stamp = 0  # changes with everything that makes a planned eviction void
        learns = policy.kind is Kind.ADAPTIVE and 0 < home_break_even < math.inf
        self._home = home_break_even
        self._learnt: AdaptiveState | None = adaptive.initial() if learns else None
        self._proposal: Proposal | None = None
        self.budget = WaitingBudget(policy.max_delayed) if policy.max_delayed is not None else None

    def requested(self, now: float, *, delayed: bool) -> None:
        """A request came; learn from the gap that it ended, if it did."""
        gap = None if self.idle_since is None else now - self.idle_since
        if gap is not None and self._learnt is not None and self._proposal is not None:
            since = (self.idle_since or 0.0) + self.model.trace.starts_at
            self._learnt = adaptive.observe(self._learnt, self._proposal, gap / self._home, since)
        if self.budget is not None:
            self.budget = note_request(self.budget, self._clock(now), gap, delayed)
        if gap is not None or not self.busy_requests:
            self.busy_since, self.busy_requests = now, 0
        self.busy_requests += 1
        self.idle_since = None
        self.stamp += 1

    def became_idle(self, now: float) -> None:
        self.idle_since = now
        self.stamp += 1
        if self._learnt is not None:
            busy = (now - self.busy_since) / self._home
            self._proposal = adaptive.propose(self._learnt, self._clock(now), busy, self.busy_requests)

    @property
    def may_wait(self) -> bool:
        """Whether the next request may be kept waiting."""
        return self.budget is None or self.budget.may_evict

    def timeout_seconds(self, group_break_even: float, now: float) -> float:
        """What its rules ask for, given T* of the models that would leave with it."""
        proposed = self._proposal.timeout if self._proposal is not None else None
        waiting = 0.0 if self.budget is None else waiting_timeout_seconds(self.budget, self._clock(now))
        return own_timeout_seconds(self.policy.rules, group_break_even, proposed, waiting)

    def _clock(self, now: float) -> float:
        return now + self.model.trace.starts_at
