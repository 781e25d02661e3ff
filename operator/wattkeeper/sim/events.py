"""Models that share GPUs, and loads that take time: event by event.

Three kinds of events: a request comes, a model ends its work, an eviction falls due. A GPU draws its
context's power while any model is on it. Models on shared GPUs leave as a group, as the operator has them;
with `Policy.group` off each leaves by its own T*.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from wattkeeper.core.break_even import Accounting, group_break_even
from wattkeeper.sim.arrivals import DAY
from wattkeeper.sim.gpus import Gpu, pulse
from wattkeeper.sim.outcome import WH, Ledger, Outcome
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.power import PowerProfile
from wattkeeper.sim.residents import Residence, Resident, SharedModel

Progress = Callable[[int], None]
_REPORT_EVERY = 4096


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all models of a simulation."""

    policy: Policy
    accounting: Accounting
    horizon: float
    loads_take_time: bool = False

    def __post_init__(self) -> None:
        if self.accounting is Accounting.TOTAL:
            raise ValueError(
                "the published accounting (Total) knows neither shared GPUs nor loads that take time: "
                "use Corrected or Marginal"
            )
        if self.policy.kind is Kind.OPTIMUM:
            raise ValueError("the optimum isn't found event by event")


def simulate(
    models: Sequence[SharedModel],
    rules: Rules,
    *,
    profile: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """One outcome for all the models, which are on the same GPUs or linked through them."""
    return _Simulation(models, rules, profile=profile).run(progress)


class _Simulation:
    def __init__(self, models: Sequence[SharedModel], rules: Rules, *, profile: bool) -> None:
        self._rules = rules
        self._gpus: dict[str, Gpu] = {}
        for model in models:
            figures = model.hardware.figures
            for name in model.gpus:
                gpu = Gpu(figures.bare_watts, figures.context_watts)
                gpu.profile = PowerProfile() if profile else None
                if self._gpus.setdefault(name, gpu).context_watts != figures.context_watts:
                    raise ValueError(f"GPU {name} is given different watts by its models")
        own = [model.hardware.break_even(rules.accounting) for model in models]
        tax = sum(gpu.context_watts - gpu.bare_watts for gpu in self._gpus.values())
        home = group_break_even(own, tax)
        grouped = rules.policy.group and len(models) > 1
        self._residents = [
            Resident(
                model,
                rules.policy,
                break_even,
                home if grouped else break_even.seconds,
                [self._gpus[name] for name in model.gpus],
            )
            for model, break_even in zip(models, own, strict=True)
        ]
        self._ledger = Ledger()
        self._beyond = 0
        self._queue: list[tuple[float, int, Resident | None, tuple[Resident, ...], int]] = []
        self._order = 0

    # ---- the clock ------------------------------------------------------------------------------

    def run(self, progress: Progress | None) -> Outcome:
        horizon = self._rules.horizon
        if self._rules.policy.kind is Kind.NEVER:
            for resident in self._residents:
                self._enter(resident, 0.0)
        done = 0
        for now, index, service in self._requests():
            if now >= horizon:
                self._beyond += 1
                continue
            self._until(now)
            self._request(self._residents[index], now, service)
            done += 1
            if progress is not None and done % _REPORT_EVERY == 0:
                progress(_REPORT_EVERY)
        if progress is not None:
            progress(done % _REPORT_EVERY)
        self._until(horizon)
        return self._outcome()

    def _requests(self) -> Iterator[tuple[float, int, float]]:
        """All models' requests in their order."""

        def of(index: int) -> Iterator[tuple[float, int, float]]:
            for chunk in self._residents[index].model.trace.chunks():
                for at, service in zip(chunk.arrivals.tolist(), chunk.services.tolist(), strict=True):
                    yield at, index, service

        return heapq.merge(*(of(index) for index in range(len(self._residents))))

    def _until(self, now: float) -> None:
        """What happens before `now`: at the very moment a request comes first, as a gap must exceed T."""
        while self._queue and self._queue[0][0] < now:
            at, _, ended, group, stamps = heapq.heappop(self._queue)
            if ended is not None:
                self._work_ended(ended, at)
            elif stamps == sum(member.stamp for member in group):
                self._due(group, at)

    def _plan(self, at: float, ended: Resident | None, group: tuple[Resident, ...] = ()) -> None:
        self._order += 1
        stamps = sum(member.stamp for member in group)
        heapq.heappush(self._queue, (at, self._order, ended, group, stamps))

    # ---- events ---------------------------------------------------------------------------------

    def _request(self, resident: Resident, now: float, service: float) -> None:
        ledger = self._ledger
        parked = resident.residence is Residence.PARKED
        loading = resident.residence is Residence.LOADING and now < resident.ready_at
        ledger.requests += 1
        if parked:
            self._load(resident, now)
        if parked or loading:
            ledger.delayed += 1
            seconds = resident.break_even.load.seconds if parked else resident.ready_at - now
            ledger.waited_seconds += seconds
        resident.requested(now, delayed=parked or loading)
        if not resident.working:
            resident.working = True
            for gpu in resident.gpus:
                gpu.begin_work(now)
        resident.busy_until = max(resident.busy_until, max(now, resident.ready_at) + service)
        if not resident.watched:
            resident.watched = True
            self._plan(resident.busy_until, resident)

    def _load(self, resident: Resident, now: float) -> None:
        hot = any(gpu.contexts for gpu in resident.gpus)
        joules = resident.model.hardware.load_joules(self._rules.accounting)
        resident.ready_at = now
        if self._rules.loads_take_time:
            seconds = resident.break_even.load.seconds
            resident.ready_at = now + seconds
            # From now on the GPUs draw their context's power: the load is charged what it takes beyond.
            hardware = resident.model.hardware
            marginal = self._rules.accounting is Accounting.MARGINAL
            joules -= (hardware.tax_watts if marginal else hardware.context_watts) * seconds
            joules *= min(1.0, (self._rules.horizon - now) / seconds)
            if hot:  # and what neighbours cause isn't credited to it
                joules = max(0.0, joules)
        self._enter(resident, now)
        resident.residence = Residence.LOADING
        self._ledger.cold_starts += 1
        self._ledger.load_joules += joules
        pulse(resident.gpus, now, joules)

    def _enter(self, resident: Resident, now: float) -> None:
        resident.residence = Residence.LOADED
        for gpu in resident.gpus:
            gpu.take_context(now)

    def _work_ended(self, resident: Resident, now: float) -> None:
        resident.watched = False
        if resident.busy_until > now:
            resident.watched = True
            self._plan(resident.busy_until, resident)
            return
        resident.residence, resident.working = Residence.LOADED, False
        for gpu in resident.gpus:
            gpu.end_work(now)
        resident.became_idle(now)
        self._consider(self._group(resident), now)

    def _consider(self, group: tuple[Resident, ...], now: float) -> None:
        """Plan the eviction of models that are all idle."""
        if any(member.working or not member.may_wait for member in group):
            return
        due = self._due_at(group, now)
        if any(member.budget is not None for member in group):
            # Its budget asks for another timeout once the day changes.
            starts_at = group[0].model.trace.starts_at
            midnight = ((now + starts_at) // DAY + 1) * DAY - starts_at
            due = min(due, midnight) if due > now else now
        if due < math.inf:
            self._plan(max(due, now), None, group)

    def _due(self, group: tuple[Resident, ...], now: float) -> None:
        if len(self._group(group[0])) > len(group):
            return  # another has joined it since: what they do together is decided when that one is idle
        if self._due_at(group, now) > now:  # a budget asks for more than when it was planned
            self._consider(group, now)
            return
        self._evict(group, now)

    def _evict(self, group: tuple[Resident, ...], now: float) -> None:
        for member in group:
            member.residence = Residence.PARKED
            member.stamp += 1
            for gpu in member.gpus:
                gpu.drop_context(now)

    def _due_at(self, group: tuple[Resident, ...], now: float) -> float:
        held = {id(gpu): gpu for member in group for gpu in member.gpus}
        watts = sum(gpu.context_watts - gpu.bare_watts for gpu in held.values())
        t_star = group_break_even([member.break_even for member in group], watts)
        timeout = max(member.timeout_seconds(t_star, now) for member in group)
        return max(member.idle_since or 0.0 for member in group) + timeout

    def _group(self, resident: Resident) -> tuple[Resident, ...]:
        """The loaded models that are linked with it through GPUs, itself among them."""
        if not self._rules.policy.group or len(self._residents) == 1:
            return (resident,)
        found, gpus = [resident], {id(gpu) for gpu in resident.gpus}
        others = [
            each
            for each in self._residents
            if each is not resident and each.residence is not Residence.PARKED
        ]
        while linked := [each for each in others if any(id(gpu) in gpus for gpu in each.gpus)]:
            found.extend(linked)
            gpus.update(id(gpu) for each in linked for gpu in each.gpus)
            others = [each for each in others if each not in linked]
        return tuple(found)

    # ---- the end --------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        horizon, ledger = self._rules.horizon, self._ledger
        for gpu in self._gpus.values():
            gpu.finish(horizon)
            ledger.service_joules += gpu.working_seconds * gpu.context_watts
            ledger.kept_joules += (gpu.hot_seconds - gpu.working_seconds) * gpu.context_watts
            ledger.parked_joules += (horizon - gpu.hot_seconds) * gpu.bare_watts
        profiles = [gpu.profile for gpu in self._gpus.values() if gpu.profile is not None]
        seconds = {each.break_even.seconds for each in self._residents}
        kinds = {each.model.hardware.gpu for each in self._residents}
        return Outcome(
            ", ".join(each.model.name for each in self._residents),
            kinds.pop() if len(kinds) == 1 else "several",
            self._rules.policy.label,
            self._rules.accounting,
            horizon,
            sum(gpu.context_watts for gpu in self._gpus.values()) * horizon / WH,
            sum(gpu.bare_watts for gpu in self._gpus.values()) * horizon / WH,
            sum(each.model.hardware.tax_watts for each in self._residents) * horizon / WH,
            ledger,
            seconds.pop() if len(seconds) == 1 else None,
            profile=PowerProfile.total(profiles) if profiles else None,
            beyond=self._beyond,
        )
