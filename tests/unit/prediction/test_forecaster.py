"""The Forecaster port over the shipped predictor: real artifacts, real catalogues."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import pytest

from wattkeeper.api.v1alpha1.llmdeployment import Model
from wattkeeper.core.demand import ModelChoice, Scenario, Sla, Statistic, WorkloadShape
from wattkeeper.core.forecast import Forecast, GpuKind, MemoryFit, Refusal, RefusalReason
from wattkeeper.prediction import ForecasterError, PredictorForecaster

LLAMA = ModelChoice("meta-llama/Llama-3.1-8B-Instruct")
HIGH = WorkloadShape(Scenario.SERVER, 0.33, 256, 256)
SLA = Sla(0.05)
L4, A30, H100 = GpuKind("NVIDIA-L4"), GpuKind("NVIDIA-A30"), GpuKind("NVIDIA-H100-NVL")
#: config.json of Llama-3.1-8B as Hugging Face spells it, for a model under another name.
LLAMA_CONFIG = MappingProxyType(
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
)


@pytest.fixture(scope="module")
def forecaster() -> PredictorForecaster:
    return PredictorForecaster()


def figures(forecaster: PredictorForecaster, gpu: GpuKind, **changes: object) -> Forecast:
    asked = {"model": LLAMA, "workload": HIGH, "sla": SLA, "tensor_parallel_size": 1, **changes}
    answer = forecaster.forecast(gpu=gpu, **asked)  # type: ignore[arg-type]
    assert isinstance(answer, Forecast), answer
    return answer


def refusal(answer: object) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer


@pytest.mark.parametrize("quantization", get_args(Model.model_fields["quantization"].annotation))
def test_every_format_of_the_api_is_one_of_the_predictors(
    forecaster: PredictorForecaster, quantization: str
) -> None:
    model = replace(LLAMA, quantization=quantization)
    fit = forecaster.memory(model, H100, HIGH, 1)
    assert isinstance(fit, MemoryFit)
    if quantization != "none":
        assert fit.weight_bytes < 10e9
        answer = refusal(forecaster.forecast(model, H100, HIGH, SLA, 1))
        assert answer.reason is RefusalReason.OUT_OF_PREDICTOR_RANGE
        assert (answer.field, quantization in answer.message) == ("spec.model.quantization", True)


@pytest.mark.parametrize(("gpu", "watts", "itl_ms"), [(H100, 201, 5.9), (A30, 139, 20.6), (L4, 71, 62)])
def test_what_was_measured_comes_back(
    forecaster: PredictorForecaster, gpu: GpuKind, watts: float, itl_ms: float
) -> None:
    """Llama-3.1-8B-Instruct at 0.33 requests a second, as measured in the Watt Counts runs."""
    answer = figures(forecaster, gpu)
    assert answer.power_watts == pytest.approx(watts, rel=0.02)
    assert answer.itl_seconds * 1000 == pytest.approx(itl_ms, rel=0.02)
    assert answer.power_watts < answer.power_upper_watts < answer.power_watts * 1.5
    assert answer.itl_seconds < answer.itl_upper_seconds < answer.itl_seconds * 1.2


def test_a_surer_bound_is_no_lower(forecaster: PredictorForecaster) -> None:
    bounds = [
        figures(forecaster, L4, sla=replace(SLA, confidence_percent=percent)).itl_upper_seconds
        for percent in (50, 90, 99)
    ]
    assert bounds == sorted(bounds)


def test_gpus_by_the_names_that_nodes_give_them(forecaster: PredictorForecaster) -> None:
    assert forecaster.gpu_name(L4) == "L4"
    assert forecaster.gpu_name(GpuKind("NVIDIA-H100-80GB-HBM3", 81559 * 1024**2)) is not None
    assert forecaster.gpu_name(GpuKind("A100-PCIE-40GB")) == forecaster.gpu_name(
        GpuKind("NVIDIA-A100-PCIE-40GB")
    )


@pytest.mark.parametrize(
    "label",
    [
        "NVIDIA-FooBar-9000",
        "",
        "NVIDIA-H100-NVL-MIG-1g.12gb",
        "NVIDIA-L4-SHARED",
        "NVIDIA-A100-SXM4-80GB-MIG-INVALID",
    ],
)
def test_gpus_that_are_unknown_or_no_whole_ones(forecaster: PredictorForecaster, label: str) -> None:
    gpu = GpuKind(label)
    assert forecaster.gpu_name(gpu) is None
    for answer in (forecaster.memory(LLAMA, gpu, HIGH, 1), forecaster.forecast(LLAMA, gpu, HIGH, SLA, 1)):
        assert refusal(answer).reason is RefusalReason.UNKNOWN_GPU
        assert "GPUNodePool" in refusal(answer).message or "may be" in refusal(answer).message


def test_reported_memory_counts_not_the_catalogues(forecaster: PredictorForecaster) -> None:
    nominal = forecaster.memory(LLAMA, L4, HIGH, 1)
    less = forecaster.memory(LLAMA, GpuKind("NVIDIA-L4", 21 * 1024**3), HIGH, 1)
    assert isinstance(nominal, MemoryFit)
    assert isinstance(less, MemoryFit)
    assert less.usable_bytes < nominal.usable_bytes
    assert less.max_sequences < nominal.max_sequences
    assert less.weight_bytes == nominal.weight_bytes


def test_the_longest_context_that_fits_reaches_the_server(forecaster: PredictorForecaster) -> None:
    """Without it vLLM takes the model's own limit, and doesn't start where the cache can't hold that."""
    small, large = forecaster.memory(LLAMA, L4, HIGH, 1), forecaster.memory(LLAMA, H100, HIGH, 1)
    assert isinstance(small, MemoryFit)
    assert isinstance(large, MemoryFit)
    assert small.max_context_tokens is not None
    assert HIGH.prompt_tokens + HIGH.output_tokens < small.max_context_tokens < 65_536
    assert large.max_context_tokens == 131_072  # the model's own


