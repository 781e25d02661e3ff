"""What a simulated model costs: watts at rest, with a context and while loading, and the time of a load."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from wattkeeper.core.break_even import Accounting, BreakEven, LoadCost, break_even, load_cost
from wattkeeper.core.parking_catalogue import LOADERS, ParkingFigures, figures_for

# Seed 002's model: with it the loaders take its 45 s and 8 s.
SEED_WEIGHT_BYTES = 15.2e9


@dataclass(frozen=True, slots=True)
class Hardware:
    """One model's replica. Watts are those of one GPU, the load's cost is that of all together."""

    gpu: str
    figures: ParkingFigures
    load: LoadCost
    gpus: int = 1
    note: str = ""
    standard_load: LoadCost | None = None  # with the standard loader, where `load` is another's

    @property
    def context_watts(self) -> float:
        return self.figures.context_watts * self.gpus

    @property
    def bare_watts(self) -> float:
        return self.figures.bare_watts * self.gpus

    @property
    def tax_watts(self) -> float:
        return self.figures.tax_watts * self.gpus

    def break_even(self, accounting: Accounting) -> BreakEven:
        return break_even(self.load, self.tax_watts, accounting)

    def charged_load(self, accounting: Accounting) -> LoadCost:
        """The load that is charged and waited for.

        The published rows for the fast loader use its short T* but charge the standard loader's 45 s, and so
        does `Total`.
        """
        if accounting is Accounting.TOTAL and self.standard_load is not None:
            return self.standard_load
        return self.load

    def load_joules(self, accounting: Accounting) -> float:
        """What one load is charged."""
        load = self.charged_load(accounting)
        return load.marginal_joules if accounting is Accounting.MARGINAL else load.total_joules


def hardware(  # noqa: PLR0913  every figure that a user may set, by name
    gpu: str,
    *,
    gpus: int = 1,
    weight_bytes: float = SEED_WEIGHT_BYTES,
    loader: str = "standard",
    tdp_watts: float | None = None,
    bare_watts: float | None = None,
    context_watts: float | None = None,
    load_watts: float | None = None,
    load_seconds: float | None = None,
    marginal_load_joules: float | None = None,
    host_watts: float = 0.0,
) -> Hardware:
    """Figures of the catalogue for a GPU, and whatever was measured instead; ValueError where they don't fit.

    `load_seconds` and `marginal_load_joules` (above bare, all GPUs together) are one load's, as measured.
    """
    entry = figures_for(gpu, tdp_watts)
    given = {"bare_watts": bare_watts, "context_watts": context_watts, "load_watts": load_watts}
    figures = replace(entry.figures, **{name: value for name, value in given.items() if value is not None})
    if not 0 <= figures.bare_watts <= figures.context_watts < math.inf:
        raise ValueError(
            f"context_watts ({figures.context_watts:g}) must be at least bare_watts ({figures.bare_watts:g})"
        )
    cost, standard = (
        load_cost(
            load_watts=figures.load_watts,
            bare_watts=figures.bare_watts,
            weight_bytes=weight_bytes,
            loader=LOADERS[name],
            gpus=gpus,
            host_watts=host_watts,
        )
        for name in (loader, "standard")
    )
    if load_seconds is not None:
        cost = standard = _lasting(cost, load_seconds)
    if marginal_load_joules is not None:
        cost = replace(cost, marginal_joules=marginal_load_joules, basis="as given")
    return Hardware(gpu, figures, cost, gpus, entry.note, standard)


def _lasting(cost: LoadCost, seconds: float) -> LoadCost:
    """The same powers for another time."""
    share = seconds / cost.seconds
    return replace(
        cost,
        seconds=seconds,
        total_joules=cost.total_joules * share,
        marginal_joules=cost.marginal_joules * share,
        basis="as given",
    )
