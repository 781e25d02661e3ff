"""One-sided conformal bounds from held-out errors, by group.

An error is the logarithm of truth ÷ prediction, so a bound is a factor on the prediction. Runs of one
group (a GPU, an LLM, a cell) err alike; what is exchangeable with a new case is the group, not the run.
With K groups each weighing 1/(K+1), and one more share at infinity for the group to come, the weighted
quantile at level c covers a new group's run with probability c (hierarchical conformal prediction:
Lee, Barber & Willett, "Distribution-free inference with hierarchical data"). That needs c ≤ K/(K+1);
above it the largest of the groups' own quantiles is taken, which is the worst that was seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_CONFIDENCE_PERCENT = 50
MOST_CONFIDENCE_PERCENT = 99


def upper_factors(errors_by_group: Mapping[str, Sequence[float]]) -> list[float]:
    """Factors for each whole per cent from 50 to 99, never below 1 and never falling."""
    groups = [np.sort(np.asarray(errors, dtype=np.float64)) for errors in errors_by_group.values()]
    pooled = np.concatenate(groups)
    order = np.argsort(pooled, kind="stable")
    pooled = pooled[order]
    share = 1 / (len(groups) + 1)
    weights = np.concatenate([np.full(len(errors), share / len(errors)) for errors in groups])[order]
    reached = np.cumsum(weights)
    factors: list[float] = []
    for percent in range(LEAST_CONFIDENCE_PERCENT, MOST_CONFIDENCE_PERCENT + 1):
        error = _quantile(groups, pooled, reached, percent / 100)
        factors.append(max([1.0, math.exp(error), *factors[-1:]]))
    return factors


def factor_at(factors: Sequence[float], confidence_percent: float) -> float:
    """The factor for a confidence, rounded up to the next whole per cent."""
    return factors[math.ceil(confidence_percent - 1e-9) - LEAST_CONFIDENCE_PERCENT]


def supported_percent(groups: int) -> int:
    """The highest whole confidence that ``groups`` groups can guarantee."""
    return math.floor(100 * groups / (groups + 1))


def coverage_by_group(errors_by_group: Mapping[str, Sequence[float]], factor: float) -> dict[str, float]:
    """The share of each group's runs that a factor covers."""
    return {
        group: float(np.mean(np.asarray(errors) <= math.log(factor) + 1e-12))
        for group, errors in errors_by_group.items()
    }


def _quantile(groups: Sequence[Array], pooled: Array, reached: Array, level: float) -> float:
    """``groups`` sorted each; ``pooled`` all of them sorted, with the weight reached at each."""
    if level > len(groups) / (len(groups) + 1):
        return max(_conformal_quantile(errors, level) for errors in groups)
    place = int(np.searchsorted(reached, level - 1e-12))
    return float(pooled[min(place, len(pooled) - 1)])


def _conformal_quantile(ordered: Array, level: float) -> float:
    """The ⌈(n+1)·level⌉-th smallest error, or the largest where there are too few."""
    return float(ordered[min(len(ordered), math.ceil((len(ordered) + 1) * level)) - 1])
