"""Models that have their GPUs to themselves and load in no time: idle period by idle period, in arrays.

Between two idle periods nothing depends on what was decided, so the trace is cut into idle periods once and
every policy is asked for the timeout of each. Loads take no time on the timeline, as in seed 002's
simulation; the request that meets one waits for it all the same. For loads that take time see `events`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattkeeper.core.break_even import Accounting
from wattkeeper.sim.arrivals import Chunk, Floats, Trace
from wattkeeper.sim.hardware import Hardware
from wattkeeper.sim.idle_periods import IdlePeriods, LastPeriod, Splitter
from wattkeeper.sim.outcome import WH, Ledger, Outcome
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.power import PowerProfile
from wattkeeper.sim.timeouts import timeouts_for

Progress = Callable[[int], None]  # called with the number of requests just done


@dataclass(frozen=True, slots=True)
class LoneModel:
    """A model with its requests and its GPUs."""

    name: str
    trace: Trace
    hardware: Hardware


def simulate(  # noqa: PLR0913  options by name
    model: LoneModel,
    policies: Sequence[Policy],
    accounting: Accounting,
    horizon: float | None = None,
    *,
    profiles: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """One outcome a policy, from one reading of the trace.

    `horizon` in seconds; None: whole days, as many as the trace needs. Under `Total` each outcome has the
    corrected one beside it.
    """
    published = accounting is Accounting.TOTAL
    passes = [_Pass(model, policies, accounting, horizon, profiles=profiles)]
    if published:
        passes.append(_Pass(model, policies, Accounting.CORRECTED, horizon, profiles=False))
    for chunk in model.trace.chunks():
        for each in passes:
            each.feed(chunk)
        if progress is not None:
            progress(len(chunk.arrivals))
    end = horizon if horizon is not None else model.trace.horizon(passes[-1].splitter.last_end)
    outcomes = passes[0].finish(end)
    if not published:
        return outcomes
    return [replace(each, true=true) for each, true in zip(outcomes, passes[1].finish(end), strict=True)]


class _Pass:
    """All policies of one model under one accounting."""

    def __init__(
        self,
        model: LoneModel,
        policies: Sequence[Policy],
        accounting: Accounting,
        horizon: float | None,
        *,
        profiles: bool,
    ) -> None:
        self.splitter = Splitter(horizon, own_ends=accounting is Accounting.TOTAL)
        self.runs = [_Run(model, policy, accounting, profile=profiles) for policy in policies]

    def feed(self, chunk: Chunk) -> None:
        began = self.splitter.requests == 0
        periods = self.splitter.feed(chunk)
        if began and self.splitter.requests:
            for run in self.runs:
                run.begin(self.splitter.first_arrival)
        for run in self.runs:
            run.take(periods)

    def finish(self, horizon: float) -> list[Outcome]:
        last = self.splitter.finish(horizon) if self.splitter.requests else None
        return [run.finish(self.splitter, last, horizon) for run in self.runs]


class _Run:
    """One policy on one model."""

    def __init__(self, model: LoneModel, policy: Policy, accounting: Accounting, *, profile: bool) -> None:
        self._model, self._policy, self._accounting = model, policy, accounting
        hardware = model.hardware
        self._load_joules = hardware.load_joules(accounting)
        self._load_seconds = hardware.charged_load(accounting).seconds
        self._break_even = hardware.break_even(accounting).seconds
        tax = hardware.tax_watts
        worth = self._load_joules / tax if tax > 0 else math.inf
        self._timeouts = timeouts_for(policy, self._break_even, worth, model.trace.starts_at)
        self._ledger = Ledger()
        self._profile = PowerProfile() if profile else None

    def begin(self, first_arrival: float) -> None:
        """The first request: no model is loaded yet."""
        hardware, published = self._model.hardware, self._accounting is Accounting.TOTAL
        self._cold_start(np.array([first_arrival]))
        if not published:
            self._ledger.parked_joules += first_arrival * hardware.bare_watts
        if self._profile is not None and not published:
            self._profile.hold(np.zeros(1), np.array([first_arrival]), hardware.bare_watts)

    def take(self, periods: IdlePeriods) -> None:
        """Idle periods that requests ended."""
        if not len(periods.arrivals):
            return
        timeouts = self._timeouts.ended(periods)
        if not len(timeouts):
            return
        kept = np.minimum(periods.gaps, timeouts)
        cold = periods.gaps > timeouts
        self._spend(periods.starts, kept, periods.gaps)
        self._cold_start((periods.starts + periods.gaps)[cold])
        self._serve(periods.starts - periods.busy, periods.busy)

    def _spend(self, starts: Floats, kept: Floats, gaps: Floats) -> None:
        hardware, ledger = self._model.hardware, self._ledger
        ledger.kept_joules += float(kept.sum()) * hardware.context_watts
        ledger.parked_joules += float((gaps - kept).sum()) * hardware.bare_watts
        if self._profile is not None:
            self._profile.hold(starts, kept, hardware.context_watts)
            self._profile.hold(starts + kept, gaps - kept, hardware.bare_watts)

    def _serve(self, starts: Floats, busy: Floats) -> None:
        if self._accounting is Accounting.TOTAL:
            return  # free, as published
        self._ledger.service_joules += float(busy.sum()) * self._model.hardware.context_watts
        if self._profile is not None:
            self._profile.hold(starts, busy, self._model.hardware.context_watts)

    def _cold_start(self, times: Floats) -> None:
        count = len(times)
        self._ledger.cold_starts += count
        self._ledger.delayed += count
        self._ledger.waited_seconds += count * self._load_seconds
        self._ledger.load_joules += count * self._load_joules
        if self._profile is not None:
            self._profile.pulse(times, self._load_joules)

    def finish(self, splitter: Splitter, last: LastPeriod | None, horizon: float) -> Outcome:
        """The outcome at the horizon."""
        hardware, ledger = self._model.hardware, self._ledger
        ledger.requests = splitter.requests
        if last is None:
            ledger.parked_joules += horizon * hardware.bare_watts
        else:
            kept = min(last.gap, self._timeouts.last(last)) if last.gap > 0 else 0.0
            self._spend(np.array([last.start]), np.array([kept]), np.array([last.gap]))
            self._serve(np.array([last.start - last.busy]), np.array([last.busy]))
            ledger.kept_joules += splitter.negative_seconds * hardware.context_watts
        always_on = horizon * hardware.context_watts
        if self._policy.kind is Kind.NEVER:
            self._always_on(splitter, horizon)
        return Outcome(
            self._model.name,
            hardware.gpu,
            self._policy.label,
            self._accounting,
            horizon,
            always_on / WH,
            horizon * hardware.bare_watts / WH,
            horizon * hardware.tax_watts / WH,
            ledger,
            self._break_even,
            profile=self._profile,
            beyond=splitter.beyond,
            published=self._accounting is Accounting.TOTAL,
        )

    def _always_on(self, splitter: Splitter, horizon: float) -> None:
        """Loaded before the first second. The published row counts that load, without its energy."""
        published, watts = self._accounting is Accounting.TOTAL, self._model.hardware.context_watts
        served = 0.0 if published else splitter.busy_seconds
        ledger = self._ledger
        ledger.cold_starts = int(published and splitter.requests > 0)
        ledger.delayed, ledger.waited_seconds, ledger.load_joules, ledger.parked_joules = 0, 0.0, 0.0, 0.0
        ledger.service_joules = served * watts
        ledger.kept_joules = (horizon - served) * watts
        if self._profile is not None:
            self._profile = PowerProfile()
            self._profile.hold(np.zeros(1), np.array([horizon]), watts)