def test_memory_that_contradicts_the_name_is_no_guess(forecaster: PredictorForecaster) -> None:
    found = refusal(forecaster.memory(LLAMA, GpuKind("NVIDIA-L4", 40 * 1024**3), HIGH, 1))
    assert found.reason is RefusalReason.UNKNOWN_GPU
    assert "but the nodes report 40.0 GiB" in found.message


def test_a_model_from_its_config_is_the_catalogues(forecaster: PredictorForecaster) -> None:
    own = ModelChoice("acme/llama", config=LLAMA_CONFIG)
    assert forecaster.check_model(own) is None
    assert forecaster.memory(own, L4, HIGH, 1) == forecaster.memory(LLAMA, L4, HIGH, 1)


@pytest.mark.parametrize(
    ("model", "reason", "field", "cure"),
    [
        (ModelChoice("acme/unheard-of"), RefusalReason.UNKNOWN_MODEL, "spec.model.id", "architecture"),
        (
            ModelChoice("acme/llama", config={**LLAMA_CONFIG, "num_key_value_heads": 7}),
            RefusalReason.INVALID_MODEL,
            "spec.model (config.num_key_value_heads)",
            "7",
        ),
        (
            ModelChoice("acme/llama", config={"model_type": "llama"}),
            RefusalReason.INVALID_MODEL,
            "spec.model (config.",
            "add it",
        ),
    ],
)
def test_models_that_cannot_be_read(
    forecaster: PredictorForecaster, model: ModelChoice, reason: RefusalReason, field: str, cure: str
) -> None:
    found = forecaster.check_model(model)
    assert found is not None
    assert found.reason is reason
    assert found.field.startswith(field)
    assert cure in found.message
    assert forecaster.memory(model, L4, HIGH, 1) == forecaster.forecast(model, L4, HIGH, SLA, 1) == found


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        (
            {"tensor_parallel_size": 2},
            RefusalReason.OUT_OF_PREDICTOR_RANGE,
            "spec.placement.tensorParallelSize",
        ),
        ({"sla": Sla(0.05, Statistic.P95)}, RefusalReason.OUT_OF_PREDICTOR_RANGE, "spec.sla.statistic"),
        (
            {"sla": Sla(0.05, ttft_seconds=1)},
            RefusalReason.OUT_OF_PREDICTOR_RANGE,
            "spec.sla.timeToFirstToken",
        ),
        (
            {"model": ModelChoice(LLAMA.id, quantization="fp8")},
            RefusalReason.OUT_OF_PREDICTOR_RANGE,
            "spec.model.quantization",
        ),
        (
            {"workload": replace(HIGH, requests_per_second=900.0)},
            RefusalReason.OUT_OF_PREDICTOR_RANGE,
            "spec.workload.",
        ),
    ],
)
def test_what_the_recipe_was_not_trained_on_is_refused(
    forecaster: PredictorForecaster, changes: dict[str, object], reason: RefusalReason, field: str
) -> None:
    asked = {"model": LLAMA, "workload": HIGH, "sla": SLA, "tensor_parallel_size": 1, **changes}
    found = refusal(forecaster.forecast(gpu=L4, **asked))  # type: ignore[arg-type]
    assert found.reason is reason
    assert found.field.startswith(field)


def test_what_gpu_model_or_load_contradict(forecaster: PredictorForecaster) -> None:
    fp8 = ModelChoice(LLAMA.id, quantization="fp8")
    v100 = GpuKind("Tesla-V100-SXM2-16GB")
    found = refusal(forecaster.memory(fp8, v100, HIGH, 1))
    assert (found.reason, found.field) == (RefusalReason.UNSUPPORTED_BY_GPU, "spec.model.quantization")
    too_long = replace(HIGH, prompt_tokens=10_000_000)
    found = refusal(forecaster.memory(LLAMA, L4, too_long, 1))
    assert (found.reason, found.field) == (RefusalReason.INVALID_WORKLOAD, "spec.workload.promptTokens")
    sizes = {"num_attention_heads": 28, "num_key_value_heads": 7, "hidden_size": 3584, "head_dim": 128}
    heads = ModelChoice("acme/odd", config={**LLAMA_CONFIG, **sizes})
    found = refusal(forecaster.memory(heads, L4, HIGH, 8))
    assert (found.reason, found.field) == (
        RefusalReason.UNSUPPORTED_PARALLELISM,
        "spec.placement.tensorParallelSize",
    )


def test_the_same_question_is_answered_once(forecaster: PredictorForecaster) -> None:
    first = figures(forecaster, A30)
    assert figures(forecaster, A30) is first
    # The bound of the SLA isn't part of the question, its statistic and confidence are.
    assert figures(forecaster, A30, sla=Sla(0.001)) is first
    assert figures(forecaster, A30, sla=Sla(0.05, confidence_percent=95)) is not first


def test_damaged_artifacts_are_said_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ForecasterError, match=r"artifact|manifest|missing"):
        PredictorForecaster(tmp_path).load()
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ForecasterError):
        PredictorForecaster(tmp_path).forecast(LLAMA, L4, HIGH, SLA, 1)


def test_nothing_heavy_is_loaded_before_the_first_question() -> None:
    code = (
        "import sys, json, wattkeeper.prediction as p; p.PredictorForecaster();"
        "print(json.dumps([m for m in ('xgboost', 'numpy', 'wattkeeper_predictor') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
