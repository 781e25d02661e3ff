"""What the trees see: features in order, with their units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.specs import GpuSpec, ModelSpec

_BYTES_PER_WEIGHT = 2
_UNSEEN_CATEGORY = -1.0


class Case(NamedTuple):
    """What is predicted: a model on a GPU at a load level."""

    model: ModelSpec
    gpu: GpuSpec
    level: Level


@dataclass(frozen=True, slots=True)
class Feature:
    """A column: categories are coded by their place among the sorted ones of the training data."""

    name: str
    unit: str
    value: Callable[[Case], float | str | None]


@dataclass(frozen=True, slots=True)
class Encoding:
    """What was learned about the columns in training.

    ``means`` stand in for figures that aren't known of a GPU, as in the paper's code.
    """

    categories: Mapping[str, tuple[str, ...]]
    means: Mapping[str, float]


def bandwidth_latency_seconds(model: ModelSpec, gpu: GpuSpec) -> float:
    """Time to read all weights in 16 bits once."""
    return _BYTES_PER_WEIGHT * model.parameters_total_billion / gpu.memory_bandwidth_gb_s


def compute_latency_seconds(model: ModelSpec, gpu: GpuSpec) -> float | None:
    """Time for the operations of one token at the GPU's dense 16-bit rate."""
    if gpu.fp16_dense_tflops is None:
        return None
    return 2 * model.parameters_total_billion / (gpu.fp16_dense_tflops * 1e3)


def _boost_ratio(case: Case) -> float | None:
    base, boost = case.gpu.base_clock_mhz, case.gpu.boost_clock_mhz
    return boost / base if base and boost else None


_SCENARIO = Feature("scenario", "0 offline, 1 low, 2 high", lambda case: float(case.level))
_MODEL_TYPE = Feature("model_type", "category", lambda case: case.model.model_type)
_KV_HEADS = Feature("kv_heads", "count", lambda case: case.model.kv_heads)
_LAYERS = Feature("layers", "count", lambda case: case.model.layers)
_BANDWIDTH = Feature("memory_bandwidth", "GB/s", lambda case: case.gpu.memory_bandwidth_gb_s)
_RELEASE_YEAR = Feature("release_year", "year", lambda case: case.gpu.release_year)
_BANDWIDTH_LATENCY = Feature("bandwidth_latency", "s", lambda case: bandwidth_latency_seconds(*case[:2]))

POWER_FEATURES: tuple[Feature, ...] = (
    _SCENARIO,
    Feature("log_parameters", "ln(10⁹)", lambda case: math.log(case.model.parameters_total_billion)),
    _MODEL_TYPE,
    _KV_HEADS,
    _LAYERS,
    _BANDWIDTH,
    Feature("boost_ratio", "boost ÷ base clock", _boost_ratio),
    Feature("transistors", "10⁶", lambda case: case.gpu.transistors_millions),
    Feature("base_clock", "MHz", lambda case: case.gpu.base_clock_mhz),
    _RELEASE_YEAR,
    _BANDWIDTH_LATENCY,
)
ITL_FEATURES: tuple[Feature, ...] = (
    _SCENARIO,
    _MODEL_TYPE,
    Feature("parameters", "10⁹", lambda case: case.model.parameters_total_billion),
    Feature("hidden_size", "count", lambda case: case.model.hidden_size),
    Feature("attention_heads", "count", lambda case: case.model.attention_heads),
    _KV_HEADS,
    _LAYERS,
    _BANDWIDTH,
    Feature("memory_size", "GB", lambda case: case.gpu.memory_nominal_gb),
    Feature("memory_type", "category", lambda case: case.gpu.memory_type),
    Feature("fp16_dense", "TFLOPS", lambda case: case.gpu.fp16_dense_tflops),
    _RELEASE_YEAR,
    _BANDWIDTH_LATENCY,
    Feature("compute_latency", "s", lambda case: compute_latency_seconds(*case[:2])),
)
_CATEGORIES = frozenset({"model_type", "memory_type"})


def learn_encoding(features: Sequence[Feature], cases: Sequence[Case]) -> Encoding:
    """Categories and means of the training rows (a case a run, unaveraged)."""
    categories: dict[str, tuple[str, ...]] = {}
    means: dict[str, float] = {}
    for feature in features:
        values = [value for case in cases if (value := feature.value(case)) is not None]
        if feature.name in _CATEGORIES:
            categories[feature.name] = tuple(sorted({str(value) for value in values}))
        else:
            means[feature.name] = math.fsum(float(value) for value in values) / len(values)
    return Encoding(categories, means)


def encode(features: Sequence[Feature], encoding: Encoding, cases: Sequence[Case]) -> NDArray[np.float32]:
    """One row a case; equal cases are worked out once."""
    rows: dict[Case, list[float]] = {}
    for case in cases:
        if case not in rows:
            rows[case] = [_code(feature, encoding, case) for feature in features]
    return np.array([rows[case] for case in cases], dtype=np.float32).reshape(len(cases), len(features))


def unknown_features(features: Sequence[Feature], case: Case) -> tuple[str, ...]:
    """Names of the columns for which a training mean stands in."""
    return tuple(feature.name for feature in features if feature.value(case) is None)


def _code(feature: Feature, encoding: Encoding, case: Case) -> float:
    value = feature.value(case)
    if feature.name in _CATEGORIES:
        known = encoding.categories[feature.name]
        return float(known.index(str(value))) if value in known else _UNSEEN_CATEGORY
    return encoding.means[feature.name] if value is None else float(value)
