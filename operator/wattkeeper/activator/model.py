"""One model as this activator sees it: its route, who waits, what is under way, which pods are away."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from wattkeeper.activator.demand import DemandSignal
from wattkeeper.activator.exchange import Exchange
from wattkeeper.activator.metrics import ModelMetrics
from wattkeeper.activator.ports import Leader
from wattkeeper.activator.settings import ActivatorSettings
from wattkeeper.activator.waiting_room import Budget, Ticket, WaitingRoom
from wattkeeper.core.activation import (
    Address,
    ColdStarts,
    Course,
    QueueFull,
    Route,
    Standing,
    course,
    least_loaded,
    retry_after_seconds,
    suspect_seconds,
)
from wattkeeper.core.parking_states import ActivatorMode, ParkState
from wattkeeper.core.refusals import Refusal, Why

#: Cold starts that are remembered here, besides those that the operator tells.
_REMEMBERED = 20
#: A request that couldn't wait is told to the leader for so long: two of its signals. Seconds.
_REFUSED_DEMAND_SECONDS = 2.0
_COLD = frozenset({ParkState.PARKED, ParkState.WAKING})


@dataclass(slots=True)
class _Suspect:
    """A target that couldn't be reached."""

    failures: int
    until: float


@dataclass(frozen=True, slots=True)
class Shared:
    """What all models of a process share."""

    settings: ActivatorSettings
    budget: Budget
    leader: Leader
    changed: Callable[[], None]  # to be called when something has happened that the leader waits for


