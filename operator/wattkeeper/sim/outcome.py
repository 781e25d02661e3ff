"""What a simulation found: energy by what it went into, cold starts and who waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wattkeeper.core.break_even import Accounting
from wattkeeper.sim.power import PowerProfile

WH = 3600.0


@dataclass(slots=True)
class Ledger:
    """Sums while a simulation runs: seconds and joules."""

    kept_joules: float = 0.0  # idle with a context
    parked_joules: float = 0.0  # without one, the lead-in before the first load included where it is charged
    load_joules: float = 0.0
    service_joules: float = 0.0
    requests: int = 0
    cold_starts: int = 0
    delayed: int = 0  # requests that met a cold start, or came while it lasted
    waited_seconds: float = 0.0  # of those together

    @property
    def joules(self) -> float:
        return self.kept_joules + self.parked_joules + self.load_joules + self.service_joules

    def add(self, other: Ledger) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one model, or on several together. Watt-hours are those of the horizon."""

    name: str
    gpu: str
    policy: str
    accounting: Accounting
    horizon_seconds: float
    always_on_wh: float
    bare_wh: float  # had no model ever been loaded
    own_tax_wh: float  # of contexts always on, each model on GPUs of its own
    ledger: Ledger
    break_even_seconds: float | None  # None: of several models that differ
    models: tuple[Outcome, ...] = ()
    profile: PowerProfile | None = None
    beyond: int = 0  # requests after the horizon, left out
    published: bool = False  # computed as seed 002 did, which flatters: see `true`
    true: Outcome | None = field(default=None)  # the same policy, service and lead-in charged

    @property
    def energy_wh(self) -> float:
        return self.ledger.joules / WH

    @property
    def saved_wh(self) -> float:
        return self.always_on_wh - self.energy_wh

    @property
    def saved_percent(self) -> float:
        return 100 * self.saved_wh / self.always_on_wh if self.always_on_wh > 0 else 0.0

    @property
    def tax_saved_percent(self) -> float:
        """Of what contexts cost above bare boards if every model is always on, on GPUs of its own.

        That is all that parking and sharing GPUs can save.
        """
        spent = self.energy_wh - self.bare_wh
        return 100 * (1 - spent / self.own_tax_wh) if self.own_tax_wh > 0 else 0.0

    @property
    def delayed_percent(self) -> float:
        return 100 * self.ledger.delayed / self.ledger.requests if self.ledger.requests else 0.0

    @property
    def mean_wait_seconds(self) -> float:
        """Over all requests, also those that didn't wait."""
        return self.ledger.waited_seconds / self.ledger.requests if self.ledger.requests else 0.0


def together(name: str, outcomes: Sequence[Outcome]) -> Outcome:
    """Several models' outcomes under one policy as one."""
    ledger = Ledger()
    for each in outcomes:
        ledger.add(each.ledger)
    first = outcomes[0]
    profiles = [each.profile for each in outcomes if each.profile is not None]
    known = {each.break_even_seconds for each in outcomes}
    true = [each.true for each in outcomes if each.true is not None]
    return Outcome(
        name,
        first.gpu if len({each.gpu for each in outcomes}) == 1 else "several",
        first.policy,
        first.accounting,
        max(each.horizon_seconds for each in outcomes),
        sum(each.always_on_wh for each in outcomes),
        sum(each.bare_wh for each in outcomes),
        sum(each.own_tax_wh for each in outcomes),
        ledger,
        known.pop() if len(known) == 1 else None,
        tuple(outcomes),
        PowerProfile.total(profiles) if profiles else None,
        sum(each.beyond for each in outcomes),
        any(each.published for each in outcomes),
        together(name, true) if len(true) == len(outcomes) else None,
    )
