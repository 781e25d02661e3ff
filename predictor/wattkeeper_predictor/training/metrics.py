"""The paper's scores: MdAPE, RMSE, and how well GPUs and LLMs are ranked."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from .runs import Run

Array = NDArray[np.float64]


class Labels(NamedTuple):
    """What a measured value is of."""

    model: str
    gpu: str
    level: Hashable


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores over ``n`` runs. RMSE in the target's unit; a tau is None where nothing can be ranked."""

    mdape_percent: float
    rmse: float
    kendall_tau_llm: float | None
    kendall_tau_gpu: float | None
    n: int


def score(runs: Sequence[Run], truth: Array, predicted: Array) -> Scores:
    """Compare arrays of one value a run."""
    return score_labelled([Labels(run.model, run.gpu, run.level) for run in runs], truth, predicted)


def score_labelled(labels: Sequence[Labels], truth: Array, predicted: Array) -> Scores:
    """Compare arrays of one value a label."""
    return Scores(
        mdape_percent=float(np.median(np.abs(predicted / truth - 1)) * 100),
        rmse=float(np.sqrt(np.mean((predicted - truth) ** 2))),
        kendall_tau_llm=_mean_tau(
            labels, truth, predicted, lambda of: (of.gpu, of.level), lambda of: of.model
        ),
        kendall_tau_gpu=_mean_tau(
            labels, truth, predicted, lambda of: (of.model, of.level), lambda of: of.gpu
        ),
        n=len(labels),
    )


def _mean_tau(
    labels: Sequence[Labels],
    truth: Array,
    predicted: Array,
    within: Callable[[Labels], tuple[str, Hashable]],
    ranked: Callable[[Labels], str],
) -> float | None:
    """Kendall's tau of the ranked things, averaged over the groups within which they compete."""
    cells: dict[tuple[str, Hashable], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, label in enumerate(labels):
        cells[within(label)][ranked(label)].append(index)
    taus = []
    for competitors in cells.values():
        rows = list(competitors.values())
        true_means = [_mean(truth[row]) for row in rows]
        guess_means = [_mean(predicted[row]) for row in rows]
        if len(rows) < 2 or len(set(guess_means)) < 2:
            continue
        tau = float(kendalltau(true_means, guess_means).statistic)
        if not math.isnan(tau):
            taus.append(tau)
    return float(np.mean(taus)) if taus else None


def _mean(values: Array) -> float:
    # Rounded, so that equal guesses tie whatever the number of runs they are averaged over.
    return float(f"{np.mean(values):.9g}")