class Model:
    """State of one model. `update` and every method run to their end without a pause: no event is missed."""

    def __init__(self, route: Route, shared: Shared, metrics: ModelMetrics) -> None:
        self.route = route
        self.metrics = metrics
        self.gone = False
        self.in_flight: Counter[Address] = Counter()
        self.requests_seen = 0
        self.room = WaitingRoom(route.limits, shared.budget)
        self._changed = shared.changed
        self._loop = asyncio.get_running_loop()
        self._suspects: dict[Address, _Suspect] = {}
        self._turn = 0
        self._retry: asyncio.TimerHandle | None = None
        self._wake_began: float | None = None  # the first request that couldn't be forwarded
        self._cold = False  # since then the model was seen parked or waking
        self._cold_starts: deque[float] = deque(maxlen=_REMEMBERED)
        self._refused_until = 0.0
        self._demand = DemandSignal(
            route.model, shared.leader, shared.settings, self._wanted_epoch, metrics.demand_failed.inc
        )

    # What is told from outside.

    def update(self, route: Route) -> None:
        """A newer route of the same model."""
        before, self.route = self.route, route
        self.room.limits = route.limits
        self._suspects = {a: s for a, s in self._suspects.items() if a in route.targets}
        self.reconsider()
        if self.room and route.epoch != before.epoch:
            self._demand.raise_()
        if route.mode is ActivatorMode.HOLD and before.mode is not ActivatorMode.HOLD:
            self._changed()

    def end(self) -> None:
        """The model is gone: nobody need wait any longer."""
        self.gone = True
        self.room.call_all(gone())
        self._demand.stop()
        if self._retry is not None:
            self._retry.cancel()

    def reconsider(self) -> None:
        """Let go on whom the route, or a pod that may be tried again, allows to."""
        now = self._loop.time()
        if self._wake_began is not None and self.route.state in _COLD:
            self._cold = True
        match self.course():
            case Course.FORWARD:
                if self._wake_began is not None and self._cold:
                    self._cold_starts.append(now - self._wake_began)
                    self.metrics.cold_start_seconds.observe(now - self._wake_began)
                self._wake_began, self._cold = None, False
                self.room.call_all()
            case Course.REFUSE:
                self.room.call_all(self.refusal_for_obstacle())
            case Course.HOLD:
                pass

    # What a request asks.

    def course(self) -> Course:
        return course(self.route, len(self.reachable()))

    def reachable(self) -> Sequence[Address]:
        """Targets, without those that couldn't be reached just now."""
        if not self._suspects:
            return self.route.targets
        now = self._loop.time()
        return [a for a in self.route.targets if a not in self._suspects or self._suspects[a].until <= now]

    def choose(self, tried: Collection[Address]) -> Address | None:
        """The target for a request; None when there is none that wasn't tried."""
        if self.route.mode is ActivatorMode.HOLD:
            return None
        self._turn += 1
        return least_loaded(self.reachable(), self.in_flight, tried, self._turn)

    @contextmanager
    def forwarding(self, address: Address) -> Iterator[None]:
        """Counted as in flight at this target."""
        self.in_flight[address] += 1
        try:
            yield
        finally:
            self.in_flight[address] -= 1
            if self.in_flight[address] == 0:
                del self.in_flight[address]
                if self.route.mode is ActivatorMode.HOLD and not self.in_flight:
                    self._changed()

    def reached(self, address: Address) -> None:
        if self._suspects:
            self._suspects.pop(address, None)

    def not_reached(self, address: Address) -> None:
        """Leave the target out for a while; whoever waits then is called again."""
        suspect = self._suspects.setdefault(address, _Suspect(0, 0.0))
        suspect.failures += 1
        suspect.until = self._loop.time() + suspect_seconds(suspect.failures)
        self.metrics.connect_failures.inc()
        if self._retry is None or self._retry.when() > suspect.until or self._retry.cancelled():
            self._retry_at(suspect.until)

    def _retry_at(self, when: float) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_at(when, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        now = self._loop.time()
        self.reconsider()
        waiting = [s.until for s in self._suspects.values() if s.until > now]
        if waiting:
            self._retry_at(min(waiting))

    def seen(self) -> None:
        """A request that is traffic has come."""
        self.requests_seen += 1
        if self.route.mode is ActivatorMode.FORWARD_WITHDRAWN:
            self._changed()

    # Waiting.

    async def wait(self, exchange: Exchange, comment_seconds: float | None) -> Refusal | None:
        """Wait until the request may go on (None), or shan't (why).

        From the look at the route to the place in the room nothing else runs, so no change is missed.
        """
        with self.room.place(exchange) as ticket:
            self._demanded(burst=self.room.held.requests == 1)
            if isinstance(ticket, QueueFull):
                self._refused_until = self._loop.time() + _REFUSED_DEMAND_SECONDS
                return self.refusal_for_full(ticket)
            exchange.wait_in(self)
            try:
                return await self._call(exchange, ticket, comment_seconds)
            finally:
                exchange.wait_in(None)

    async def _call(
        self, exchange: Exchange, ticket: Ticket, comment_seconds: float | None
    ) -> Refusal | None:
        deadline = exchange.arrived + self.route.limits.timeout_seconds
        while True:
            left = deadline - self._loop.time()
            step = left if comment_seconds is None else min(left, comment_seconds)
            done, _ = await asyncio.wait([ticket.call], timeout=max(0.0, step))
            if done:
                return ticket.call.result()
            if step == left:
                return self._refusal(
                    Why.WAKE_TIMEOUT,
                    f"{self.route.model} didn't wake within {self.route.limits.timeout_seconds:g} s",
                )
            exchange.comment()

    def grow(self, exchange: Exchange, size_bytes: int) -> Refusal | None:
        full = self.room.grow(exchange, size_bytes)
        return None if full is None else self.refusal_for_full(full)

    def demand_refused(self) -> None:
        """A request was refused that would have waited: the leader hears of it nevertheless."""
        self._refused_until = self._loop.time() + _REFUSED_DEMAND_SECONDS
        self._demanded(burst=False)

    def _demanded(self, *, burst: bool) -> None:
        burst = burst or not self._demand.running
        # What an earlier demand began counts on only if it has led to a wake.
        if self._wake_began is None or (burst and self.route.state is not ParkState.WAKING):
            self._wake_began = self._loop.time()
            self._cold = self.route.state in _COLD
        if burst:
            self._demand.raise_()

    def _wanted_epoch(self) -> int | None:
        if self.gone or self.course() is Course.FORWARD:
            return None
        return self.route.epoch if self.room or self._loop.time() < self._refused_until else None

    # What is told.

    def standing(self, *, listening: bool) -> Standing:
        route = self.route
        return Standing(
            model=route.model,
            epoch=route.epoch,
            mode=route.mode,
            listening=listening,
            in_flight=self.in_flight.total(),
            held=self.room.held,
            requests_seen=self.requests_seen,
        )

    def refusal_for_full(self, full: QueueFull) -> Refusal:
        why = Why.QUEUE_FULL if full is QueueFull.REQUESTS else Why.QUEUE_BYTES
        return self._refusal(why, f"{self.route.model} is waking, and no more may wait ({full.value})")

    def refusal_for_obstacle(self) -> Refusal:
        obstacle = self.route.obstacle
        reason = "" if obstacle is None else f": {obstacle.reason}: {obstacle.message}"
        return self._refusal(Why.WAKE_IMPOSSIBLE, f"{self.route.model} can't be woken for now{reason}")

    def refusal_for_shutdown(self) -> Refusal:
        return Refusal(Why.SHUTTING_DOWN, f"this activator ends; {self.route.model} goes on waking", 1)

    def _refusal(self, why: Why, message: str) -> Refusal:
        known: ColdStarts = self.route.cold_starts
        if not known.seconds:
            known = replace(known, seconds=tuple(self._cold_starts))
        began = self._wake_began
        elapsed = 0.0 if began is None else self._loop.time() - began
        return Refusal(why, message, retry_after_seconds(known, elapsed))


def gone() -> Refusal:
    """What requests to a model get that isn't served here any more."""
    return Refusal(Why.MODEL_NOT_FOUND, "the model that was served here is gone")
