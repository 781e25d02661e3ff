"""From questions to figures: simulate, correct, and follow what the corrected latency means for power.

One code path for serving and for evaluation. All arrays have shape (n,); power is of one GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.engine.batch import Steady, steady
from wattkeeper_predictor.engine.capacity import capacity
from wattkeeper_predictor.engine.columns import Columns
from wattkeeper_predictor.engine.gpu_columns import GpuRow
from wattkeeper_predictor.engine.power import active_rise, busy_share, full_rise
from wattkeeper_predictor.engine.tail import itl_p95

from .corrections import (
    apply_trees,
    gpu_features,
    loaded_power_features,
    model_features,
    offline_power_features,
)
from .fitted import Fitted

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# Trees may correct the simulator by so much either way; more than that they haven't the data for.
_MOST_CORRECTION = 0.5
_LEAST_SHARE, _MOST_SHARE = 0.05, 1.5


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of each question besides its public figures; NaN where it isn't.

    ``trained_gpu``: the GPU as the trees know it, None elsewhere. ``itl_shift``: logarithm of the factor that
    measured runs of the pair put on the simulator, in place of trees. ``rise_shift``: the same on the watts
    above idle (0 where nothing is known). ``idle_watts``: of the GPU, in place of the public estimate.
    ``duty``: realised mean number of requests in the system, in place of the predicted one. ``itl_factor``:
    logarithm of what telemetry says on top of all this (0 where there is none).
    """

    trained_gpu: list[GpuRow | None]
    itl_shift: Array
    rise_shift: Array
    idle_watts: Array
    duty: Array
    itl_factor: Array

    def take(self, rows: NDArray[np.intp]) -> Known:
        """The entries at these positions."""
        parts: dict[str, Any] = {
            f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "trained_gpu"
        }
        return Known(trained_gpu=[self.trained_gpu[int(row)] for row in rows], **parts)


@dataclass(frozen=True, slots=True)
class Figures:
    """Answers. Times in seconds, power in watts a GPU.

    ``active_rise`` is drawn above idle while something runs, ``full_power`` with all sequences running.
    ``simulated`` is the ITL before, ``correction`` the logarithm of the factor after the simulator.
    """

    itl: Array
    per_token: Array
    itl_p95: Array
    inverse_throughput: Array
    first_token: Array
    running: Array
    demand: Array
    overload: Array
    max_sequences: Array
    idle_watts: Array
    power: Array
    active_rise: Array
    full_power: Array
    step: Array
    simulated: Array
    correction: Array


def plain(c: Columns) -> Mask:
    """A dense model with 16-bit weights on one GPU: what both parameter sets and the trees are fitted on."""
    mask: Mask = (c.mixture == 0) & (c.quantized == 0) & (c.gpus == 1) & (c.hybrid == 0)
    return mask


def unknown(count: int) -> Known:
    """Nothing known beyond public figures."""
    nothing = np.full(count, np.nan)
    zero = np.zeros(count)
    return Known([None] * count, nothing, zero, nothing, nothing, zero)


def figures(fitted: Fitted, c: Columns, known: Known) -> Figures:
    """Answer all questions."""
    full_queue = (c.offline > 0) & np.isnan(c.fixed_batch) & plain(c)
    return _by_part(
        [(np.flatnonzero(full_queue), _offline), (np.flatnonzero(~full_queue), _online)], fitted, c, known
    )


_Part = Callable[[Fitted, Columns, Known], Figures]


def _by_part(
    parts: list[tuple[NDArray[np.intp], _Part]], fitted: Fitted, c: Columns, known: Known
) -> Figures:
    answered = [(rows, part(fitted, c.take(rows), known.take(rows))) for rows, part in parts if len(rows)]
    if len(answered) == 1:
        return answered[0][1]
    merged = {}
    for field in fields(Figures):
        whole = np.empty(len(c))
        for rows, answer in answered:
            whole[rows] = getattr(answer, field.name)
        merged[field.name] = whole
    return Figures(**merged)


def _offline(fitted: Fitted, c: Columns, known: Known) -> Figures:
    state = steady(fitted.offline, c)
    idle = _idle(fitted, c, known)
    correction = _itl_correction(fitted, ("offline_seen", "offline_unseen"), c, state, known)
    trees = fitted.trees.get("offline_power")
    if trees is None:
        rise = active_rise(fitted.power, c, state, idle)
    else:
        share = apply_trees(trees, offline_power_features(c, state))
        rise = np.clip(share, 0, 1) * c.tdp_watts - idle
    power = _shifted(idle, rise, known, c)
    return _figures(fitted, c, state, correction, _Watts(idle, power, power - idle, power))


