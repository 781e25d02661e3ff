"""Policies that can be simulated: the CR's own, a budget for waiting on top, and the clairvoyant optimum."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from wattkeeper.core.eviction import ParkingPolicy, ParkingRules


class Kind(StrEnum):
    """`parking.policy`'s words, and one that only a simulation can follow."""

    NEVER = "Never"
    BREAK_EVEN = "BreakEven"
    FIXED = "Fixed"
    ADAPTIVE = "Adaptive"
    OPTIMUM = "Optimum"  # knows the future


@dataclass(frozen=True, slots=True)
class Policy:
    """How models are parked. `group`: models on shared GPUs leave together, as the operator has it."""

    kind: Kind
    fixed_seconds: float | None = None  # with Fixed
    max_delayed: float | None = None  # share of requests that may wait
    min_idle_seconds: float = 0.0
    group: bool = True
    rules: ParkingRules = field(init=False)

    def __post_init__(self) -> None:
        if self.kind is Kind.FIXED and self.fixed_seconds is None:
            raise ValueError("Fixed needs a timeout")
        if self.max_delayed is not None and not 0 < self.max_delayed <= 1:
            raise ValueError(f"max_delayed must be above 0 and at most 1, got {self.max_delayed}")
        # The optimum has no rules of the operator's: it is never asked for a timeout.
        policy = ParkingPolicy.NEVER if self.kind is Kind.OPTIMUM else ParkingPolicy(self.kind.value)
        rules = ParkingRules(policy, self.min_idle_seconds, self.fixed_seconds)
        object.__setattr__(self, "rules", rules)

    @property
    def label(self) -> str:
        name = self.kind.value
        if self.kind is Kind.FIXED:
            name += f" {self.fixed_seconds:g} s"
        if self.max_delayed is not None and self.kind not in (Kind.NEVER, Kind.OPTIMUM):
            name += (
                f", at most {self.max_delayed:.3g} delayed"
                if self.max_delayed < 0.001
                else (f", at most {100 * self.max_delayed:g} % delayed")
            )
        return name
