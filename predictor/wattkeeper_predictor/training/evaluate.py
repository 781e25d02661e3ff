"""The paper's table: scores of the recipe and of the baselines on rows they were not fitted on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.recipes.wattgpu.features import Case
from wattkeeper_predictor.recipes.wattgpu.trees import fit_pair

from .baselines import baseline_predictions
from .dataset import Dataset
from .metrics import score
from .protocols import Protocol, held_out
from .runs import Run

Array = NDArray[np.float64]
Progress = Callable[[str], None]


def cases_of(data: Dataset) -> list[Case]:
    """One case a run, in the order of the runs."""
    return [Case(data.models[run.model], data.gpus[run.gpu], run.level) for run in data.runs]


def targets(runs: Sequence[Run]) -> tuple[Array, Array]:
    """Measured power in watts and ITL in seconds, one a run."""
    return np.array([run.power_watts for run in runs]), np.array([run.itl_seconds for run in runs])


def evaluate_wattgpu(
    data: Dataset, protocol: Protocol, progress: Progress = lambda _: None
) -> dict[str, Any]:
    """Scores as JSON-ready values.

    ``{"power": {"offline": {...}, "server": {...}}, "itl": {...}, "baselines": {NAME: the same, or null
    where it predicts only one of the two}}``; RMSE in watts and seconds.
    """
    cases = cases_of(data)
    power, itl = targets(data.runs)
    predicted_power, predicted_itl = np.empty_like(power), np.empty_like(itl)
    for fold, test in enumerate(held_out(data.runs, protocol), start=1):
        train_rows, test_rows = np.flatnonzero(~test), np.flatnonzero(test)
        train_cases, test_cases = [cases[i] for i in train_rows], [cases[i] for i in test_rows]
        progress(f"{protocol} fold {fold}: {len(train_rows)} rows to fit, {len(test_rows)} held out")
        pair = fit_pair(train_cases, power[train_rows], itl[train_rows])
        predicted_power[test_rows] = pair.power_watts(test_cases)
        predicted_itl[test_rows] = pair.itl_seconds(test_cases)
    baselines = baseline_predictions(cases, power)
    return {
        **_both(data.runs, (power, itl), (predicted_power, predicted_itl)),
        "baselines": {name: _both(data.runs, (power, itl), guess) for name, guess in baselines.items()},
    }


def _both(
    runs: Sequence[Run], truth: tuple[Array, Array], predicted: tuple[Array | None, Array | None]
) -> dict[str, Any]:
    names = ("power", "itl")
    return {
        name: None if guess is None else _by_scenario(runs, true, guess)
        for name, true, guess in zip(names, truth, predicted, strict=True)
    }


def _by_scenario(runs: Sequence[Run], truth: Array, predicted: Array) -> dict[str, Any]:
    offline = np.array([run.level is Level.OFFLINE for run in runs])
    scores = {}
    for scenario, rows in (("offline", offline), ("server", ~offline)):
        picked = np.flatnonzero(rows).tolist()
        if picked:
            scores[scenario] = asdict(score([runs[i] for i in picked], truth[picked], predicted[picked]))
    return scores