def _online(fitted: Fitted, c: Columns, known: Known) -> Figures:
    state = steady(fitted.online, c)
    idle = _idle(fitted, c, known)
    correction = _itl_correction(fitted, ("online_seen", "online_unseen"), c, state, known)
    slower = np.exp(correction)
    demand = np.where(np.isnan(known.duty), state.demand * slower, known.duty)
    busy = busy_share(c, state, demand)
    saturated = steady(fitted.online, c.replace(fixed_batch=np.maximum(capacity(c).running, state.running)))
    active = _shifted(idle, _active(fitted, c, state, idle), known, c) - idle
    power = idle + busy * active
    full = _shifted(idle, _active(fitted, c, saturated, idle), known, c)
    return _figures(fitted, c, state, correction, _Watts(idle, power, active, np.maximum(full, power)))


def _active(fitted: Fitted, c: Columns, state: Steady, idle: Array) -> Array:
    """Watts above idle while something runs: physics for plain configurations, measured shares for others."""
    rise = active_rise(fitted.power, c, state, idle)
    others = np.flatnonzero(~plain(c))
    trees = fitted.trees.get("loaded_power")
    if len(others) and trees is not None:
        share = apply_trees(trees, loaded_power_features(c, state)[others])
        scale = full_rise(fitted.power, c, idle)[others]
        rise[others] = np.clip(share, _LEAST_SHARE, _MOST_SHARE) * scale
    return rise


def _shifted(idle: Array, rise: Array, known: Known, c: Columns) -> Array:
    shifted: Array = idle + np.clip(rise * np.exp(known.rise_shift), 0, np.maximum(c.tdp_watts - idle, 0))
    return shifted


def _idle(fitted: Fitted, c: Columns, known: Known) -> Array:
    public = fitted.idle.watts(c.sm_ghz, c.tdp_watts)
    return np.where(np.isnan(known.idle_watts), public, known.idle_watts)


def _itl_correction(fitted: Fitted, names: tuple[str, str], c: Columns, state: Steady, known: Known) -> Array:
    """Logarithm of the factor on the simulator: measured, or from the trees that know the GPU, or not."""
    correction = np.where(np.isnan(known.itl_shift), 0.0, known.itl_shift)
    by_trees = np.isnan(known.itl_shift) & plain(c)
    if by_trees.any():
        seen_gpu = np.array([row is not None for row in known.trained_gpu])
        features = model_features(c, state.running)
        for name, rows in zip(
            names, (np.flatnonzero(by_trees & seen_gpu), np.flatnonzero(by_trees & ~seen_gpu)), strict=True
        ):
            trees = fitted.trees.get(name)
            if len(rows) and trees is not None:
                seen = features[rows]
                if name.endswith("_seen"):
                    trained = [known.trained_gpu[int(row)] for row in rows]
                    seen = np.hstack([seen, gpu_features([row for row in trained if row is not None])])
                output = apply_trees(trees, seen)
                correction[rows] = np.clip(output, -_MOST_CORRECTION, _MOST_CORRECTION)
    total: Array = correction + known.itl_factor
    return total


class _Watts(NamedTuple):
    """Of one GPU: idle, mean, the rise while something runs, and with all sequences running."""

    idle: Array
    mean: Array
    active_rise: Array
    full: Array


def _figures(fitted: Fitted, c: Columns, state: Steady, correction: Array, watts: _Watts) -> Figures:
    slower = np.exp(correction)
    overload = state.overload * slower
    with np.errstate(divide="ignore"):
        asked = 1 / (c.rate * c.output)
    # A server generates what it is asked for, while it can.
    carried = (c.offline == 0) & np.isnan(c.fixed_batch) & (overload < 1)
    return Figures(
        itl=state.itl * slower,
        per_token=state.per_token * slower,
        itl_p95=itl_p95(fitted.tail, fitted.online, c, state) * slower,
        inverse_throughput=np.where(carried, asked, state.itl / state.running * slower),
        first_token=state.first_token * slower,
        running=state.running,
        demand=state.demand * slower,
        overload=overload,
        max_sequences=capacity(c).whole,
        idle_watts=watts.idle,
        power=watts.mean,
        active_rise=watts.active_rise,
        full_power=watts.full,
        step=state.step * slower,
        simulated=state.itl,
        correction=correction,
    )
