"""Memory accounting: known cases, and the monotonicity that placement relies on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.predictor.samples import GIB, HIGH, L4, LLAMA_8B, SERVING, gpu_specs, model_specs
from wattkeeper_predictor import GpuSpec, InvalidInput, ModelSpec, ServingConfig, Workload, memory_fit
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.memory import BLOCK_TOKENS, engine_defaults, kv_bytes
from wattkeeper_predictor.training.runs import read_runs


def test_llama_8b_on_an_l4_is_accounted_as_vllm_does() -> None:
    fit = memory_fit(LLAMA_8B, L4, SERVING, HIGH)
    assert fit.weight_bytes == 16_060_000_000
    assert fit.kv_bytes_per_token == 2 * 8 * 128 * 2 * 32
    assert fit.kv_bytes_per_sequence == 512 * fit.kv_bytes_per_token
    assert fit.usable_bytes == int(0.9 * L4.memory_bytes)
    assert fit.required_bytes == fit.weight_bytes + fit.engine_bytes + fit.kv_bytes_per_sequence
    assert fit.fits
    assert 60 <= fit.max_sequences <= 80


@pytest.mark.parametrize(
    ("model", "gpu", "fits"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "T4", False),
        ("meta-llama/Llama-2-13b-chat-hf", "A30", False),
        ("meta-llama/Llama-2-13b-chat-hf", "A100 SXM4 40GB", True),
        ("google/gemma-3-27b-it", "H100 NVL", True),
        ("google/gemma-3-27b-it", "L40S", False),
        ("meta-llama/Llama-3.1-70B-Instruct", "H200 SXM", False),
        ("meta-llama/Llama-3.1-70B-Instruct", "B300 SXM", True),
        ("openai/gpt-oss-120b", "H100 SXM5", True),
        ("deepseek-ai/DeepSeek-V3", "H200 SXM", False),
    ],
)
def test_what_is_known_to_fit(
    model: str, gpu: str, fits: bool, models: ModelCatalogue, gpus: GpuCatalogue
) -> None:
    assert memory_fit(models.get(model), gpus.get(gpu), SERVING, HIGH).fits is fits


@pytest.mark.data
def test_what_was_measured_fits(data_dir: Path, models: ModelCatalogue, gpus: GpuCatalogue) -> None:
    """Each model that ran on a GPU offline must fit there by this accounting."""
    table = read_runs(data_dir / "wattgpu/watt_counts_runs.csv")
    pairs = {(run.model, run.gpu) for run in table.runs if run.model in models.ids()}
    workload = Workload(scenario="Offline", prompt_tokens=15, output_tokens=256)
    refused = [
        (model, gpu)
        for model, gpu in sorted(pairs)
        if not memory_fit(models.get(model), gpus.get(gpu), SERVING, workload).fits
    ]
    assert refused == []


def test_tensor_parallelism_splits_weights_and_cache() -> None:
    one = memory_fit(LLAMA_8B, L4, SERVING, HIGH)
    four = memory_fit(LLAMA_8B, L4, ServingConfig(tensor_parallel_size=4), HIGH)
    assert four.weight_bytes == one.weight_bytes // 4
    assert four.kv_bytes_per_token == one.kv_bytes_per_token // 4
    replicated = memory_fit(LLAMA_8B, L4, ServingConfig(tensor_parallel_size=32), HIGH)
    assert replicated.kv_bytes_per_token == one.kv_bytes_per_token // 8


def test_a_latent_cache_is_kept_whole_on_every_gpu() -> None:
    latent = replace(LLAMA_8B, kv_elements_per_token=576)
    assert kv_bytes(latent, 16, 8) == kv_bytes(latent, 16, 1) == 16 * 576 * 2 * 32


def test_sliding_layers_stop_growing_at_their_window() -> None:
    sliding = replace(LLAMA_8B, sliding_layers=32, sliding_window=1024)
    assert kv_bytes(sliding, 1024) == kv_bytes(sliding, 100_000) == kv_bytes(LLAMA_8B, 1024)


def test_an_encoder_takes_memory() -> None:
    with_tower = replace(LLAMA_8B, tower_parameters_billion=0.5)
    assert memory_fit(with_tower, L4, SERVING, HIGH).weight_bytes == 17_060_000_000


def test_defaults_are_vllms() -> None:
    assert engine_defaults(L4).sequences == 256
    assert engine_defaults(replace(L4, name="H100 NVL", memory_bytes=93 * GIB)).sequences == 1024
    assert engine_defaults(replace(L4, name="A100 SXM4 80GB", memory_bytes=79 * GIB)).batched_tokens == 2048


def test_more_tokens_than_the_model_takes_are_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        memory_fit(LLAMA_8B, L4, SERVING, replace(HIGH, prompt_tokens=131000))
    assert refused.value.field == "workload.prompt_tokens"


def test_heads_must_divide() -> None:
    with pytest.raises(InvalidInput) as refused:
        memory_fit(LLAMA_8B, L4, ServingConfig(tensor_parallel_size=3), HIGH)
    assert refused.value.field == "serving.tensor_parallel_size"


@given(model=model_specs(), gpu=gpu_specs(), factor=st.floats(1.0, 10.0))
def test_a_larger_model_never_needs_less(model: ModelSpec, gpu: GpuSpec, factor: float) -> None:
    larger = replace(
        model,
        parameters_total_billion=model.parameters_total_billion * factor,
        parameters_active_billion=model.parameters_active_billion * factor,
    )
    small, large = (memory_fit(spec, gpu, SERVING, HIGH) for spec in (model, larger))
    assert large.required_bytes >= small.required_bytes
    assert large.max_sequences <= small.max_sequences
    assert large.max_context_tokens <= small.max_context_tokens


@given(model=model_specs(), gpu=gpu_specs(), tokens=st.integers(1, 100_000), more=st.integers(0, 100_000))
def test_a_longer_context_never_lets_more_sequences_run(
    model: ModelSpec, gpu: GpuSpec, tokens: int, more: int
) -> None:
    short = memory_fit(model, gpu, SERVING, replace(HIGH, prompt_tokens=tokens))
    long = memory_fit(model, gpu, SERVING, replace(HIGH, prompt_tokens=tokens + more))
    assert long.max_sequences <= short.max_sequences
    assert long.required_bytes >= short.required_bytes


@given(model=model_specs(), gpu=gpu_specs(), tokens=st.integers(1, 200_000))
def test_fitting_means_that_the_longest_context_is_long_enough(
    model: ModelSpec, gpu: GpuSpec, tokens: int
) -> None:
    fit = memory_fit(
        model, gpu, SERVING, Workload(scenario="Offline", prompt_tokens=tokens, output_tokens=16)
    )
    whole_blocks = -(-(tokens + 16) // BLOCK_TOKENS) * BLOCK_TOKENS
    assert fit.fits == (fit.max_sequences >= 1)
    if fit.fits and not model.sliding_layers:
        assert fit.max_context_tokens >= whole_blocks
    if not fit.fits and not model.sliding_layers:
        assert fit.max_context_tokens < whole_blocks
