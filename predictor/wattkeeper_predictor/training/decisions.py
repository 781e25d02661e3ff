"""What predictions are for: choosing the GPU of least power that meets a latency bound.

A case is one LLM at one rate, with the GPUs on which it was measured as candidates, and one bound: either a
multiple of the fastest GPU's measured latency (every case gets the same mix of tight and loose) or a fixed
one. Cases that no GPU truly meets are left out. With a margin m a GPU is deemed to meet the bound if its
predicted latency is at most m × bound. A choice *violates* if its measured latency exceeds the bound; its
*regret* is its measured power over the least among those that truly meet it, minus one (violating choices
have none). Where a policy finds no GPU the case counts as *unplaced*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .measured import Measured

Array = NDArray[np.float64]
RELATIVE_BOUNDS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0)
FIXED_BOUNDS_SECONDS = (0.010, 0.025, 0.050)
MARGINS = (1.0, 0.9, 0.8)
_REFERENCE_GPU = "H100 NVL"


@dataclass(frozen=True, slots=True)
class _Case:
    """Candidates (places in the table) and the bound they have to meet, in seconds."""

    at: NDArray[np.intp]
    bound: float


def decision_figures(cells: Measured, itl: Array, power: Array) -> dict[str, Any]:
    """Figures for each kind of bound and policy. ``itl`` and ``power`` are predictions, one a server cell."""
    return {
        "relative_bounds": _figures(cells, itl, power, fixed=False),
        "fixed_bounds": _figures(cells, itl, power, fixed=True),
    }


def _figures(cells: Measured, itl: Array, power: Array, *, fixed: bool) -> dict[str, Any]:
    cases = list(_cases(cells, fixed=fixed))
    policies: dict[str, Callable[[_Case], Array]] = {
        f"predictor, margin {margin:g}": _least(itl, power, margin) for margin in MARGINS
    }
    policies |= _baselines(cells)
    return {
        "cases": len(cases),
        **{name: _summary(cells, cases, choose) for name, choose in policies.items()},
    }


def _cases(cells: Measured, *, fixed: bool) -> Iterator[_Case]:
    keys = np.array([f"{model}\t{level}" for model, level in zip(cells.model, cells.level, strict=True)])
    for key in np.unique(keys):
        at = np.flatnonzero(keys == key)
        fastest = float(cells.itl[at].min())
        bounds = FIXED_BOUNDS_SECONDS if fixed else [share * fastest for share in RELATIVE_BOUNDS]
        for bound in bounds:
            if len(at) > 1 and fastest <= bound:
                yield _Case(at, bound)


def _least(itl: Array, power: Array, margin: float) -> Callable[[_Case], Array]:
    """Shares of choice: all on the least predicted power among those deemed to meet the bound."""

    def choose(case: _Case) -> Array:
        deemed = itl[case.at] <= margin * case.bound
        return _single(case, np.where(deemed, power[case.at], np.inf))

    return choose


def _single(case: _Case, cost: Array) -> Array:
    shares = np.zeros(len(case.at))
    if np.isfinite(cost).any():
        shares[int(np.argmin(cost))] = 1.0
    return shares


def _baselines(cells: Measured) -> dict[str, Callable[[_Case], Array]]:
    c = cells.columns
    roofline = np.maximum(2 * c.dense_billion / c.bandwidth_gb_s, 2 * c.active_billion / (1e3 * c.tflops))
    reference = np.where(cells.gpu == _REFERENCE_GPU, 0.0, np.inf)
    return {
        "always H100": lambda case: _single(case, reference[case.at]),
        "smallest TDP": lambda case: _single(case, c.tdp_watts[case.at]),
        "best TFLOPS per watt": lambda case: _single(case, -(c.tflops / c.tdp_watts)[case.at]),
        "roofline and TDP": _least(roofline, c.tdp_watts, 1.0),
        "random": lambda case: np.full(len(case.at), 1 / len(case.at)),
        "oracle": _least(cells.itl, cells.power, 1.0),
    }


def _summary(
    cells: Measured, cases: list[_Case], choose: Callable[[_Case], Array]
) -> Mapping[str, float | None]:
    violating, unplaced = 0.0, 0.0
    regrets: list[float] = []
    weights: list[float] = []
    for case in cases:
        shares = choose(case)
        meets = cells.itl[case.at] <= case.bound
        best = cells.power[case.at][meets].min()
        violating += float(shares[~meets].sum())
        unplaced += 1 - float(shares.sum())
        regrets += (cells.power[case.at][meets] / best - 1).tolist()
        weights += shares[meets].tolist()
    count = len(cases)
    return {
        "violations_percent": 100 * violating / count if count else None,
        "unplaced_percent": 100 * unplaced / count if count else None,
        "mean_regret_percent": _weighted(np.array(regrets), np.array(weights), None),
        "p95_regret_percent": _weighted(np.array(regrets), np.array(weights), 0.95),
    }


def _weighted(regrets: Array, weights: Array, quantile: float | None) -> float | None:
    """Mean, or a quantile, of the regrets of choices that meet the bound, in per cent."""
    total = weights.sum()
    if not total:
        return None
    if quantile is None:
        return float(100 * np.average(regrets, weights=weights))
    order = np.argsort(regrets)
    reached = np.cumsum(weights[order]) / total
    return float(100 * regrets[order][int(np.searchsorted(reached, quantile - 1e-12))])
