"""config.json of every family gives the published parameter count; malformed ones name the key."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.predictor.samples import LLAMA_CONFIG
from wattkeeper_predictor import InvalidInput, PredictorError
from wattkeeper_predictor.architectures import FAMILIES
from wattkeeper_predictor.hf_config import model_from_config

GPT2 = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "vocab_size": 50257,
    "n_positions": 1024,
}
OPT_350M = {
    "model_type": "opt",
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "ffn_dim": 4096,
    "vocab_size": 50272,
    "word_embed_proj_dim": 512,
    "max_position_embeddings": 2048,
}
MIXTRAL = {
    "model_type": "mixtral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    "quantization_config": {"quant_method": "fp8"},
}
GEMMA3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
}
FALCON_7B = {
    "model_type": "falcon",
    "num_hidden_layers": 32,
    "hidden_size": 4544,
    "num_attention_heads": 71,
    "num_kv_heads": 71,
    "multi_query": True,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
}
LLAMA4_MAVERICK = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text",
        "num_hidden_layers": 48,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 202048,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
    },
}


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        (LLAMA_CONFIG, 8.030, 8.030),
        (GPT2, 0.1244, 0.1244),
        (OPT_350M, 0.331, 0.331),
        (MIXTRAL, 46.70, 12.88),
        (DEEPSEEK_V3, 671.03, 37.55),
        (GEMMA3_4B, 3.880, 3.880),
        (FALCON_7B, 6.92, 6.92),
        (LLAMA4_MAVERICK, 400.7, 17.2),
    ],
    ids=["llama", "gpt2", "opt", "mixtral", "deepseek_v3", "gemma3", "falcon", "llama4"],
)
def test_counts_are_the_published_ones(config: dict[str, Any], total: float, active: float) -> None:
    spec = model_from_config("some/model", config)
    assert spec.parameters_total_billion == pytest.approx(total, rel=0.002)
    assert spec.parameters_active_billion == pytest.approx(active, rel=0.004)


def test_latent_attention_keeps_one_vector_a_token() -> None:
    spec = model_from_config("some/model", DEEPSEEK_V3)
    assert spec.kv_elements_per_token == 576
    assert spec.native_quantization == "fp8"
    assert spec.max_context_tokens == 163840
    assert (spec.experts_total, spec.experts_active) == (256, 8)


def test_a_nested_text_config_is_read_with_its_class_defaults() -> None:
    spec = model_from_config("some/model", GEMMA3_4B)
    assert (spec.attention_heads, spec.kv_heads, spec.head_dim, spec.vocab_size) == (8, 4, 256, 262208)
    assert spec.tie_word_embeddings
    assert (spec.sliding_layers, spec.sliding_window) == (29, 1024)
    assert spec.max_context_tokens == 131072
    assert spec.tower_parameters_billion == pytest.approx(0.411, rel=0.01)


@pytest.mark.parametrize(
    ("change", "layers", "window"),
    [
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, 0, None),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 4096,
                "use_sliding_window": True,
                "max_window_layers": 28,
            },
            4,
            4096,
        ),
        ({"model_type": "mistral", "sliding_window": 4096}, 32, 4096),
        ({"model_type": "mistral", "sliding_window": None}, 0, None),
        ({"model_type": "gemma2", "sliding_window": 4096}, 16, 4096),
        (
            {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16},
            16,
            128,
        ),
        ({"sliding_window": 4096}, 0, None),
    ],
)
def test_which_layers_slide(change: dict[str, Any], layers: int, window: int | None) -> None:
    spec = model_from_config("some/model", {**LLAMA_CONFIG, **change})
    assert (spec.sliding_layers, spec.sliding_window) == (layers, window)


@pytest.mark.parametrize(
    ("scaling", "tokens"),
    [
        ({"rope_type": "llama3", "factor": 8.0}, 131072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"type": "linear", "factor": 2}, 262144),
        ({"full_attention": {"rope_type": "default"}}, 131072),
        (None, 131072),
    ],
)
def test_rope_scaling_stretches_the_context_where_engines_do(scaling: Any, tokens: int) -> None:
    for name in ("rope_scaling", "rope_parameters"):  # the name until and since transformers 5
        assert model_from_config("m", {**LLAMA_CONFIG, name: scaling}).max_context_tokens == tokens


@pytest.mark.parametrize("factor", [0, -4, math.nan, 1e30, "4", True])
def test_an_absurd_rope_factor_is_named(factor: Any) -> None:
    config = {**LLAMA_CONFIG, "rope_scaling": {"rope_type": "linear", "factor": factor}}
    with pytest.raises(InvalidInput) as refused:
        model_from_config("m", config)
    assert refused.value.field == "model.config.factor"


@pytest.mark.parametrize(
    ("quantization", "name"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "gptq"),
        ({"quant_method": "compressed-tensors", "format": "int-quantized"}, "int8"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8"),
    ],
)
def test_the_checkpoints_own_format_is_read(quantization: dict[str, Any], name: str) -> None:
    assert (
        model_from_config("m", {**LLAMA_CONFIG, "quantization_config": quantization}).native_quantization
        == name
    )


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_attention_heads": 30, "num_key_value_heads": 30}, "num_attention_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"hidden_size": -4096}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": math.nan}, "hidden_size"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": 4096.5}, "hidden_size"),
        ({"hidden_size": 1e30}, "hidden_size"),
        ({"hidden_size": 10**400}, "hidden_size"),
        ({"vocab_size": 10**200}, "vocab_size"),
        ({"max_position_embeddings": 10**400}, "max_position_embeddings"),
        ({"num_hidden_layers": 10**12}, None),
        ({"vision_config": {"num_hidden_layers": 10**60, "hidden_size": 8}}, "num_hidden_layers"),
        ({"vision_config": [1]}, "vision_config"),
        ({"text_config": [1]}, "text_config"),
        ({"rope_scaling": "yarn"}, "rope_scaling"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"vocab_size": None}, "vocab_size"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"model_type": None}, "model_type"),
        ({"model_type": "mamba"}, "model_type"),
        ({"num_local_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok"),
        ({"num_local_experts": 4}, "num_experts_per_tok"),
        (
            {"num_local_experts": 4, "num_experts_per_tok": 1, "first_k_dense_replace": 32},
            "first_k_dense_replace",
        ),
        ({"layer_types": ["linear_attention"] * 32}, "layer_types"),
        ({"sliding_window": 8, "layer_types": ["full_attention"]}, "layer_types"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
        ({"quantization_config": ["awq"]}, "quantization_config"),
        ({"quantization_config": {"quant_method": "x" * 100_000}}, "quantization_config"),
        ({"hidden_size": list(range(100_000))}, "hidden_size"),
        ({"hidden_size": "4" * 100_000}, "hidden_size"),
        ({"model_type": "x" * 100_000}, "model_type"),
        ({"tie_word_embeddings": "x" * 100_000}, "tie_word_embeddings"),
    ],
)
def test_a_malformed_config_names_the_key_and_the_cure(change: dict[str, Any], key: str | None) -> None:
    with pytest.raises(InvalidInput) as refused:
        model_from_config("some/model", {**LLAMA_CONFIG, **change})
    assert key is None or refused.value.field == f"model.config.{key}"
    assert 10 < len(refused.value.message) < 2000


def test_a_config_must_be_an_object() -> None:
    with pytest.raises(InvalidInput, match="JSON object"):
        model_from_config("some/model", [1, 2])  # type: ignore[arg-type]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(0, 10**400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(
    change=st.dictionaries(st.sampled_from(sorted([*LLAMA_CONFIG, "layer_types", "sliding_window"])), _JSON)
)
def test_no_config_raises_anything_but_our_own_errors(change: dict[str, Any]) -> None:
    try:
        spec = model_from_config("some/model", {**LLAMA_CONFIG, **change})
    except PredictorError as refused:
        assert str(refused)
    else:
        assert spec.parameters_active_billion <= spec.parameters_total_billion


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_counts_a_plausible_model(family: str) -> None:
    config = {**LLAMA_CONFIG, "model_type": family, "head_dim": 128}
    spec = model_from_config("some/model", config)
    assert 4 < spec.parameters_total_billion < 9
    assert spec.model_type == family


@given(layers=st.integers(1, 100), more=st.integers(1, 20))
def test_more_layers_mean_more_parameters(layers: int, more: int) -> None:
    few = model_from_config("m", {**LLAMA_CONFIG, "num_hidden_layers": layers})
    many = model_from_config("m", {**LLAMA_CONFIG, "num_hidden_layers": layers + more})
    assert many.parameters_total_billion > few.parameters_total_billion
