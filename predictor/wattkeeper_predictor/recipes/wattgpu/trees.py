"""The two boosted models: fitting, predicting, explaining.

Deterministic: one thread, no sampling, so that equal data and versions give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xgboost
from numpy.typing import NDArray

from .features import ITL_FEATURES, POWER_FEATURES, Case, Encoding, Feature, encode, learn_encoding

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Settings:
    """What XGBoost is told; all else is its default."""

    max_depth: int
    trees: int
    reg_lambda: float


POWER_SETTINGS = Settings(max_depth=6, trees=200, reg_lambda=150)
ITL_SETTINGS = Settings(max_depth=5, trees=100, reg_lambda=100)


@dataclass(frozen=True, slots=True)
class Trees:
    """One fitted model and what it knows of its columns."""

    features: tuple[Feature, ...]
    encoding: Encoding
    booster: xgboost.Booster

    def raw(self, cases: Sequence[Case]) -> Array:
        """The model's own output: power ÷ TDP, or ln(ITL in seconds)."""
        rows = encode(self.features, self.encoding, cases)
        output: Array = np.asarray(
            self.booster.inplace_predict(rows, validate_features=False), dtype=np.float64
        )
        return output

    def contributions(self, case: Case) -> Mapping[str, float]:
        """SHAP values of each feature and of the ``base``, in the model's own output."""
        rows = xgboost.DMatrix(encode(self.features, self.encoding, [case]))
        values = self.booster.predict(rows, pred_contribs=True)[0]
        names = [*(feature.name for feature in self.features), "base"]
        return dict(zip(names, (float(value) for value in values), strict=True))


@dataclass(frozen=True, slots=True)
class FittedPair:
    """Power and ITL models together."""

    power: Trees
    itl: Trees

    def power_watts(self, cases: Sequence[Case]) -> Array:
        """Mean board power, in watts."""
        watts: Array = self.power.raw(cases) * np.array([case.gpu.tdp_watts for case in cases])
        return watts

    def itl_seconds(self, cases: Sequence[Case]) -> Array:
        """Inter-token latency (offline: inverse throughput), in seconds."""
        seconds: Array = np.exp(self.itl.raw(cases))
        return seconds


def fit_pair(cases: Sequence[Case], power_watts: Array, itl_seconds: Array) -> FittedPair:
    """Fit both models on one row a run."""
    tdp = np.array([case.gpu.tdp_watts for case in cases])
    return FittedPair(
        power=_fit(POWER_FEATURES, POWER_SETTINGS, cases, power_watts / tdp),
        itl=_fit(ITL_FEATURES, ITL_SETTINGS, cases, np.log(itl_seconds)),
    )


def _fit(features: tuple[Feature, ...], settings: Settings, cases: Sequence[Case], target: Array) -> Trees:
    encoding = learn_encoding(features, cases)
    rows = xgboost.DMatrix(encode(features, encoding, cases), label=target)
    parameters = {
        "max_depth": settings.max_depth,
        "reg_lambda": settings.reg_lambda,
        "nthread": 1,
        "seed": 0,
    }
    return Trees(features, encoding, xgboost.train(parameters, rows, settings.trees))
