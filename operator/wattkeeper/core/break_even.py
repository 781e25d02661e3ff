"""The break-even time T*: how long an idle model may stay before unloading it would have been cheaper.

T* = energy of one reload ÷ parking power (seed 002). Keeping a model for T* and then evicting it never costs
more than twice what perfect foresight would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

from wattkeeper.core.parking_catalogue import Loader
from wattkeeper.core.readings import Sample

# Loads vary with caches and neighbours: until this many were seen, the catalogue's loader speaks.
ENOUGH_COLD_STARTS = 5


class Accounting(StrEnum):
    """What a reload is charged with. `Corrected` differs from `Total` in the savings' account, not in T*."""

    TOTAL = "Total"  # the paper's: load power × load time
    CORRECTED = "Corrected"
    MARGINAL = "Marginal"  # only what lies above bare idle, as measured


@dataclass(frozen=True, slots=True)
class LoadObservation:
    """One real cold start of a model on a GPU kind, all GPUs of the replica together."""

    started_at: float
    seconds: float
    total_joules: float
    marginal_joules: float  # above bare idle


@dataclass(frozen=True, slots=True)
class LoadCost:
    """What one reload takes, both ways of counting."""

    seconds: float
    total_joules: float
    marginal_joules: float
    cold_starts: int  # observed; 0: from the catalogue alone
    basis: str


@dataclass(frozen=True, slots=True)
class BreakEven:
    """T* with everything it was made of. Infinite where parking saves nothing."""

    seconds: float
    accounting: Accounting
    park_watts: float
    load: LoadCost
    total_seconds: float
    marginal_seconds: float

    @property
    def rate_per_hour(self) -> float:
        """λ*: with more requests an hour than this (evenly spread), the model had better stay."""
        return 3600.0 / self.seconds if self.seconds > 0 else math.inf


def load_cost(  # noqa: PLR0913  every figure of the sum, by name
    *,
    load_watts: float,
    bare_watts: float,
    weight_bytes: float,
    loader: Loader,
    gpus: int = 1,
    observed: Sequence[LoadObservation] = (),
    host_watts: float = 0.0,
) -> LoadCost:
    """The cost of one reload on `gpus` GPUs; watts are those of one GPU, bytes those of the whole model.

    `host_watts` charges the host for the time of a load too, where an operator wants that.
    """
    for name, value in (("load_watts", load_watts), ("weight_bytes", weight_bytes)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value}")
    enough = len(observed) >= ENOUGH_COLD_STARTS
    if enough:
        # Medians: one load behind a slow image pull must not lengthen T* for good.
        seconds = median(each.seconds for each in observed)
        marginal = median(each.marginal_joules for each in observed)
        basis = f"{len(observed)} cold starts"
    else:
        seconds = loader.seconds(weight_bytes)
        marginal = max(0.0, load_watts - bare_watts) * seconds * gpus
        basis = f"loader {loader.name} ({len(observed)} of {ENOUGH_COLD_STARTS} cold starts seen)"
    host = host_watts * seconds
    total = load_watts * seconds * gpus + host
    return LoadCost(seconds, total, max(0.0, marginal) + host, len(observed), basis)


def break_even(cost: LoadCost, park_watts: float, accounting: Accounting = Accounting.TOTAL) -> BreakEven:
    """T* of a model that costs `park_watts` while idle, in all its GPUs together."""
    total = _seconds(cost.total_joules, park_watts)
    marginal = _seconds(cost.marginal_joules, park_watts)
    seconds = marginal if accounting is Accounting.MARGINAL else total
    return BreakEven(seconds, accounting, park_watts, cost, total, marginal)


def group_break_even(members: Sequence[BreakEven], park_watts: float) -> float:
    """T* in seconds of models that share GPUs: every one has to be loaded again, the tax is paid once."""
    joules = sum(
        each.load.marginal_joules if each.accounting is Accounting.MARGINAL else each.load.total_joules
        for each in members
    )
    return _seconds(joules, park_watts)


def observe_load(
    samples: Sequence[Sample], *, started_at: float, ready_at: float, bare_watts: float
) -> LoadObservation | None:
    """Integrate one GPU's power over a load. None where the samples don't cover it.

    Samples must reach both ends within their own spacing: a load seen in part would look cheap.
    """
    inside = [s for s in samples if started_at <= s.measured_at <= ready_at and math.isfinite(s.value)]
    duration = ready_at - started_at
    if len(inside) < 2 or duration <= 0:
        return None
    spacing = max(b.measured_at - a.measured_at for a, b in pairwise(inside))
    if min(a.measured_at - b.measured_at for b, a in pairwise(inside)) <= 0:
        return None  # unsorted or doubled
    lead, tail = inside[0].measured_at - started_at, ready_at - inside[-1].measured_at
    if max(lead, tail) > max(spacing, 0.1 * duration):
        return None
    joules = sum((a.value + b.value) / 2 * (b.measured_at - a.measured_at) for a, b in pairwise(inside))
    joules += inside[0].value * lead + inside[-1].value * tail
    return LoadObservation(started_at, duration, joules, max(0.0, joules - bare_watts * duration))


def together(per_gpu: Sequence[LoadObservation]) -> LoadObservation:
    """One load over several GPUs: energies add up, the slowest GPU sets the time."""
    return LoadObservation(
        min(each.started_at for each in per_gpu),
        max(each.seconds for each in per_gpu),
        sum(each.total_joules for each in per_gpu),
        sum(each.marginal_joules for each in per_gpu),
    )


def _seconds(joules: float, watts: float) -> float:
    return joules / watts if watts > 0 else math.inf
