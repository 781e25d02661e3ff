"""The core's Forecaster port over the embedded predictor: values in, figures or a refusal out.

Artifacts and catalogues are loaded at the first question; afterwards there is no I/O. Answers are kept by
(model, GPU, tensor parallel size, quantization, load), so that looking again at a large fleet costs little.
What the predictor raises becomes a refusal that names the field as users write it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from wattkeeper.core.demand import ModelChoice, Sla, WorkloadShape
from wattkeeper.core.forecast import Forecast, GpuKind, MemoryFit, Refusal, RefusalReason

if TYPE_CHECKING:
    from wattkeeper_predictor.predictor import Predictor
    from wattkeeper_predictor.specs import GpuSpec, ModelSpec, ServingConfig, Workload

_MIB = 1024**2
_KEPT_ANSWERS = 65_536  # a few hundred bytes each
_KEPT_NAMES = 4_096

#: The predictor's names of inputs, as users of the API write them. The longest that fits is taken.
_FIELDS: Mapping[str, str] = {
    "model": "spec.model",
    "model.id": "spec.model.id",
    "gpu": "nvidia.com/gpu.product",
    "workload": "spec.workload",
    "workload.scenario": "spec.workload.scenario",
    "workload.requests_per_second": "spec.workload.requestsPerSecond",
    "workload.prompt_tokens": "spec.workload.promptTokens",
    "workload.output_tokens": "spec.workload.outputTokens",
    "serving.quantization": "spec.model.quantization",
    "serving.tensor_parallel_size": "spec.placement.tensorParallelSize",
    "sla.statistic": "spec.sla.statistic",
    "sla.confidence_percent": "spec.sla.predictionConfidencePercent",
    "sla.time_to_first_token": "spec.sla.timeToFirstToken",
}


class ForecasterError(RuntimeError):
    """Nothing can be predicted at all: artifacts or catalogues are missing or damaged."""


class PredictorForecaster:
    """`wattkeeper.core.forecast.Forecaster` over `wattkeeper_predictor`.

    `artifacts` is a folder of trained files, by default those in the package. Any question may raise
    ForecasterError if they, or the package's catalogues, are missing or damaged; the message names the cure.
    """

    def __init__(self, artifacts: Path | None = None) -> None:
        self._artifacts = artifacts
        self._gpu = lru_cache(_KEPT_NAMES)(self._find_gpu)
        self._model = lru_cache(_KEPT_NAMES)(self._find_model)
        self._memory = lru_cache(_KEPT_ANSWERS)(self._account_memory)
        self._forecast = lru_cache(_KEPT_ANSWERS)(self._predict)

    def load(self) -> None:
        """Load the artifacts now, so that what is wrong with them shows at the start."""
        _ = self._predictor

    def gpu_name(self, gpu: GpuKind) -> str | None:
        spec = self._gpu(gpu)
        return None if isinstance(spec, Refusal) else spec.name

    def check_model(self, model: ModelChoice) -> Refusal | None:
        spec = self._model(model.id, _config_text(model))
        return spec if isinstance(spec, Refusal) else None

    def memory(
        self, model: ModelChoice, gpu: GpuKind, workload: WorkloadShape, tensor_parallel_size: int
    ) -> MemoryFit | Refusal:
        model_spec, gpu_spec = self._model(model.id, _config_text(model)), self._gpu(gpu)
        if isinstance(model_spec, Refusal):
            return model_spec
        if isinstance(gpu_spec, Refusal):
            return gpu_spec
        return self._memory(model_spec, gpu_spec, workload, model.quantization, tensor_parallel_size)

    def forecast(
        self, model: ModelChoice, gpu: GpuKind, workload: WorkloadShape, sla: Sla, tensor_parallel_size: int
    ) -> Forecast | Refusal:
        model_spec, gpu_spec = self._model(model.id, _config_text(model)), self._gpu(gpu)
        if isinstance(model_spec, Refusal):
            return model_spec
        if isinstance(gpu_spec, Refusal):
            return gpu_spec
        # Of the SLA, only what the figures depend on, so that the answer serves every bound.
        asked = (sla.statistic.value, sla.confidence_percent, sla.ttft_seconds is not None)
        return self._forecast(
            model_spec, gpu_spec, workload, model.quantization, tensor_parallel_size, *asked
        )

    @cached_property
    def _predictor(self) -> Predictor:
        # numpy and xgboost take half a second to import: only where something is predicted.
        from wattkeeper_predictor.errors import ArtifactError  # noqa: PLC0415
        from wattkeeper_predictor.predictor import Predictor  # noqa: PLC0415

        try:
            return Predictor.load(self._artifacts)
        except ArtifactError as error:
            raise ForecasterError(str(error)) from error

    def _find_gpu(self, gpu: GpuKind) -> GpuSpec | Refusal:
        from wattkeeper_predictor.catalog.gpus import GpuCatalogue  # noqa: PLC0415
        from wattkeeper_predictor.errors import ArtifactError  # noqa: PLC0415

        try:
            catalogue = GpuCatalogue.load()
        except ArtifactError as error:
            raise ForecasterError(str(error)) from error
        memory_mib = gpu.memory_bytes / _MIB if gpu.memory_bytes else None
        match = catalogue.lookup(gpu.label, memory_mib=memory_mib)
        if match.gpu_name is None or match.mig or match.mig_invalid or match.shared:
            otherwise = catalogue.match(gpu.label) if memory_mib and not match.candidates else None
            return _unknown_gpu(gpu, match.candidates, match.incomplete, otherwise)
        spec = catalogue.get(match.gpu_name)
        # What the driver reports on these very nodes counts, not the catalogue's figure for its kind.
        return replace(spec, memory_bytes=gpu.memory_bytes) if gpu.memory_bytes else spec

    def _find_model(self, model_id: str, config_text: str | None) -> ModelSpec | Refusal:
        from wattkeeper_predictor.catalog.models import ModelCatalogue  # noqa: PLC0415
        from wattkeeper_predictor.errors import PredictorError  # noqa: PLC0415
        from wattkeeper_predictor.hf_config import model_from_config  # noqa: PLC0415

        try:
            if config_text is not None:
                return model_from_config(model_id, json.loads(config_text))
            return ModelCatalogue.load().get(model_id)
        except PredictorError as error:
            return _refusal(error)

    def _account_memory(
        self, model: ModelSpec, gpu: GpuSpec, shape: WorkloadShape, quantization: str, gpus: int
    ) -> MemoryFit | Refusal:
        from wattkeeper_predictor.errors import PredictorError  # noqa: PLC0415
        from wattkeeper_predictor.memory import memory_fit  # noqa: PLC0415

        try:
            fit = memory_fit(model, gpu, _serving(quantization, gpus), _workload(shape))
        except PredictorError as error:
            return _refusal(error)
        return MemoryFit(
            weight_bytes=fit.weight_bytes,
            kv_bytes_per_token=fit.kv_bytes_per_token,
            required_bytes=fit.required_bytes,
            usable_bytes=fit.usable_bytes,
            max_sequences=fit.max_sequences,
            kv_bytes_per_sequence=fit.kv_bytes_per_sequence,
            max_context_tokens=fit.max_context_tokens,
        )

    def _predict(  # noqa: PLR0913, PLR0917 - the key under which the answer is kept
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        shape: WorkloadShape,
        quantization: str,
        gpus: int,
        statistic: str,
        confidence_percent: int,
        time_to_first_token: bool,
    ) -> Forecast | Refusal:
        from wattkeeper_predictor.errors import PredictorError  # noqa: PLC0415

        try:
            prediction = self._predictor.predict(
                model,
                gpu,
                _workload(shape),
                _serving(quantization, gpus),
                confidence_percent=confidence_percent,
                statistic="P95" if statistic == "P95" else "Mean",
                time_to_first_token=time_to_first_token,
            )
        except PredictorError as error:
            return _refusal(error)
        return Forecast(
            power_watts=prediction.power_watts,
            power_upper_watts=prediction.power_upper_watts,
            itl_seconds=prediction.itl_seconds,
            itl_upper_seconds=prediction.itl_upper_seconds,
            notes=prediction.notes,
        )


def _config_text(model: ModelChoice) -> str | None:
    """The config as a key: mappings can't be one."""
    return None if model.config is None else json.dumps(dict(model.config), sort_keys=True)


