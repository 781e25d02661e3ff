"""Trees on what the simulator leaves: features, settings, fitting, predicting.

A correction of latency sees the model's shape and the batch, in which it never falls; for a measured GPU
also that GPU's figures *as trained*, whatever the question says of it. So a better GPU is never predicted
slower, and a higher load never faster, than the simulator has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xgboost
from numpy.typing import NDArray

from wattkeeper_predictor.engine.batch import Steady
from wattkeeper_predictor.engine.columns import Columns
from wattkeeper_predictor.engine.gpu_columns import GpuRow
from wattkeeper_predictor.engine.power import compute_share, read_share
from wattkeeper_predictor.engine.step import (
    TERM_NAMES,
    gflop_per_token,
    matrix_tflops,
    weight_gb_per_gpu,
)

Array = NDArray[np.float64]

MODEL_FEATURES: tuple[tuple[str, str], ...] = (
    ("layers", "count"),
    ("hidden", "count"),
    ("group", "query heads a KV head"),
    ("cache", "MB a token"),
    ("head_dim", "count"),
    ("gated", "0 or 1"),
    ("vocab", "count"),
    ("read_parameters", "10⁹"),
    ("tied", "0 or 1"),
    ("window_share", "share of cache layers"),
    ("width_over_depth", "hidden ÷ layers"),
    ("head_share", "share of read parameters"),
    ("running", "sequences"),
)
GPU_FEATURES: tuple[tuple[str, str], ...] = (
    ("bandwidth_gb_s", "GB/s"),
    ("tflops", "TFLOPS"),
    ("tdp_watts", "W"),
    ("old", "0 or 1"),
    ("gddr", "0 or 1"),
    ("boost_ghz", "GHz"),
    ("sm_ghz", "multiprocessors × GHz"),
    ("memory_gb", "10⁹ bytes"),
    ("process_nm", "nm"),
)
OFFLINE_POWER_FEATURES: tuple[tuple[str, str], ...] = (
    ("bandwidth_use", "share"),
    ("compute_use", "share"),
    ("running", "sequences"),
    ("compute_per_watt", "GFLOP/s a watt of TDP"),
    ("read_per_watt", "GB/s a watt of TDP"),
    ("log_tflops_per_watt", "ln(TFLOPS a watt of TDP)"),
    ("bandwidth_per_watt", "GB/s a watt of TDP, nominal"),
    *((f"share_{name}", "share of the step") for name in TERM_NAMES),
)
LOADED_POWER_FEATURES: tuple[tuple[str, str], ...] = (
    ("log_running", "ln(sequences)"),
    ("compute_share", "share"),
    ("read_share", "share, one sequence"),
    ("gpus", "count"),
    ("bytes_per_weight", "bytes"),
    ("mixture", "0 or 1"),
    ("hybrid", "0 or 1"),
)


@dataclass(frozen=True, slots=True)
class TreeKind:
    """One correction: what it sees, what it is told, and in which features it may not fall."""

    features: tuple[tuple[str, str], ...]
    settings: Mapping[str, float]
    trees: int
    rising: tuple[str, ...] = ()
    objective: str = "reg:squarederror"


_SAMPLING = {"subsample": 0.7, "colsample_bynode": 0.5}
# Losses grow with the error, not with its square, since a few models err greatly (those of empty outputs).
# Pseudo-Huber keeps the constraints; the absolute loss, whose leaves are medians, doesn't.
_SEEN_ONLINE = {
    **_SAMPLING, "max_depth": 5, "reg_lambda": 20, "eta": 0.05, "min_child_weight": 10, "huber_slope": 0.01,
}  # fmt: skip
_SEEN_OFFLINE = {**_SAMPLING, "max_depth": 5, "reg_lambda": 5, "eta": 0.05, "min_child_weight": 3}
_UNSEEN = {**_SAMPLING, "max_depth": 4, "reg_lambda": 60, "eta": 0.05, "min_child_weight": 20}
_POWER = {
    "subsample": 0.9, "colsample_bynode": 0.7,
    "max_depth": 4, "reg_lambda": 20, "eta": 0.05, "min_child_weight": 5,
}  # fmt: skip
_LOADED = {
    "subsample": 0.5, "colsample_bynode": 0.4, "num_parallel_tree": 5,
    "max_depth": 3, "reg_lambda": 50, "eta": 0.05, "min_child_weight": 5,
}  # fmt: skip
_ABSOLUTE = "reg:absoluteerror"
_SEEN_FEATURES = (*MODEL_FEATURES, *GPU_FEATURES)
TREE_KINDS: Mapping[str, TreeKind] = {
    "online_seen": TreeKind(_SEEN_FEATURES, _SEEN_ONLINE, 400, ("running",), "reg:pseudohubererror"),
    "online_unseen": TreeKind(MODEL_FEATURES, _UNSEEN, 200, ("running",)),
    "offline_seen": TreeKind(_SEEN_FEATURES, _SEEN_OFFLINE, 400, (), _ABSOLUTE),
    "offline_unseen": TreeKind(MODEL_FEATURES, _UNSEEN, 200),
    "offline_power": TreeKind(OFFLINE_POWER_FEATURES, _POWER, 300, (), _ABSOLUTE),
    "loaded_power": TreeKind(LOADED_POWER_FEATURES, _LOADED, 150, ("log_running", "compute_share")),
}
_FIXED = {"nthread": 1, "seed": 0, "tree_method": "hist"}


def fit_trees(kind: TreeKind, features: Array, target: Array) -> xgboost.Booster:
    """Boosted trees, starting at the target's median (absolute loss) or mean."""
    base = float(np.median(target) if kind.objective == _ABSOLUTE else np.mean(target))
    parameters = {
        **_FIXED,
        **kind.settings,
        "objective": kind.objective,
        "base_score": float(f"{base:.6g}"),
        "monotone_constraints": tuple(int(name in kind.rising) for name, _ in kind.features),
    }
    return xgboost.train(parameters, xgboost.DMatrix(features, target), kind.trees)


