"""What each family of transformers is made of, and how many parameters that gives.

The counts follow the layers of the families as Hugging Face ``transformers`` builds them: embeddings,
attention projections, (gated) feed-forward or experts with their router, norms, biases, output head.
Encoders for images or sound are not counted here; nor are the layers for multi-token prediction,
which engines load only when told to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Sliding = Literal["none", "all", "alternate", "pattern", "upper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Traits of one ``model_type``.

    ``norm``: weights only ("rms"), weights and biases ("layer") or none ("bare"). ``qk_norm``: one
    vector a head ("head") or over all heads ("full"). ``tied`` and ``defaults`` are what the family's
    configuration class assumes when config.json is silent. ``sliding`` says which layers attend to a
    window only: "alternate" every second from the first, "pattern" all but each ``sliding_period``-th,
    "upper" those from ``max_window_layers`` on. ``multi_query``: one KV head unless told otherwise.
    ``shared_experts``: how many there are where the configuration has no key for them.
    """

    gated: bool = True
    norm: Literal["rms", "layer", "bare"] = "rms"
    norms_per_layer: int = 2
    qk_norm: Literal["none", "head", "full"] = "none"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    tied: bool = False
    learned_positions: bool = False
    position_offset: int = 0
    embedding_norm: bool = False
    attention_sinks: bool = False
    router_bias: bool = False
    sliding: Sliding = "none"
    sliding_period: int = 6
    halve_intermediate: bool = False
    multi_query: bool = False
    shared_experts: int = 0
    defaults: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Ranks and widths of multi-head latent attention (DeepSeek)."""

    kv_rank: int
    query_rank: int | None
    rope_dim: int
    nope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The mixture: widths of one routed expert and of all shared ones together."""

    total: int
    active: int
    width: int
    shared_width: int = 0
    shared_gate: bool = False
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The sizes that config.json gives, under one set of names."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    positions: int | None
    tied: bool
    attention_bias: bool | None = None
    embedding_width: int | None = None
    latent: Latent | None = None
    experts: Experts | None = None


def count_parameters(family: Family, size: Dimensions) -> tuple[int, int]:
    """Parameters in all and those one token touches (embeddings count in both)."""
    everywhere = _outside_layers(family, size) + size.layers * (
        _attention(family, size) + _norms(family, size)
    )
    experts = size.experts
    if experts is None:
        dense = size.layers * _mlp(family, size.hidden, size.intermediate)
        return everywhere + dense, everywhere + dense
    dense = (size.layers - experts.layers) * _mlp(family, size.hidden, size.intermediate)
    router = size.hidden * experts.total + (experts.total if family.router_bias else 0)
    shared = _mlp(family, size.hidden, experts.shared_width) if experts.shared_width else 0
    shared += size.hidden if experts.shared_gate else 0
    one = _mlp(family, size.hidden, experts.width)
    always = everywhere + dense + experts.layers * (router + shared)
    return always + experts.layers * experts.total * one, always + experts.layers * experts.active * one


def _norm(family: Family, width: int) -> int:
    return {"rms": width, "layer": 2 * width, "bare": 0}[family.norm]


def _outside_layers(family: Family, size: Dimensions) -> int:
    width = size.embedding_width or size.hidden
    tables = 1 if size.tied else 2
    count = tables * size.vocab * width + (size.vocab if family.head_bias else 0)
    if size.embedding_width is not None and size.embedding_width != size.hidden:
        count += 2 * size.embedding_width * size.hidden
    if family.learned_positions and size.positions is not None:
        count += (size.positions + family.position_offset) * size.hidden
    if family.embedding_norm:
        count += _norm(family, size.hidden)
    return count + _norm(family, size.hidden)


def _norms(family: Family, size: Dimensions) -> int:
    return family.norms_per_layer * _norm(family, size.hidden)


def _attention(family: Family, size: Dimensions) -> int:
    if size.latent is not None:
        return _latent_attention(size, size.latent)
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    count = size.hidden * (queries + 2 * keys) + queries * size.hidden
    qkv_bias = family.qkv_bias if size.attention_bias is None else size.attention_bias
    if qkv_bias:
        count += queries + 2 * keys
    if family.output_bias:
        count += size.hidden
    if family.qk_norm != "none":
        count += 2 * size.head_dim if family.qk_norm == "head" else queries + keys
    if family.attention_sinks:
        count += size.heads
    return count


