"""The paper's scores: MdAPE, RMSE, and how well GPUs and LLMs are ranked."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from wattkeeper_predictor.levels import Level

from .runs import Run

Array = NDArray[np.float64]


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
    return Scores(
        mdape_percent=float(np.median(np.abs(predicted / truth - 1)) * 100),
        rmse=float(np.sqrt(np.mean((predicted - truth) ** 2))),
        kendall_tau_llm=_mean_tau(
            runs, truth, predicted, lambda run: (run.gpu, run.level), lambda run: run.model
        ),
        kendall_tau_gpu=_mean_tau(
            runs, truth, predicted, lambda run: (run.model, run.level), lambda run: run.gpu
        ),
        n=len(runs),
    )


def _mean_tau(
    runs: Sequence[Run],
    truth: Array,
    predicted: Array,
    within: Callable[[Run], tuple[str, Level]],
    ranked: Callable[[Run], str],
) -> float | None:
    """Kendall's tau of the ranked things, averaged over the groups within which they compete."""
    cells: dict[tuple[str, Level], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, run in enumerate(runs):
        cells[within(run)][ranked(run)].append(index)
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