def apply_trees(booster: xgboost.Booster, features: Array) -> Array:
    """The booster's output, one value a row."""
    output: Array = np.asarray(
        booster.inplace_predict(features.astype(np.float32), validate_features=False), dtype=np.float64
    )
    return output


def model_features(c: Columns, running: Array) -> Array:
    """``MODEL_FEATURES``, one row a question."""
    read = c.dense_billion + c.expert_billion
    return np.column_stack(
        [
            c.layers,
            c.hidden,
            c.group,
            (c.cache_full_gb + c.cache_window_gb) * 1e3,
            c.head_dim,
            c.gated,
            c.vocab,
            read,
            c.tied,
            c.window_share,
            c.hidden / c.layers,
            c.head_billion / read,
            running,
        ]
    )


def gpu_features(rows: list[GpuRow]) -> Array:
    """``GPU_FEATURES`` of GPUs as trained, one row each."""
    return np.array([[getattr(row, name) for name, _ in GPU_FEATURES] for row in rows], dtype=np.float64)


def offline_power_features(c: Columns, state: Steady) -> Array:
    """``OFFLINE_POWER_FEATURES``, one row a question."""
    step = state.terms.total()
    read = weight_gb_per_gpu(c, state.running) / step
    gflops = gflop_per_token(c) * state.running / step
    shares = [getattr(state.terms, name) / step for name in TERM_NAMES]
    use = (read / c.bandwidth_gb_s, gflops / (1e3 * matrix_tflops(c)))
    nominal = (np.log(c.tflops / c.tdp_watts), c.bandwidth_gb_s / c.tdp_watts)
    per_watt = (gflops / c.tdp_watts, read / c.tdp_watts)
    return np.column_stack([*use, state.running, *per_watt, *nominal, *shares])


def loaded_power_features(c: Columns, state: Steady) -> Array:
    """``LOADED_POWER_FEATURES``, one row a question."""
    return np.column_stack(
        [
            np.log(state.running),
            compute_share(c, state),
            read_share(c, state.single),
            c.gpus,
            c.bytes_per_weight,
            c.mixture,
            c.hybrid,
        ]
    )
