"""Fit the simulator's factors to measured cells.

Residuals are logarithms of prediction ÷ measurement, each GPU weighing the same, under a soft L1 loss at
0.1 (an error of 10 % is where squares turn into absolute values); a ridge pulls the logarithms of the factors
to their priors. Results are rounded to six digits, so that they don't hang on the last bit of a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.engine import parameters as step_parameters
from wattkeeper_predictor.engine import power as power_model
from wattkeeper_predictor.engine.batch import Steady, steady
from wattkeeper_predictor.engine.columns import Columns
from wattkeeper_predictor.engine.idle import IdleModel, fit_idle
from wattkeeper_predictor.engine.parameters import OFFLINE_PRIORS, ONLINE_PRIORS, Prior, StepParameters
from wattkeeper_predictor.engine.power import POWER_PRIORS, PowerParameters, active_rise, busy_share

from .measured import Measured, Source

Array = NDArray[np.float64]
_LOSS_SCALE = 0.1
_RIDGE = 0.1
_MOST_EVALUATIONS = 40
# Measured loads are light: they converge at once.
_FIT_ITERATIONS = 6
# Context-idle watts known besides those that the runs tell: seed 002's controlled recordings, and for the
# H100 the mean of them and of its production GPUs.
EXTRA_IDLE_WATTS: Mapping[str, float] = {"H100 SXM5": 133.0, "A100 PCIe 80GB": 80.0}
_IDLE_PERCENTILE = 2


def simulated_itl(state: Steady, rows: Measured) -> Array:
    """What the simulator says of the quantity that each row measured, in seconds."""
    server = np.where(rows.with_first > 0, state.per_token, state.itl)
    return np.where(
        rows.source == Source.OFFLINE,
        state.inverse_throughput,
        np.where(rows.source == Source.SWEEP, state.step, server),
    )


def fit_step(
    rows: Measured, priors: Mapping[str, Prior], start: StepParameters | None = None
) -> StepParameters:
    """Fit the step's factors to cells of one regime."""
    target = np.log(rows.itl)

    def residual(vector: Array) -> Array:
        state = steady(step_parameters.from_vector(vector), rows.columns, _FIT_ITERATIONS)
        return np.log(simulated_itl(state, rows)) - target

    center, width = step_parameters.prior_vectors(priors)
    begin = center if start is None else start.vector()
    return step_parameters.from_vector(rounded(solve(residual, begin, center, width, _weights(rows))))


def fit_online(rows: Measured, start: StepParameters | None = None) -> StepParameters:
    """Fit to the rows of API servers and batch sweeps."""
    return fit_step(rows.take(rows.source != Source.OFFLINE), ONLINE_PRIORS, start)


def fit_offline(rows: Measured, start: StepParameters | None = None) -> StepParameters:
    """Fit to the rows of full queues."""
    return fit_step(rows.take(rows.source == Source.OFFLINE), OFFLINE_PRIORS, start)


def plain(c: Columns) -> NDArray[np.bool_]:
    """Where a dense model with 16-bit weights runs on one GPU: what power physics is fitted to."""
    mask: NDArray[np.bool_] = (c.mixture == 0) & (c.quantized == 0) & (c.gpus == 1)
    return mask


def fit_power(
    rows: Measured, state: Steady, idle_watts: Array, start: PowerParameters | None = None
) -> PowerParameters:
    """Fit the rise of power to server and sweep rows of plain configurations, at simulated times."""
    chosen = np.flatnonzero((rows.source != Source.OFFLINE) & plain(rows.columns))
    picked = rows.take(chosen)
    state = take_state(state, chosen)
    idle = idle_watts[chosen]
    target = np.log(picked.power)
    busy = busy_share(picked.columns, state)

    def residual(vector: Array) -> Array:
        rise = active_rise(power_model.from_vector(vector), picked.columns, state, idle)
        return np.log(idle + busy * rise) - target

    names = power_model.NAMES
    center = np.log([POWER_PRIORS[name].median for name in names])
    width = np.array([POWER_PRIORS[name].width for name in names])
    begin = center if start is None else start.vector()
    return power_model.from_vector(rounded(solve(residual, begin, center, width, _weights(picked))))


def take_state(state: Steady, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Steady:
    """The state of the rows at these positions."""

    def taken(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value[rows]
        return type(value)(**{field.name: taken(getattr(value, field.name)) for field in fields(value)})

    result: Steady = taken(state)
    return result


def idle_watts_of(rows: Measured) -> dict[str, float]:
    """Context-idle watts of each GPU: the 2nd percentile of its runs at the low rate, and what is known."""
    low = (rows.source == Source.SERVER) & (rows.level == "low")
    found = {
        str(gpu): float(np.percentile(rows.power[low & (rows.gpu == gpu)], _IDLE_PERCENTILE))
        for gpu in np.unique(rows.gpu[low])
    }
    return {**EXTRA_IDLE_WATTS, **found}


def fit_idle_model(
    watts: Mapping[str, float], columns_of_gpu: Mapping[str, tuple[float, float]]
) -> IdleModel:
    """Fit the public idle model; ``columns_of_gpu`` gives (multiprocessors·GHz, TDP) by name."""
    names = sorted(set(watts) & set(columns_of_gpu))
    if not names:
        # No run at a low rate tells: a fifth of TDP, which is what boards usually draw with a context.
        watts = {name: 0.2 * tdp for name, (_, tdp) in columns_of_gpu.items()}
        names = sorted(columns_of_gpu)
    sm_ghz, tdp = (np.array([columns_of_gpu[name][i] for name in names]) for i in range(2))
    return fit_idle(sm_ghz, tdp, np.array([watts[name] for name in names]))


def _weights(rows: Measured) -> Array:
    """Each GPU of each source weighs the same; the mean weight is 1."""
    keys = np.array([f"{source} {gpu}" for source, gpu in zip(rows.source, rows.gpu, strict=True)])
    _, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
    weight = 1 / count[inverse]
    scaled: Array = weight * len(rows) / weight.sum()
    return scaled


def solve(
    residual: Callable[[Array], Array], begin: Array, center: Array, width: Array, weights: Array
) -> Array:
    from scipy.optimize import least_squares  # noqa: PLC0415 - slow to import

    root = np.sqrt(weights)
    pull = _RIDGE * np.sqrt(len(weights) / 100) / width

    def whole(vector: Array) -> Array:
        error = residual(vector)
        soft = _LOSS_SCALE * np.sqrt(2 * (np.sqrt(1 + (error / _LOSS_SCALE) ** 2) - 1)) * np.sign(error)
        return np.concatenate([root * soft, pull * (vector - center)])

    found: Array = least_squares(whole, begin, max_nfev=_MOST_EVALUATIONS, ftol=1e-6).x
    return found


def rounded(vector: Array) -> Array:
    rounded: Array = np.log(np.array([float(f"{value:.6g}") for value in np.exp(vector)]))
    return rounded
