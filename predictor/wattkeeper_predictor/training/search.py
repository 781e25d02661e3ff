"""The paper's grid search and comparison of algorithms, for the recipe ``wattgpu``.

Each setting is scored by 5-fold cross-validation on rows, and by leaving out each GPU, which is what the
recipe is for. Needs scikit-learn, a development dependency.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.recipes.wattgpu.features import (
    ITL_FEATURES,
    POWER_FEATURES,
    Feature,
    encode,
    learn_encoding,
)

from .dataset import Dataset
from .evaluate import Progress, cases_of, targets
from .protocols import Protocol, held_out

Array = NDArray[np.float64]
GRID = {"max_depth": (4, 5, 6, 7), "trees": (100, 200, 400), "reg_lambda": (1.0, 50.0, 100.0, 150.0)}
_PROTOCOLS: tuple[Protocol, ...] = ("cv", "logo")
Fit = Callable[[Array, Array], Callable[[Array], Array]]
# Features, label, from label to the measured quantity, and that.
_Target = tuple[tuple[Feature, ...], Array, Callable[[Array], Array], Array]


def search_wattgpu(data: Dataset, progress: Progress = lambda _: None) -> dict[str, Any]:
    """MdAPE in % of each algorithm and grid point, by target and protocol; and the best of the grid."""
    cases = cases_of(data)
    power, itl = targets(data.runs)
    tdp = np.array([case.gpu.tdp_watts for case in cases])
    wanted: dict[str, _Target] = {
        "power": (POWER_FEATURES, power / tdp, lambda value: value * tdp, power),
        "itl": (ITL_FEATURES, np.log(itl), np.exp, itl),
    }
    found: dict[str, Any] = {}
    for target, (features, label, back, truth) in wanted.items():
        rows = encode(features, learn_encoding(features, cases), cases).astype(np.float64)
        candidates = {**_algorithms(), **_grid()}
        scores = {}
        for name, fit in candidates.items():
            progress(f"{target}: {name}")
            scores[name] = {
                protocol: _mdape(data, protocol, rows, label, fit, back, truth) for protocol in _PROTOCOLS
            }
        grid = {name: score for name, score in scores.items() if name.startswith("xgboost ")}
        found[target] = {
            "scores": scores,
            "best_of_grid": {
                protocol: min(grid, key=lambda name: grid[name][protocol]) for protocol in _PROTOCOLS
            },
        }
    return found


def _mdape(  # noqa: PLR0913, PLR0917 - a protocol, a table and a method
    data: Dataset,
    protocol: Protocol,
    rows: Array,
    label: Array,
    fit: Fit,
    back: Callable[[Array], Array],
    truth: Array,
) -> float:
    predicted = np.empty_like(label)
    for test in held_out(data.runs, protocol):
        predicted[test] = fit(rows[~test], label[~test])(rows[test])
    return float(np.median(np.abs(back(predicted) / truth - 1)) * 100)


def _grid() -> dict[str, Fit]:
    fits = {}
    for point in itertools.product(*GRID.values()):
        said = ", ".join(f"{name} {value:g}" for name, value in zip(GRID, point, strict=True))
        fits[f"xgboost {said}"] = _boosted(*point)
    return fits


def _boosted(depth: float, trees: float, reg_lambda: float) -> Fit:
    def fit(rows: Array, label: Array) -> Callable[[Array], Array]:
        parameters = {"max_depth": int(depth), "reg_lambda": reg_lambda, "nthread": 1, "seed": 0}
        booster = xgboost.train(parameters, xgboost.DMatrix(rows, label), int(trees))
        return lambda asked: np.asarray(booster.inplace_predict(asked), dtype=np.float64)

    return fit


def _algorithms() -> dict[str, Fit]:
    try:
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - a development dependency
        from sklearn.linear_model import Ridge  # noqa: PLC0415
        from sklearn.neighbors import KNeighborsRegressor  # noqa: PLC0415
        from sklearn.pipeline import make_pipeline  # noqa: PLC0415
        from sklearn.preprocessing import StandardScaler  # noqa: PLC0415
        from sklearn.svm import SVR  # noqa: PLC0415
    except ImportError as missing:
        raise InvalidInput(
            "search", f"needs scikit-learn ({missing}); install the development dependencies"
        ) from missing

    def of(make: Callable[[], Any]) -> Fit:
        def fit(rows: Array, label: Array) -> Callable[[Array], Array]:
            model = make().fit(rows, label)
            return lambda asked: np.asarray(model.predict(asked), dtype=np.float64)

        return fit

    return {
        "ridge regression": of(lambda: make_pipeline(StandardScaler(), Ridge())),
        "nearest neighbours": of(lambda: make_pipeline(StandardScaler(), KNeighborsRegressor(5))),
        "support vectors": of(lambda: make_pipeline(StandardScaler(), SVR(epsilon=0.02))),
        "random forest": of(lambda: RandomForestRegressor(100, random_state=0, n_jobs=1)),
    }
