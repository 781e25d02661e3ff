"""Questions as a structure of arrays: one element a question, every array of shape (n,).

Equal GPUs, models, serving configurations and workloads are worked out once, so that a fleet of a
thousand candidates costs little more than its distinct members.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.quantization import effective_quantization
from wattkeeper_predictor.specs import GpuSpec, ModelSpec, ServingConfig, Workload

from .gpu_columns import GpuRow, gpu_row
from .model_columns import ModelRow, model_row

Array = NDArray[np.float64]
_Item = TypeVar("_Item")


class Question(NamedTuple):
    """What is asked: a model on ``serving.tensor_parallel_size`` GPUs, so loaded."""

    model: ModelSpec
    gpu: GpuSpec
    serving: ServingConfig
    workload: Workload


@dataclass(frozen=True, slots=True)
class Columns:
    """The simulator's input. Names and units are those of ``ModelRow`` and ``GpuRow``.

    ``rate`` is requests a second (0 offline), ``fixed_batch`` the number of running sequences where it is
    given instead of solved for (NaN elsewhere). ``queue`` is the number of requests that an offline run
    starts with (infinite: the queue is never empty) and ``longest_output`` the most tokens one of them
    generates; both matter to measured runs only.
    """

    # the model
    layers: Array
    hidden: Array
    intermediate: Array
    gated: Array
    vocab: Array
    head_dim: Array
    group: Array
    kv_heads: Array
    dense_billion: Array
    head_billion: Array
    expert_billion: Array
    expert_share: Array
    active_billion: Array
    cache_full_gb: Array
    cache_window_gb: Array
    cache_layers: Array
    window_tokens: Array
    window_share: Array
    mixture: Array
    hybrid: Array
    tied: Array
    bytes_per_weight: Array
    quantized: Array
    eight_bit: Array
    weights_gb: Array
    # the GPU
    bandwidth_gb_s: Array
    tflops: Array
    fp8_speedup: Array
    tdp_watts: Array
    process_nm: Array
    boost_ghz: Array
    sm_ghz: Array
    old: Array
    gddr: Array
    hopper: Array
    link_gb_s: Array
    pcie: Array
    memory_gb: Array
    large: Array
    # how it is served
    gpus: Array
    expert_parallel: Array
    sequence_limit: Array
    utilization: Array
    # the load
    offline: Array
    rate: Array
    prompt: Array
    output: Array
    fixed_batch: Array
    queue: Array
    longest_output: Array

    def __len__(self) -> int:
        return len(self.layers)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Columns:
        """The questions at these positions, or where the mask holds."""
        return Columns(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def replace(self, **changed: Array) -> Columns:
        """The same with some arrays replaced."""
        return Columns(
            **{field.name: changed.get(field.name, getattr(self, field.name)) for field in fields(self)}
        )


class _ServingRow(NamedTuple):
    gpus: float
    expert_parallel: float
    sequence_limit: float  # NaN: the engine's default
    utilization: float


class _WorkloadRow(NamedTuple):
    offline: float
    rate: float
    prompt: float
    output: float


_MODEL = ModelRow._fields
_GPU = GpuRow._fields


def columns_of(questions: Sequence[Question]) -> Columns:
    """Arrange questions; raises ``InvalidInput`` for an unknown weight format."""
    # Keyed by identity: hashing a specification a thousand times costs more than working one out twice.
    model_values, model_at = _distinct(
        (((id(q.model), q.serving.quantization), (q.model, q.serving.quantization)) for q in questions),
        _model_of,
    )
    gpu_values, gpu_at = _distinct(((id(q.gpu), q.gpu) for q in questions), gpu_row)
    serving_values, serving_at = _distinct(((id(q.serving), q.serving) for q in questions), _serving_of)
    work_values, work_at = _distinct(((id(q.workload), q.workload) for q in questions), _workload_of)
    count = len(questions)
    arrays = {
        **_spread(_MODEL, model_values, model_at),
        **_spread(_GPU, gpu_values, gpu_at),
        **_spread(_ServingRow._fields, serving_values, serving_at),
        **_spread(_WorkloadRow._fields, work_values, work_at),
    }
    default = np.where(arrays["large"] > 0, 1024.0, 256.0)
    arrays["sequence_limit"] = np.where(np.isnan(arrays["sequence_limit"]), default, arrays["sequence_limit"])
    return Columns(
        **arrays,
        fixed_batch=np.full(count, np.nan),
        queue=np.full(count, np.inf),
        longest_output=arrays["output"].copy(),
    )


def _distinct(
    items: Iterable[tuple[Hashable, _Item]], row: Callable[[_Item], Sequence[float]]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """The rows of the items with distinct keys, and which of them each item has."""
    places: dict[Hashable, int] = {}
    rows: list[Sequence[float]] = []
    at: list[int] = []
    for key, item in items:
        place = places.get(key)
        if place is None:
            place = places[key] = len(rows)
            rows.append(row(item))
        at.append(place)
    return np.array(rows, dtype=np.float64), np.array(at, dtype=np.intp)


def _spread(names: Sequence[str], values: NDArray[np.float64], at: NDArray[np.intp]) -> dict[str, Array]:
    return {name: values[:, column][at] for column, name in enumerate(names)}


def _model_of(item: tuple[ModelSpec, str]) -> ModelRow:
    model, asked = item
    return model_row(model, effective_quantization(model, ServingConfig(quantization=asked)))


def _serving_of(serving: ServingConfig) -> _ServingRow:
    return _ServingRow(
        gpus=serving.tensor_parallel_size,
        expert_parallel=float(serving.expert_parallel),
        sequence_limit=float("nan") if serving.max_sequences is None else serving.max_sequences,
        utilization=serving.gpu_memory_utilization,
    )


def _workload_of(workload: Workload) -> _WorkloadRow:
    offline = workload.scenario == "Offline"
    return _WorkloadRow(
        offline=float(offline),
        rate=0.0 if offline else workload.requests_per_second or 0.0,
        prompt=workload.prompt_tokens,
        output=workload.output_tokens,
    )
