"""How far GPUs, models and pairs stray from predictions: what telemetry's evidence is weighed against.

All are standard deviations of logarithms, from held-out errors: of a GPU's mean error with the GPU held out,
of a model's with the model held out, of what is left of a pair, and of runs within a pair. Robust (from the
median absolute deviation), since a few models err greatly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.engine.columns import Columns
from wattkeeper_predictor.recipes.wattkeeper.figures import plain

from .fit_engine import fit_idle_model, idle_watts_of
from .fit_recipe import Training
from .measured import Source, cell_keys
from .predict_rows import RowPredictions

Array = NDArray[np.float64]
_LEAST = 0.005
_SEEN_SHARE = 0.2


def anchoring_priors(
    training: Training, held_out: Mapping[str, Mapping[str, RowPredictions]]
) -> dict[str, Any]:
    """Priors for ``itl``, ``rise`` (watts above idle) and ``idle``; empty without the protocols they need."""
    if "unseen_gpu" not in held_out or "unseen_model" not in held_out:
        return {}
    rows = training.rows
    served = (rows.source == Source.SERVER) & plain(rows.columns)
    watts = idle_watts_of(rows)
    idle = np.array([watts.get(gpu, np.nan) for gpu in rows.gpu.tolist()])
    high = served & (rows.level == "high")
    gpu_out, model_out = held_out["unseen_gpu"]["idle"], held_out["unseen_model"]["idle"]
    within = held_out["measured"]["idle"]
    itl = [np.log(rows.itl / answer.itl) for answer in (gpu_out, model_out, within)]
    rise = [_rise_errors(rows.power, answer.power, idle) for answer in (gpu_out, model_out, within)]
    cells = cell_keys(rows)
    return {
        "itl": _spreads(itl, rows.gpu, rows.model, cells, served),
        "rise": _spreads(rise, rows.gpu, rows.model, cells, high),
        # Boards of one kind differ by some 8 % between hosts (production GPUs, seed 002), models by none.
        "idle": {
            "gpu": _idle_spread(training, watts),
            "gpu_seen": 0.08,
            "model": _LEAST,
            "pair": 0.02,
            "noise": 0.02,
        },
    }


def _rise_errors(power: Array, predicted: Array, idle: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.log(np.maximum(power - idle, 0.5) / np.maximum(predicted - idle, 0.5)))


def _spreads(
    errors: list[Array], gpus: Array | Any, models: Array | Any, cells: Array | Any, wanted: NDArray[np.bool_]
) -> dict[str, float]:
    by_gpu, by_model, within = errors
    gpu = _robust(_group_means(by_gpu, gpus, wanted))
    model = _robust(_group_means(by_model, models, wanted))
    centred = by_model - _spread_back(by_model, models, wanted)
    return {
        "gpu": gpu,
        "gpu_seen": max(_LEAST, _SEEN_SHARE * gpu),
        "model": model,
        "pair": _robust(centred[wanted & np.isfinite(centred)]),
        "noise": _robust(within[wanted & np.isfinite(within)]),
    }


def _group_means(errors: Array, groups: Any, wanted: NDArray[np.bool_]) -> Array:
    known = wanted & np.isfinite(errors)
    return np.array([np.median(errors[known & (groups == name)]) for name in np.unique(groups[known])])


def _spread_back(errors: Array, groups: Any, wanted: NDArray[np.bool_]) -> Array:
    means = np.full(len(errors), np.nan)
    known = wanted & np.isfinite(errors)
    for name in np.unique(groups[known]):
        means[known & (groups == name)] = np.median(errors[known & (groups == name)])
    return means


def _robust(values: Array) -> float:
    if not len(values):
        return _LEAST
    return max(_LEAST, float(1.4826 * np.median(np.abs(values - np.median(values)))))


def _idle_spread(training: Training, watts: Mapping[str, float]) -> float:
    """Of the public estimate, each GPU held out."""
    c: Columns = training.rows.columns
    gpus = {}
    for gpu in np.unique(training.rows.gpu):
        first = int(np.flatnonzero(training.rows.gpu == gpu)[0])
        gpus[str(gpu)] = (float(c.sm_ghz[first]), float(c.tdp_watts[first]))
    errors = []
    for name in sorted(set(gpus) & set(watts)):
        others = {other: value for other, value in watts.items() if other != name}
        model = fit_idle_model(others, gpus)
        guess = float(model.watts(np.array([gpus[name][0]]), np.array([gpus[name][1]]))[0])
        errors.append(np.log(watts[name] / guess))
    return max(_LEAST, float(np.sqrt(np.mean(np.square(errors))))) if errors else 0.2
