"""Fit the 95th percentile between tokens to batch sweeps that measured it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.engine import tail as tail_model
from wattkeeper_predictor.engine.batch import steady
from wattkeeper_predictor.engine.parameters import StepParameters
from wattkeeper_predictor.engine.tail import PRIOR_MEDIANS, PRIOR_WIDTHS, TailParameters, itl_p95

from .fit_engine import rounded, solve
from .measured import Measured

Array = NDArray[np.float64]


def fit_tail(rows: Measured, measured_p95: Array, online: StepParameters) -> TailParameters:
    """Fit to rows with a measured 95th percentile (NaN elsewhere); the prior where there are none.

    What is fitted is the ratio to the median, so that errors of the step itself don't matter.
    """
    known = np.flatnonzero(~np.isnan(measured_p95))
    center = np.log(PRIOR_MEDIANS)
    if not len(known):
        return tail_model.from_vector(center)
    picked = rows.take(known)
    state = steady(online, picked.columns)
    target = np.log(measured_p95[known] / picked.itl)

    def residual(vector: Array) -> Array:
        ratio = itl_p95(tail_model.from_vector(vector), online, picked.columns, state) / state.step
        difference: Array = np.log(ratio) - target
        return difference

    return tail_model.from_vector(rounded(solve(residual, center, center, PRIOR_WIDTHS, np.ones(len(known)))))
