"""The parking tax of a GPU and of a pod: what an idle context costs above the bare board, in watts.

A board has a bare level of its own and a tax on top of it. Boards of one kind differ far more in level than
in tax: in seed 002's production profile bare boards lie between 72 and 99 W, idle ones between 127 and 155 W,
and node by node the difference stays near 50 W. So the two are estimated together: level ~ N(pool or
catalogue), tax ~ N(pool or catalogue), and the GPU's own batches say `level` (bare) and `level + tax` (idle
context). With both measured the prior hardly matters; with one measured, the other isn't guessed from
another board.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from wattkeeper.core.parking_catalogue import Basis, CatalogueEntry
from wattkeeper.core.power_samples import GpuPowerState, Moments, RestState
from wattkeeper.core.witnesses import IdleLevel

# A state counts as measured from this many batches on (half an hour).
ENOUGH_BATCHES = 6
# Two-sided 95 %.
Z95 = 1.959964
# What batches don't average out (temperature, driver), in W.
FLOOR_ERROR_WATTS = 0.25
# How many GPUs the catalogue's spread counts for, beside those of the pool.
PRIOR_GPUS = 2.0


@dataclass(frozen=True, slots=True)
class ParkingTax:
    """The tax of one GPU with its 95 % interval, the levels it lies between, and the SM clocks seen there."""

    watts: float
    low_watts: float
    high_watts: float
    basis: Basis
    bare_watts: float
    context_watts: float
    context_spread_watts: float  # of single batches
    context_measured: bool  # on this very GPU
    bare_sm_clock_mhz: float | None = None
    context_sm_clock_mhz: float | None = None

    def idle_level(self) -> IdleLevel:
        """The level that idleness compares power with."""
        return IdleLevel(self.context_watts, self.context_spread_watts, self.context_measured)


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over a pool's GPUs, each counted once: mean and squared deviations, in W."""

    gpus: int
    mean_watts: float
    squares: float
    sm_clock_mhz: float | None = None

    def between_watts(self, prior_watts: float) -> float:
        """Standard deviation to expect of another GPU; the prior's counts while there are few."""
        freedom = PRIOR_GPUS + self.gpus - 1
        between = math.sqrt((PRIOR_GPUS * prior_watts**2 + self.squares) / freedom)
        return between * math.sqrt(1 + 1 / self.gpus)


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """A pool's aggregates: the resting states, and the tax over those GPUs that were seen in both."""

    states: Mapping[RestState, Spread] = field(default_factory=lambda: MappingProxyType({}))
    taxes: Mapping[RestState, Spread] = field(default_factory=lambda: MappingProxyType({}))


def pool_figures(states: Iterable[GpuPowerState]) -> PoolFigures:
    """Aggregates for a pool's status, from its GPUs' own figures."""
    levels: dict[RestState, list[Moments]] = {}
    taxes: dict[RestState, list[float]] = {}
    for kept in states:
        known = {state: m for state, m in kept.moments.items() if m.weight >= ENOUGH_BATCHES}
        for state, moments in known.items():
            levels.setdefault(state, []).append(moments)
            if state is not RestState.BARE and RestState.BARE in known:
                tax = moments.mean_watts - known[RestState.BARE].mean_watts
                taxes.setdefault(state, []).append(tax)
    spreads = {}
    for state, gpus in levels.items():
        clocks = [m.sm_clock_mhz for m in gpus if m.sm_clock_mhz is not None]
        clock = math.fsum(clocks) / len(clocks) if clocks else None
        spreads[state] = _spread([m.mean_watts for m in gpus], clock)
    return PoolFigures(spreads, {state: _spread(values, None) for state, values in taxes.items()})


def gpu_tax(
    kept: GpuPowerState, pool: PoolFigures, catalogue: CatalogueEntry, *, unboosted: bool = False
) -> ParkingTax | None:
    """The tax of one GPU.

    None while nothing is known: for a model that runs with CUDA_DISABLE_PERF_BOOST there is no catalogue
    value (its effect is disputed), so its idle context has to be measured first, on this GPU or in its pool.
    """
    state = RestState.CONTEXT_UNBOOSTED if unboosted else RestState.CONTEXT
    figures = catalogue.figures
    own_bare, own_context = kept.moments.get(RestState.BARE), kept.moments.get(state)
    pool_bare, pool_tax = pool.states.get(RestState.BARE), pool.taxes.get(state)

    level_spread = catalogue.tax_spread_watts * figures.bare_watts / figures.tax_watts
    level_prior = _normal(pool_bare, figures.bare_watts, level_spread)
    if unboosted and pool_tax is None:
        if own_context is None or own_context.weight < 2:
            return None
        tax_prior = (0.0, math.inf)
    else:
        tax_prior = _normal(pool_tax, figures.tax_watts, catalogue.tax_spread_watts)
    level, tax, error = _estimate(level_prior, tax_prior, own_bare, own_context)

    bare_basis = _basis(own_bare, pool_bare, catalogue.basis)
    context_basis = _basis(own_context, pool_tax, catalogue.basis)
    weaker = max(bare_basis, context_basis, key=list(Basis).index)
    both = weaker is Basis.MEASURED
    pool_context = pool.states.get(state)
    return ParkingTax(
        max(0.0, tax),
        tax - Z95 * error,
        tax + Z95 * error,
        # The pool's tax needs neither of this GPU's levels.
        Basis.POOL if not both and pool_tax is not None else weaker,
        level,
        level + max(0.0, tax),
        math.sqrt(own_context.variance) if own_context is not None and own_context.weight > 1 else error,
        context_basis is Basis.MEASURED,
        _clock(own_bare, pool_bare, figures.bare_sm_clock_mhz),
        _clock(own_context, pool_context, None if unboosted else figures.context_sm_clock_mhz),
    )