def _workload(shape: WorkloadShape) -> Workload:
    from wattkeeper_predictor.specs import Workload  # noqa: PLC0415

    return Workload(
        scenario=shape.scenario.value,
        requests_per_second=shape.requests_per_second,
        prompt_tokens=shape.prompt_tokens,
        output_tokens=shape.output_tokens,
    )


def _serving(quantization: str, tensor_parallel_size: int) -> ServingConfig:
    from wattkeeper_predictor.specs import ServingConfig  # noqa: PLC0415

    return ServingConfig(quantization=quantization, tensor_parallel_size=tensor_parallel_size)


def _unknown_gpu(
    gpu: GpuKind, candidates: tuple[str, ...], missing: tuple[str, ...], otherwise: GpuSpec | None
) -> Refusal:
    """`otherwise`: the GPU that it would be but for its memory."""
    if otherwise is not None and gpu.memory_bytes:
        known, said = (f"{size / 1024**3:.1f} GiB" for size in (otherwise.memory_bytes, gpu.memory_bytes))
        why = f"has {known}, but the nodes report {said}: correct the label that is wrong"
    elif candidates:
        why = f"may be {' or '.join(candidates)}: install GPU feature discovery, whose labels tell them apart"
    elif missing:
        why = f"is known by name only ({', '.join(missing)} weren't found): use another GPU"
    else:
        why = "isn't in the catalogue: correct the label, or write a GPUNodePool with spec.gpu"
    return Refusal(RefusalReason.UNKNOWN_GPU, _FIELDS["gpu"], f"{gpu.label!r} {why}")


