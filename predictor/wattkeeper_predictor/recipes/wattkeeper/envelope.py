"""Where the recipe may speak, and what makes its bounds wider than a regime's own.

Refused is only what no engine runs or nothing was ever fitted to (another maker's GPU). Everything else is
answered, with bounds that say how much the data supports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from wattkeeper_predictor.engine.gpu_columns import filled_in
from wattkeeper_predictor.errors import InvalidInput, OutOfPredictorRange
from wattkeeper_predictor.prediction import Query, Refused
from wattkeeper_predictor.quantization import check_gpu_runs, effective_quantization
from wattkeeper_predictor.specs import GpuSpec, ModelSpec

LEAST_CAPABILITY = (7, 0)
#: Weight formats of which training holds rows.
MEASURED_FORMATS = frozenset({"none", "fp8", "mxfp4"})
# Bounds widen by this share of the distance outside of training's range (a quarter of its logarithm).
_WIDER_BY_DISTANCE = 0.25


class Checks:
    """Refusals and guesses of many questions; what depends on one object is looked at once. Not kept longer
    than the questions, whose identities it goes by."""

    def __init__(self) -> None:
        self._formats: dict[tuple[int, str], str | InvalidInput] = {}
        self._gpus: dict[tuple[int, str], Refused | None] = {}

    def refusal(self, query: Query) -> Refused | None:
        """Why the question can't be answered, or None."""
        quantization = self.format_of(query)
        if isinstance(quantization, InvalidInput):
            return quantization
        key = (id(query.gpu), quantization)
        if key not in self._gpus:
            self._gpus[key] = _gpu_refusal(query.gpu, quantization)
        return self._gpus[key] or _split_refusal(query)

    def format_of(self, query: Query) -> str | InvalidInput:
        """The format that the weights are really in."""
        key = (id(query.model), query.serving.quantization)
        found = self._formats.get(key)
        if found is None:
            try:
                found = effective_quantization(query.model, query.serving)
            except InvalidInput as wrong:
                found = wrong
            self._formats[key] = found
        return found

    def guesses(self, query: Query) -> list[str]:
        """What is answered by judgement, since nothing like it was measured; each widens the bounds."""
        said = []
        quantization = self.format_of(query)
        if quantization not in MEASURED_FORMATS:
            said.append(f"no run in {quantization} was measured; its definition gives bytes and rates")
        if query.serving.tensor_parallel_size > 1 and not query.gpu.nvlink_gb_s:
            said.append(f"{query.gpu.name} has no NVLink known; exchange over PCIe was never measured")
        return said


def _gpu_refusal(gpu: GpuSpec, quantization: str) -> Refused | None:
    try:
        check_gpu_runs(quantization, gpu)
    except InvalidInput as wrong:
        return wrong
    if gpu.vendor != "NVIDIA":
        return OutOfPredictorRange(
            "gpu", f"{gpu.name} is made by {gpu.vendor}; the recipe is fitted to NVIDIA GPUs"
        )
    if gpu.capability is not None and gpu.capability < LEAST_CAPABILITY:
        return OutOfPredictorRange(
            "gpu",
            f"{gpu.name} has compute capability {gpu.compute_capability}; engines need "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}, so choose a newer GPU",
        )
    return None


def _split_refusal(query: Query) -> Refused | None:
    model, parallel = query.model, query.serving.tensor_parallel_size
    if model.attention_heads % parallel == 0:
        return None
    return InvalidInput(
        "serving.tensor_parallel_size",
        f"{model.attention_heads} attention heads of {model.id} can't be split over {parallel} GPUs; "
        "choose a size that divides them",
    )


def overloaded(query: Query, demand: float, room: float) -> OutOfPredictorRange:
    """The load is more than the replica can ever work off."""
    return OutOfPredictorRange(
        "workload.requests_per_second",
        f"keeps {demand:.0f} requests at work on average, but {room:.0f} can run at once on "
        f"{query.serving.tensor_parallel_size} × {query.gpu.name}: they pile up; spread the load over more "
        "replicas",
    )


def gpu_values(gpu: GpuSpec) -> Mapping[str, float | None]:
    """What is compared with training's ranges."""
    return {
        "gpu.memory_bandwidth_gb_s": gpu.memory_bandwidth_gb_s,
        "gpu.tdp_watts": gpu.tdp_watts,
        "gpu.fp16_dense_tflops": gpu.fp16_dense_tflops,
    }


def model_values(model: ModelSpec) -> Mapping[str, float | None]:
    """What is compared with training's ranges."""
    return {
        "model.parameters_total_billion": model.parameters_total_billion,
        "model.layers": float(model.layers),
        "model.hidden_size": float(model.hidden_size),
    }


def outside(
    values: Mapping[str, float | None], ranges: Mapping[str, Sequence[float]]
) -> tuple[tuple[str, ...], float]:
    """Names of values outside of their range, and the factor by which bounds widen for them."""
    names, factor = [], 1.0
    for name, value in values.items():
        if value is None or name not in ranges:
            continue
        least, most = ranges[name]
        if value < least * (1 - 1e-6) or value > most * (1 + 1e-6):
            names.append(name)
            distance = math.log(value / most if value > most else least / value)
            factor *= math.exp(_WIDER_BY_DISTANCE * distance)
    return tuple(names), factor


def filled(gpu: GpuSpec) -> str | None:
    """Which figures of the GPU stand-ins replace."""
    names = ", ".join(filled_in(gpu))
    return f"not known of {gpu.name}: {names}; its generation's usual values stand in" if names else None
