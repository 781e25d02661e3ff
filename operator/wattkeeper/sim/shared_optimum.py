"""The clairvoyant optimum of models that share all their GPUs: the least that leaving as a group can cost.

When the GPUs are idle the loaded models may leave together; each that is requested again costs a load. What
an eviction costs depends on when the last one was: only models requested since are loaded. So with P(i) the
cost of keeping the context through the first i idle periods, and L(i, j) the loads of the models requested
between the evictions i and j, the best way to evict at j costs

    f(j) = min over i < j of f(i) − P(i) + P(j − 1) + L(i, j).

L changes only where i passes a model's last request, so a few minima over suffixes are enough.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wattkeeper.core.break_even import Accounting
from wattkeeper.sim.outcome import WH, Ledger, Outcome
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.residents import SharedModel


@dataclass(frozen=True, slots=True)
class _Plan:
    """The cheapest way so far that ends with an eviction: joules above bare while idle, and its loads."""

    joules: float
    load_joules: float
    loads: int
    waited_seconds: float


class _Minima:
    """Least value of any suffix of a growing sequence."""

    def __init__(self) -> None:
        self._indices: list[int] = []
        self._values: list[float] = []

    def append(self, index: int, value: float) -> None:
        while self._values and self._values[-1] >= value:
            self._values.pop()
            self._indices.pop()
        self._indices.append(index)
        self._values.append(value)

    def since(self, index: int) -> tuple[int, float]:
        """The least value at `index` or later, and where."""
        place = bisect_left(self._indices, index)
        return self._indices[place], self._values[place]


def optimum(models: Sequence[SharedModel], accounting: Accounting, horizon: float) -> Outcome | None:
    """The optimum's outcome; None where the models don't all hold the same GPUs."""
    if len({frozenset(model.gpus) for model in models}) > 1:
        return None
    hardware = models[0].hardware
    busy = 0.0
    requests = 0
    ledger = Ledger()
    search = _Search(models, accounting)
    end: float | None = None
    for now, index, service in _requests(models):
        if now >= horizon:
            break
        requests += 1
        if end is None:
            search.lead_in()
        elif now > end:
            search.idle(now - end)
        busy += max(0.0, min(now + service, horizon) - max(now, end or 0.0))
        search.requested(index)
        end = max(end or 0.0, now + service)
    # After the last request leaving at once costs nothing.
    best = search.evicted_now() if end is not None else _Plan(0.0, 0.0, 0, 0.0)
    kept_joules = best.joules - best.load_joules  # of the tax
    kept_seconds = kept_joules / hardware.tax_watts if hardware.tax_watts > 0 else 0.0
    ledger.requests, ledger.cold_starts, ledger.delayed = requests, best.loads, best.loads
    ledger.waited_seconds, ledger.load_joules = best.waited_seconds, best.load_joules
    ledger.service_joules = busy * hardware.context_watts
    ledger.kept_joules = kept_seconds * hardware.context_watts
    ledger.parked_joules = (horizon - busy - kept_seconds) * hardware.bare_watts
    return Outcome(
        ", ".join(model.name for model in models),
        hardware.gpu,
        Policy(Kind.OPTIMUM).label,
        accounting,
        horizon,
        horizon * hardware.context_watts / WH,
        horizon * hardware.bare_watts / WH,
        sum(model.hardware.tax_watts for model in models) * horizon / WH,
        ledger,
        None,
    )


def _requests(models: Sequence[SharedModel]) -> Iterator[tuple[float, int, float]]:
    def of(index: int) -> Iterator[tuple[float, int, float]]:
        for chunk in models[index].trace.chunks():
            for at, service in zip(chunk.arrivals.tolist(), chunk.services.tolist(), strict=True):
                yield at, index, service

    return heapq.merge(*(of(index) for index in range(len(models))))


class _Search:
    """Dynamic programming over the idle periods. Period 0 is the lead-in, before which nothing is loaded."""

    def __init__(self, models: Sequence[SharedModel], accounting: Accounting) -> None:
        self._loads = [model.hardware.load_joules(accounting) for model in models]
        self._seconds = [model.hardware.load.seconds for model in models]
        self._tax = models[0].hardware.tax_watts
        self._plans: list[_Plan] = []
        self._minima = _Minima()
        self._kept = 0.0  # P: joules of the tax if every idle period so far was kept
        self._last_request = [-1] * len(models)  # idle periods that had ended by then

    def lead_in(self) -> None:
        self._plans.append(_Plan(0.0, 0.0, 0, 0.0))
        self._minima.append(0, 0.0)

    def requested(self, model: int) -> None:
        self._last_request[model] = len(self._plans)

    def idle(self, seconds: float) -> None:
        """An idle period that a request ended."""
        plan = self.evicted_now()
        self._kept += self._tax * seconds
        self._plans.append(plan)
        self._minima.append(len(self._plans) - 1, plan.joules - self._kept)

    def evicted_now(self) -> _Plan:
        """The cheapest plan that evicts in the idle period that begins now."""
        order = sorted(range(len(self._loads)), key=lambda model: -self._last_request[model])
        best, chosen, best_loaded = math.inf, 0, 0
        joules = 0.0
        for place, model in enumerate(order):
            if self._last_request[model] < 0:
                break
            joules += self._loads[model]
            following = order[place + 1] if place + 1 < len(order) else None
            # Evicted in period i, the models requested from then on are those with a last request > i.
            first = max(0, self._last_request[following]) if following is not None else 0
            if first >= len(self._plans):
                continue
            index, value = self._minima.since(first)
            if value + joules < best:
                best, chosen, best_loaded = value + joules, index, place + 1
        before = self._plans[chosen]
        loaded = [model for model in order[:best_loaded] if self._last_request[model] > chosen]
        return _Plan(
            best + self._kept,
            before.load_joules + sum(self._loads[model] for model in loaded),
            before.loads + len(loaded),
            before.waited_seconds + sum(self._seconds[model] for model in loaded),
        )