def _refusal(error: Exception) -> Refusal:
    """The refusal that a predictor's error stands for."""
    from wattkeeper_predictor.errors import (  # noqa: PLC0415
        InvalidInput,
        OutOfPredictorRange,
        UnknownGpu,
        UnknownModel,
    )

    if not isinstance(error, (InvalidInput, OutOfPredictorRange)):
        raise ForecasterError(str(error)) from error
    message = error.message
    if isinstance(error, UnknownModel):
        reason = RefusalReason.UNKNOWN_MODEL
        message += " (spec.model.architecture or spec.model.configMapRef)"
    elif isinstance(error, UnknownGpu):
        reason = RefusalReason.UNKNOWN_GPU
    elif isinstance(error, OutOfPredictorRange):
        reason = RefusalReason.OUT_OF_PREDICTOR_RANGE
    else:
        reason = _reason_of_invalid(error.field)
    return Refusal(reason, _field(error.field), message)


def _reason_of_invalid(field: str) -> RefusalReason:
    """What contradicts what: the model itself, or its combination with GPU, size or load."""
    by_start = {
        "serving.quantization": RefusalReason.UNSUPPORTED_BY_GPU,
        "serving.tensor_parallel_size": RefusalReason.UNSUPPORTED_PARALLELISM,
        "workload": RefusalReason.INVALID_WORKLOAD,
        "gpu": RefusalReason.UNKNOWN_GPU,
    }
    return next(
        (reason for start, reason in by_start.items() if field.startswith(start)), RefusalReason.INVALID_MODEL
    )


def _field(field: str) -> str:
    """The predictor's field as users write it; a part that they don't write is added in brackets."""
    known = max(
        (name for name in _FIELDS if field == name or field.startswith(f"{name}.")), key=len, default=""
    )
    if not known:
        return field
    rest = field.removeprefix(known).removeprefix(".")
    return f"{_FIELDS[known]} ({rest})" if rest else _FIELDS[known]