def _estimate(
    level: tuple[float, float], tax: tuple[float, float], bare: Moments | None, context: Moments | None
) -> tuple[float, float, float]:
    """Posterior mean of level and tax, and the tax's standard error, in W.

    Two normal priors (mean, deviation) and up to two observations, `level` and `level + tax`: the 2×2
    information matrix is inverted by hand.
    """
    on_level, on_tax = level[1] ** -2, 0.0 if math.isinf(tax[1]) else tax[1] ** -2
    pull_level, pull_tax, cross = level[0] * on_level, tax[0] * on_tax, 0.0
    if bare is not None and bare.weight >= 2:
        weight = _precision(bare)
        on_level, pull_level = on_level + weight, pull_level + weight * bare.mean_watts
    if context is not None and context.weight >= 2:
        weight = _precision(context)
        pull = weight * context.mean_watts
        on_level, on_tax, cross = on_level + weight, on_tax + weight, weight
        pull_level, pull_tax = pull_level + pull, pull_tax + pull
    determinant = on_level * on_tax - cross**2
    level_watts = (on_tax * pull_level - cross * pull_tax) / determinant
    tax_watts = (on_level * pull_tax - cross * pull_level) / determinant
    return level_watts, tax_watts, math.sqrt(on_level / determinant)


def _precision(moments: Moments) -> float:
    return 1.0 / (moments.standard_error**2 + FLOOR_ERROR_WATTS**2)


def _normal(pool: Spread | None, mean: float, deviation: float) -> tuple[float, float]:
    return (mean, deviation) if pool is None else (pool.mean_watts, pool.between_watts(deviation))


def _basis(own: Moments | None, pool: Spread | None, catalogue: Basis) -> Basis:
    if own is not None and own.weight >= ENOUGH_BATCHES:
        return Basis.MEASURED
    return Basis.POOL if pool is not None else catalogue


def _clock(own: Moments | None, pool: Spread | None, catalogue: float | None) -> float | None:
    if own is not None and own.sm_clock_mhz is not None:
        return own.sm_clock_mhz
    return pool.sm_clock_mhz if pool is not None and pool.sm_clock_mhz is not None else catalogue


def _spread(values: Sequence[float], clock: float | None) -> Spread:
    mean = math.fsum(values) / len(values)
    return Spread(len(values), mean, math.fsum((v - mean) ** 2 for v in values), clock)


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """One GPU that a group of pods holds, and who else holds it."""

    uuid: str
    tax: ParkingTax | None
    neighbours: tuple[str, ...] = ()  # holders outside the group, by name
    neighbours_known: bool = True  # False with time-slicing that telemetry can't see through
    mig_share: float | None = None  # this group's slice of the board


@dataclass(frozen=True, slots=True)
class Saving:
    """What parking a group of pods would save, in W, and what stands in the way."""

    watts: float
    low_watts: float
    high_watts: float
    estimated: bool  # MIG: the board is measured, a slice's share is not
    kept_hot_by: Mapping[str, tuple[str, ...]]  # GPU → neighbours
    unknown: tuple[str, ...] = ()  # GPUs of which too little is known
    share_watts: float = 0.0  # the group's share of the tax while neighbours stay, as information


def saving(gpus: Sequence[HeldGpu]) -> Saving:
    """Several GPUs add up; a GPU that a neighbour keeps awake saves nothing until the last context leaves."""
    watts = low = high = share = 0.0
    hot: dict[str, tuple[str, ...]] = {}
    unknown: list[str] = []
    for gpu in gpus:
        if gpu.tax is None or not gpu.neighbours_known:
            unknown.append(gpu.uuid)
            continue
        if gpu.neighbours:
            hot[gpu.uuid] = gpu.neighbours
            part = gpu.mig_share if gpu.mig_share is not None else 1 / (1 + len(gpu.neighbours))
            share += gpu.tax.watts * part
            continue
        watts += gpu.tax.watts
        low += max(0.0, gpu.tax.low_watts)
        high += gpu.tax.high_watts
    estimated = any(gpu.mig_share is not None for gpu in gpus)
    return Saving(watts, low, high, estimated, hot, tuple(unknown), watts + share)
