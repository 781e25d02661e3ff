"""The shipped recipe wattkeeper: what it answers, how sure it is, and what it promises of any input."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.predictor.samples import gpu_specs, model_specs
from wattkeeper_predictor import (
    GpuSpec,
    InvalidInput,
    ModelSpec,
    OutOfPredictorRange,
    Prediction,
    Predictor,
    ServingConfig,
    Workload,
)
from wattkeeper_predictor.cache import CachedPredictor
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.observation import Observed
from wattkeeper_predictor.prediction import Query
from wattkeeper_predictor.predictor import default_artifacts, query_of

WATTKEEPER = Predictor.load(default_artifacts("wattkeeper"))
GPUS, MODELS = GpuCatalogue.load(), ModelCatalogue.load()
LLAMA = MODELS.get("meta-llama/Llama-3.1-8B-Instruct")
NVIDIA = [
    gpu
    for gpu in map(GPUS.get, GPUS.names())
    if gpu.vendor == "NVIDIA" and (gpu.capability or (0, 0)) >= (7, 0)
]
KNOWN_MODELS = [MODELS.get(name) for name in MODELS.ids()[::7]]
MEASURED_LOAD = Workload(requests_per_second=0.33, prompt_tokens=15, output_tokens=254)
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

any_gpu = st.sampled_from(NVIDIA) | gpu_specs()
any_model = st.sampled_from(KNOWN_MODELS) | model_specs()
rates = st.floats(1e-3, 30)


def answer(
    model: ModelSpec, gpu: GpuSpec, work: Workload, serving: ServingConfig | None = None
) -> Prediction | None:
    try:
        return WATTKEEPER.predict(model, gpu, work, serving)
    except (InvalidInput, OutOfPredictorRange):
        return None


@pytest.mark.parametrize(
    ("gpu", "watts", "milliseconds"), [("H100 NVL", 201, 5.9), ("A30", 139, 20.6), ("L4", 71, 62)]
)
def test_the_papers_own_example(gpu: str, watts: float, milliseconds: float) -> None:
    found = WATTKEEPER.predict(LLAMA, GPUS.get(gpu), MEASURED_LOAD)
    assert found.regime == "Measured"
    assert found.power_watts == pytest.approx(watts, rel=0.04)
    assert found.itl_seconds * 1e3 == pytest.approx(milliseconds, rel=0.03)
    assert found.itl_upper_seconds < 1.05 * found.itl_seconds


@given(any_model, any_gpu, st.floats(1.001, 4), st.sampled_from([1, 15, 500, 4000]))
@QUICK
def test_more_bandwidth_never_slows_one_sequence(
    model: ModelSpec, gpu: GpuSpec, more: float, prompt: int
) -> None:
    faster = replace(gpu, memory_bandwidth_gb_s=gpu.memory_bandwidth_gb_s * more)
    work = Workload(requests_per_second=0.001, prompt_tokens=prompt, output_tokens=100)
    alone = ServingConfig(max_sequences=1)
    slow, fast = answer(model, gpu, work, alone), answer(model, faster, work, alone)
    if slow and fast:
        assert fast.itl_seconds <= slow.itl_seconds * (1 + 1e-12)


@given(any_model, any_gpu, rates, st.floats(1.001, 8), st.sampled_from([1, 2, 4, 8]))
@QUICK
def test_more_load_never_lowers_power_or_latency(
    model: ModelSpec, gpu: GpuSpec, rate: float, more: float, parallel: int
) -> None:
    serving = ServingConfig(tensor_parallel_size=parallel)
    work = Workload(requests_per_second=rate, prompt_tokens=200, output_tokens=200)
    low = answer(model, gpu, work, serving)
    high = answer(model, gpu, replace(work, requests_per_second=rate * more), serving)
    if low and high:
        assert high.power_watts >= low.power_watts * (1 - 1e-9)
        assert high.itl_seconds >= low.itl_seconds * (1 - 1e-9)


@given(any_model, any_gpu, st.integers(1, 30_000), st.integers(1, 30_000), st.integers(1, 30_000))
@QUICK
def test_a_longer_context_never_raises_the_sequences_that_fit(
    model: ModelSpec, gpu: GpuSpec, prompt: int, output: int, more: int
) -> None:
    work = Workload(requests_per_second=0.001, prompt_tokens=prompt, output_tokens=output)
    short = answer(model, gpu, work)
    for longer in (
        replace(work, prompt_tokens=prompt + more),
        replace(work, output_tokens=output + more),
    ):
        long = answer(model, gpu, longer)
        if short and long:
            assert (long.max_sequences or 0) <= (short.max_sequences or 0)


@given(
    any_model,
    any_gpu,
    rates,
    st.sampled_from(["none", "fp8", "awq", "mxfp4"]),
    st.sampled_from([1, 2, 8]),
    st.sampled_from(["Server", "Offline"]),
    st.floats(50, 99),
)
@QUICK
def test_answers_are_whole_and_in_order(
    model: ModelSpec,
    gpu: GpuSpec,
    rate: float,
    quantization: str,
    parallel: int,
    scenario: str,
    confidence: float,
) -> None:
    serving = ServingConfig(quantization=quantization, tensor_parallel_size=parallel)
    work = Workload(scenario=scenario, requests_per_second=rate, prompt_tokens=64, output_tokens=64)  # type: ignore[arg-type]
    try:
        found = WATTKEEPER.predict(model, gpu, work, serving, confidence_percent=confidence)
    except (InvalidInput, OutOfPredictorRange):
        return
    assert found.power_interval_watts and found.itl_interval_seconds
    assert found.worst_case_power_watts and found.idle_watts
    limit = gpu.tdp_watts * parallel * (1 + 1e-9)
    assert 0 < found.idle_watts <= found.power_watts <= found.power_upper_watts <= limit
    assert found.power_watts <= found.worst_case_power_watts <= limit
    assert found.power_interval_watts[0] <= found.power_watts <= found.power_interval_watts[1] <= limit
    assert found.itl_interval_seconds[0] <= found.itl_seconds <= found.itl_interval_seconds[1]
    assert found.itl_seconds <= found.itl_upper_seconds <= found.itl_interval_seconds[1] * (1 + 1e-9)
    assert found.itl_p95_seconds and found.itl_p95_upper_seconds
    assert found.itl_seconds <= found.itl_p95_seconds <= found.itl_p95_upper_seconds
    assert found.itl_upper_seconds <= found.itl_p95_upper_seconds * (1 + 1e-9)
    assert found.ttft_seconds and found.ttft_upper_seconds
    assert found.ttft_seconds <= found.ttft_upper_seconds
    for value in (found.energy_per_token_joules, found.inverse_throughput_seconds):
        assert value and math.isfinite(value) and value > 0


@given(any_model, any_gpu, st.floats(50, 98), st.floats(0.1, 1))
@QUICK
def test_surer_bounds_are_never_closer(
    model: ModelSpec, gpu: GpuSpec, confidence: float, more: float
) -> None:
    work = Workload(requests_per_second=0.01, prompt_tokens=64, output_tokens=64)
    found = []
    for level in (confidence, confidence + more):
        try:
            found.append(WATTKEEPER.predict(model, gpu, work, confidence_percent=level))
        except (InvalidInput, OutOfPredictorRange):
            return
    assert found[1].itl_upper_seconds >= found[0].itl_upper_seconds
    assert found[1].power_upper_watts >= found[0].power_upper_watts


def test_the_less_is_known_the_wider_the_bound() -> None:
    measured = WATTKEEPER.predict(LLAMA, GPUS.get("A30"), MEASURED_LOAD)
    other_model = WATTKEEPER.predict(MODELS.get("Qwen/Qwen3-8B"), GPUS.get("A30"), MEASURED_LOAD)
    other_gpu = WATTKEEPER.predict(LLAMA, GPUS.get("A10"), MEASURED_LOAD)
    both = WATTKEEPER.predict(MODELS.get("Qwen/Qwen3-4B"), GPUS.get("A10"), MEASURED_LOAD)
    ratios = [f.itl_upper_seconds / f.itl_seconds for f in (measured, other_model, other_gpu, both)]
    assert ratios == sorted(ratios)
    assert [f.regime for f in (measured, other_model, other_gpu, both)] == [
        "Measured", "UnseenModel", "UnseenGpu", "UnseenGpu"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "serving"),
    [
        ("Qwen/Qwen3-30B-A3B", ServingConfig()),
        ("Qwen/Qwen3-8B", ServingConfig(quantization="fp8")),
        ("Qwen/Qwen3-8B", ServingConfig(tensor_parallel_size=2)),
    ],
)
def test_kinds_that_the_data_barely_holds_are_answered_and_wide(model: str, serving: ServingConfig) -> None:
    work = Workload(requests_per_second=0.5, prompt_tokens=200, output_tokens=200)
    plain = WATTKEEPER.predict(MODELS.get("Qwen/Qwen3-8B"), GPUS.get("A100 SXM4 80GB"), work)
    kind = WATTKEEPER.predict(MODELS.get(model), GPUS.get("A100 SXM4 80GB"), work, serving)
    assert kind.itl_upper_seconds / kind.itl_seconds > plain.itl_upper_seconds / plain.itl_seconds
    assert any("GPU" in note for note in kind.notes)


def test_unmeasured_formats_and_links_say_so() -> None:
    awq = WATTKEEPER.predict(
        MODELS.get("Qwen/Qwen3-8B"), GPUS.get("L4"), MEASURED_LOAD, ServingConfig(quantization="awq")
    )
    assert any("no run in awq was measured" in note for note in awq.notes)
    pcie = WATTKEEPER.predict(LLAMA, GPUS.get("L4"), MEASURED_LOAD, ServingConfig(tensor_parallel_size=2))
    assert any("PCIe was never measured" in note for note in pcie.notes)


def test_what_lies_outside_of_training_is_flagged_and_wider() -> None:
    within = WATTKEEPER.predict(LLAMA, replace(GPUS.get("H100 PCIe"), name="Some GPU"), MEASURED_LOAD)
    beyond = WATTKEEPER.predict(LLAMA, GPUS.get("B200 SXM"), MEASURED_LOAD)
    assert within.out_of_range == ()
    assert "gpu.memory_bandwidth_gb_s" in beyond.out_of_range
    assert beyond.itl_upper_seconds / beyond.itl_seconds > within.itl_upper_seconds / within.itl_seconds


def test_a_gpu_from_five_numbers_of_its_data_sheet() -> None:
    gpu = GpuSpec(
        name="Five Numbers", memory_bytes=48 * 1024**3, memory_bandwidth_gb_s=864, tdp_watts=350,
        fp16_dense_tflops=362, compute_capability="8.9",
    )  # fmt: skip
    found = WATTKEEPER.predict(LLAMA, gpu, MEASURED_LOAD)
    known = WATTKEEPER.predict(LLAMA, GPUS.get("L40S"), MEASURED_LOAD)
    assert found.itl_seconds == pytest.approx(known.itl_seconds, rel=0.1)
    assert any("sm_count" in note for note in found.notes)


@pytest.mark.parametrize(
    ("model", "gpu", "serving", "work", "field"),
    [
        (LLAMA, "V100 SXM2 32GB", ServingConfig(quantization="fp8"), MEASURED_LOAD, "serving.quantization"),
        (LLAMA, "L4", ServingConfig(quantization="magic"), MEASURED_LOAD, "serving.quantization"),
        (LLAMA, "L4", ServingConfig(tensor_parallel_size=3), MEASURED_LOAD, "serving.tensor_parallel_size"),
        (LLAMA, "Instinct MI300X", ServingConfig(), MEASURED_LOAD, "gpu"),
        (LLAMA, "P100 PCIe 16GB", ServingConfig(), MEASURED_LOAD, "gpu"),
        (LLAMA, "L4", ServingConfig(), Workload(requests_per_second=500.0), "workload.requests_per_second"),
    ],
)
def test_refusals_name_the_field(
    model: ModelSpec, gpu: str, serving: ServingConfig, work: Workload, field: str
) -> None:
    with pytest.raises((InvalidInput, OutOfPredictorRange)) as refused:
        WATTKEEPER.predict(model, GPUS.get(gpu), work, serving)
    assert refused.value.field == field


def test_percentiles_and_first_tokens_are_predicted() -> None:
    found = WATTKEEPER.predict(
        LLAMA, GPUS.get("A30"), MEASURED_LOAD, statistic="P95", time_to_first_token=True
    )
    assert found.itl_p95_seconds and found.itl_p95_seconds > found.itl_seconds
    long = replace(MEASURED_LOAD, prompt_tokens=8000, requests_per_second=0.01)
    later = WATTKEEPER.predict(LLAMA, GPUS.get("A30"), long)
    assert later.ttft_seconds and found.ttft_seconds and later.ttft_seconds > 5 * found.ttft_seconds


def test_offline_a_users_latency_isnt_the_inverse_throughput() -> None:
    work = Workload(scenario="Offline", prompt_tokens=15, output_tokens=200)
    found = WATTKEEPER.predict(LLAMA, GPUS.get("A30"), work)
    assert found.running_sequences and found.inverse_throughput_seconds
    assert found.itl_seconds == pytest.approx(found.inverse_throughput_seconds * found.running_sequences)
    assert found.energy_per_token_joules == pytest.approx(
        found.power_watts * found.inverse_throughput_seconds
    )


def test_many_at_once_are_the_single_answers() -> None:
    queries = [
        query_of(model, gpu, Workload(requests_per_second=rate, prompt_tokens=64, output_tokens=64), serving)
        for model in (LLAMA, MODELS.get("openai/gpt-oss-20b"))
        for gpu in NVIDIA[:12]
        for rate in (0.01, 5.0)
        for serving in (ServingConfig(), ServingConfig(tensor_parallel_size=2, quantization="fp8"))
    ]
    for query, found in zip(queries, WATTKEEPER.predict_many(queries), strict=True):
        one = single(query)
        if isinstance(found, Prediction):
            assert one is not None
            assert found.power_watts == pytest.approx(one.power_watts, rel=1e-6)
            assert found.itl_upper_seconds == pytest.approx(one.itl_upper_seconds, rel=1e-6)
            assert found.notes == one.notes
        else:
            assert one is None


def single(query: Query) -> Prediction | None:
    return answer(query.model, query.gpu, query.workload, query.serving)


def test_cached_answers_are_those_of_a_little_more_load() -> None:
    cached = CachedPredictor(WATTKEEPER)
    gpu = GPUS.get("L40S")
    serving = ServingConfig()
    near = [Workload(requests_per_second=rate, prompt_tokens=64, output_tokens=64) for rate in (0.5, 0.5005)]
    [first] = cached.predict_many([query_of(LLAMA, gpu, near[0], serving)])
    [second] = cached.predict_many([query_of(LLAMA, gpu, near[1], serving)])
    exact = WATTKEEPER.predict(LLAMA, gpu, near[0], serving)
    assert first is second
    assert isinstance(first, Prediction)
    assert exact.power_watts <= first.power_watts <= 1.01 * exact.power_watts


def test_explain_accounts_for_the_figures() -> None:
    for work in (MEASURED_LOAD, Workload(scenario="Offline", prompt_tokens=15, output_tokens=200)):
        told = WATTKEEPER.explain(MODELS.get("Qwen/Qwen3-8B"), GPUS.get("A10"), work)
        assert sum(told.power_terms_watts.values()) == pytest.approx(told.prediction.power_watts)
        assert math.prod(told.itl_factors.values()) == pytest.approx(told.prediction.itl_seconds)
        assert sum(told.step_seconds.values()) <= told.itl_factors["base"] * (1 + 1e-9)


class TestTelemetry:
    """Anchoring to readings."""

    gpu = GPUS.get("A10")

    def test_an_idle_reading_moves_power_and_narrows_it(self) -> None:
        light = replace(MEASURED_LOAD, requests_per_second=0.02)
        bare = WATTKEEPER.predict(LLAMA, self.gpu, light)
        read = WATTKEEPER.predict(
            LLAMA, self.gpu, light, observed=Observed(context_idle_watts=25.0, samples=10)
        )
        assert bare.idle_watts and read.idle_watts
        assert read.idle_watts == pytest.approx(25.0, rel=0.05)
        assert read.power_watts < bare.power_watts
        assert read.power_upper_watts / read.power_watts < bare.power_upper_watts / bare.power_watts
        assert read.itl_seconds == bare.itl_seconds

    def test_a_latency_reading_moves_latency_and_narrows_it(self) -> None:
        bare = WATTKEEPER.predict(LLAMA, self.gpu, MEASURED_LOAD)
        slow = Observed(itl_seconds=1.2 * bare.itl_seconds, samples=20)
        read = WATTKEEPER.predict(LLAMA, self.gpu, MEASURED_LOAD, observed=slow)
        assert 1.1 * bare.itl_seconds < read.itl_seconds < 1.25 * bare.itl_seconds
        assert read.itl_upper_seconds / read.itl_seconds < bare.itl_upper_seconds / bare.itl_seconds
        assert any(note.startswith("telemetry: itl +") for note in read.notes)

    def test_active_watts_and_duty(self) -> None:
        bare = WATTKEEPER.predict(LLAMA, self.gpu, MEASURED_LOAD)
        idle = WATTKEEPER.predict(LLAMA, self.gpu, MEASURED_LOAD, observed=Observed(duty=0.01))
        assert idle.power_watts < bare.power_watts
        cool = WATTKEEPER.predict(
            LLAMA, self.gpu, MEASURED_LOAD,
            observed=Observed(context_idle_watts=bare.idle_watts, active_watts=90.0, samples=20),
        )  # fmt: skip
        assert cool.power_watts < bare.power_watts

    def test_what_is_learnt_holds_for_other_models_and_can_be_saved(self) -> None:
        bare = WATTKEEPER.predict(LLAMA, self.gpu, MEASURED_LOAD)
        query = query_of(LLAMA, self.gpu, MEASURED_LOAD)
        learnt = WATTKEEPER
        for _ in range(5):
            learnt = learnt.learn(
                replace(query, observed=Observed(itl_seconds=1.3 * bare.itl_seconds, context_idle_watts=25.0))
            )
        other = MODELS.get("Qwen/Qwen3-4B")
        plain = WATTKEEPER.predict(other, self.gpu, MEASURED_LOAD)
        anchored = learnt.predict(other, self.gpu, MEASURED_LOAD)
        assert anchored.itl_seconds > 1.1 * plain.itl_seconds
        again = WATTKEEPER.with_anchors(learnt.save_anchors()).predict(other, self.gpu, MEASURED_LOAD)
        assert again == anchored
        assert WATTKEEPER.predict(LLAMA, self.gpu, MEASURED_LOAD) == bare

    def test_drift_is_reported(self) -> None:
        bare = WATTKEEPER.predict(LLAMA, self.gpu, MEASURED_LOAD)
        learnt = WATTKEEPER
        for factor in [1.0] * 6 + [1.4] * 6:
            reading = Observed(itl_seconds=factor * bare.itl_seconds)
            learnt = learnt.learn(replace(query_of(LLAMA, self.gpu, MEASURED_LOAD), observed=reading))
        assert [drift.quantity for drift in learnt.drifts()] == ["itl"]
        assert WATTKEEPER.drifts() == ()

    def test_the_papers_recipe_doesnt_learn_and_says_so(self) -> None:
        paper = Predictor.load(default_artifacts("wattgpu"))
        with pytest.raises(OutOfPredictorRange, match="doesn't learn"):
            paper.predict(LLAMA, GPUS.get("A30"), MEASURED_LOAD, observed=Observed(duty=1.0))


def test_a_server_generates_what_it_is_asked_for() -> None:
    work = Workload(requests_per_second=2.0, prompt_tokens=100, output_tokens=150)
    found = WATTKEEPER.predict(LLAMA, GPUS.get("L40S"), work)
    assert found.throughput_tokens_per_second == pytest.approx(2.0 * 150)
    assert found.energy_per_token_joules == pytest.approx(found.power_watts / 300)