def _latent_attention(size: Dimensions, latent: Latent) -> int:
    query_width = size.heads * (latent.nope_dim + latent.rope_dim)
    if latent.query_rank is None:
        queries = size.hidden * query_width
    else:
        queries = latent.query_rank * (size.hidden + 1 + query_width)
    keys = size.hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
    keys += latent.kv_rank * size.heads * (latent.nope_dim + latent.value_dim)
    return queries + keys + size.heads * latent.value_dim * size.hidden


def _mlp(family: Family, hidden: int, width: int) -> int:
    into = 2 if family.gated else 1
    count = (into + 1) * hidden * width
    return count + (into * width + hidden if family.mlp_bias else 0)


def _biased(**traits: Any) -> Family:
    """The older kind: plain feed-forward, LayerNorm, biases everywhere."""
    return Family(gated=False, norm="layer", qkv_bias=True, output_bias=True, mlp_bias=True, **traits)


_LLAMA = Family()
_MISTRAL = Family(sliding="all")
_QWEN2 = Family(qkv_bias=True, sliding="upper")
_QWEN3 = Family(qk_norm="head", sliding="upper")
_GPT2 = _biased(tied=True, learned_positions=True)
_PHI = _biased(norms_per_layer=1, head_bias=True)
_GEMMA3 = Family(
    norms_per_layer=4,
    qk_norm="head",
    tied=True,
    sliding="pattern",
    defaults={"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208},
)

FAMILIES: Mapping[str, Family] = {
    "baichuan": _LLAMA,
    "bloom": _biased(tied=True, embedding_norm=True),
    "chatglm": Family(qkv_bias=True),
    "cohere": Family(norms_per_layer=1, tied=True),
    "deepseek": _LLAMA,
    "deepseek_v2": _LLAMA,
    "deepseek_v3": Family(router_bias=True),
    "ernie4_5": Family(tied=True),
    "ernie4_5_moe": Family(tied=True, router_bias=True),
    "exaone4": Family(qk_norm="head", sliding="pattern", sliding_period=4),
    "falcon": Family(gated=False, norm="layer", norms_per_layer=1, tied=True, multi_query=True),
    "gemma": Family(tied=True, defaults={"head_dim": 256}),
    "gemma2": Family(norms_per_layer=4, tied=True, sliding="alternate", defaults={"head_dim": 256}),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "glm": Family(qkv_bias=True),
    "glm4": Family(qkv_bias=True, norms_per_layer=4),
    "glm4_moe": Family(qkv_bias=True, router_bias=True),
    "glm4_moe_lite": Family(router_bias=True),
    "gpt2": _GPT2,
    "gpt_bigcode": _biased(tied=True, learned_positions=True, multi_query=True),
    "gpt_neox": _biased(),
    "gpt_oss": Family(
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        router_bias=True,
        attention_sinks=True,
        sliding="alternate",
    ),
    "gptj": Family(gated=False, norm="layer", norms_per_layer=1, mlp_bias=True, head_bias=True),
    "granite": _LLAMA,
    "granitemoe": _LLAMA,
    "internlm": Family(qkv_bias=True, output_bias=True),
    "internlm2": _LLAMA,
    "internlm3": _LLAMA,
    "kimi_k2": Family(router_bias=True),
    "llama": _LLAMA,
    "llama4": Family(shared_experts=1),
    "llama4_text": Family(shared_experts=1),
    "mimo": Family(qkv_bias=True),
    "minicpm": Family(tied=True),
    "minimax_m2": Family(qk_norm="full", router_bias=True),
    "ministral3": _MISTRAL,
    "mistral": _MISTRAL,
    "mixtral": _MISTRAL,
    "mpt": Family(gated=False, tied=True),
    "nemotron": Family(gated=False, norm="layer"),
    "olmo": Family(norm="bare"),
    "olmo2": Family(qk_norm="full"),
    "olmo3": Family(qk_norm="full", sliding="pattern", sliding_period=4),
    "olmoe": Family(qk_norm="full"),
    "opt": _biased(tied=True, learned_positions=True, position_offset=2),
    "orion": Family(norm="layer"),
    "phi": _PHI,
    "phi-msft": _PHI,
    "phi3": _MISTRAL,
    "phimoe": Family(norm="layer", qkv_bias=True, output_bias=True, head_bias=True, sliding="all"),
    "qwen": Family(qkv_bias=True, halve_intermediate=True),
    "qwen2": _QWEN2,
    "qwen2_moe": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": Family(qkv_bias=True),
    "smollm3": Family(tied=True),
    "solar": _MISTRAL,
    "stablelm": Family(norm="layer"),
    "starcoder2": _biased(tied=True, sliding="all"),
}
