"""Inputs check themselves: what can't be is refused with the field and the cure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.predictor.samples import L4, LLAMA_8B
from wattkeeper_predictor import InvalidInput, ServingConfig, Workload


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e30, "300", None, True])
@pytest.mark.parametrize("name", ["memory_bandwidth_gb_s", "tdp_watts", "memory_bytes"])
def test_a_gpu_needs_sound_numbers(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        replace(L4, **{name: value})
    assert refused.value.field == f"gpu.{name}"
    assert repr(value) in refused.value.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"parameters_active_billion": 9.0}, "model.parameters_active_billion"),
        ({"parameters_total_billion": math.nan}, "model.parameters_total_billion"),
        ({"kv_heads": 7}, "model.kv_heads"),
        ({"layers": 0}, "model.layers"),
        ({"layers": 32.5}, "model.layers"),
        ({"vocab_size": -1}, "model.vocab_size"),
        ({"experts_total": 8}, "model.experts_active"),
        ({"experts_total": 8, "experts_active": 9}, "model.experts_active"),
        ({"sliding_layers": 3}, "model.sliding_window"),
        ({"sliding_layers": 33, "sliding_window": 10}, "model.sliding_layers"),
        ({"kv_layers": 33}, "model.kv_layers"),
        ({"id": " "}, "model.id"),
        ({"tower_parameters_billion": -1.0}, "model.tower_parameters_billion"),
    ],
)
def test_a_model_must_not_contradict_itself(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        replace(LLAMA_8B, **change)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scenario": "Batch", "requests_per_second": 1.0}, "workload.scenario"),
        ({}, "workload.requests_per_second"),
        ({"requests_per_second": 0.0}, "workload.requests_per_second"),
        ({"requests_per_second": math.nan}, "workload.requests_per_second"),
        ({"requests_per_second": 1.0, "prompt_tokens": 0}, "workload.prompt_tokens"),
        ({"requests_per_second": 1.0, "output_tokens": 10**12}, "workload.output_tokens"),
    ],
)
def test_a_workload_must_be_possible(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Workload(**change)
    assert refused.value.field == field


def test_offline_needs_no_rate() -> None:
    assert Workload(scenario="Offline").requests_per_second is None


@pytest.mark.parametrize(
    "change",
    [
        {"tensor_parallel_size": 0},
        {"gpu_memory_utilization": 1.1},
        {"max_sequences": 0},
        {"quantization": ""},
    ],
)
def test_a_serving_configuration_must_be_possible(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        ServingConfig(**change)
    assert refused.value.field == f"serving.{next(iter(change))}"


def test_base_clock_above_boost_is_a_mix_up() -> None:
    with pytest.raises(InvalidInput, match="boost clock"):
        replace(L4, base_clock_mhz=3000)


@pytest.mark.parametrize("text", ["8", "8.x", "", "eight"])
def test_compute_capability_is_major_dot_minor(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"8\.9"):
        replace(L4, compute_capability=text)


def test_specs_are_values() -> None:
    assert replace(LLAMA_8B) == LLAMA_8B
    assert hash(replace(L4)) == hash(L4)
    assert replace(L4, sources={"tdp_watts": "data sheet"}) == L4
