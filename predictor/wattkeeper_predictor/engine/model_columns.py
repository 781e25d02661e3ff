"""A model's figures as the simulator needs them, for one weight format."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from wattkeeper_predictor.quantization import UNQUANTIZED, WEIGHT_FORMATS, weight_bytes
from wattkeeper_predictor.specs import ModelSpec

_KV_BYTES_PER_ELEMENT = 2
# Formats whose matrix products run on 8-bit tensor cores where the GPU has them; the others are
# widened to 16 bits on the way (weight-only kernels).
_EIGHT_BIT_PRODUCTS = frozenset({"fp8", "int8", "nvfp4"})


class ModelRow(NamedTuple):
    """One model in one weight format. Parameters in 10⁹; gb is 10⁹ bytes; caches are of all GPUs together.

    ``dense_billion`` is read at every step whatever the batch (attention, dense and shared MLPs, head; not
    the input table, of which a step reads a row a token), ``expert_billion`` all routed experts, of which
    a token takes the share ``expert_share``.
    """

    layers: float
    hidden: float
    intermediate: float
    gated: float
    vocab: float
    head_dim: float
    group: float  # query heads a KV head
    kv_heads: float  # how far the cache can be split over GPUs; 1 for a latent cache
    dense_billion: float
    head_billion: float
    expert_billion: float
    expert_share: float
    active_billion: float  # what one token computes with
    cache_full_gb: float  # a token's cache in layers that keep all tokens
    cache_window_gb: float  # a token's cache in layers that keep a window
    cache_layers: float
    window_tokens: float
    window_share: float  # of the layers with a cache
    mixture: float
    hybrid: float  # 1 where some layers keep no cache (state space or plain MLP blocks)
    tied: float
    bytes_per_weight: float
    quantized: float
    eight_bit: float
    weights_gb: float


@lru_cache(4096)
def model_row(model: ModelSpec, quantization: str) -> ModelRow:
    """The model's figures; ``quantization`` as ``effective_quantization`` gives it."""
    head = model.vocab_size * model.hidden_size / 1e9
    # Figures that contradict each other (a table larger than the model) leave a little to read.
    total = model.parameters_total_billion
    read = max(total - (0.0 if model.tie_word_embeddings else head), 0.05 * total)
    experts, share = _experts(model)
    dense = max(read - experts, 0.1 * model.parameters_active_billion)
    cache_layers = model.layers if model.kv_layers is None else model.kv_layers
    per_layer = (
        (model.kv_elements_per_token or 2 * model.kv_heads * model.head_dim) * _KV_BYTES_PER_ELEMENT / 1e9
    )
    return ModelRow(
        layers=model.layers,
        hidden=model.hidden_size,
        intermediate=model.intermediate_size,
        gated=float(model.gated_mlp),
        vocab=model.vocab_size,
        head_dim=model.head_dim,
        group=model.attention_heads / model.kv_heads,
        kv_heads=1.0 if model.kv_elements_per_token else model.kv_heads,
        dense_billion=dense,
        head_billion=min(head, dense),
        expert_billion=experts,
        expert_share=share,
        active_billion=dense + experts * share,
        cache_full_gb=per_layer * (cache_layers - model.sliding_layers),
        cache_window_gb=per_layer * model.sliding_layers,
        cache_layers=cache_layers,
        window_tokens=model.sliding_window or 0,
        window_share=model.sliding_layers / cache_layers,
        mixture=float(model.is_mixture_of_experts),
        hybrid=float(cache_layers < model.layers),
        tied=float(model.tie_word_embeddings),
        bytes_per_weight=2.0
        if quantization == UNQUANTIZED
        else WEIGHT_FORMATS[quantization].bits_per_weight / 8,
        quantized=float(quantization != UNQUANTIZED),
        eight_bit=float(quantization in _EIGHT_BIT_PRODUCTS),
        weights_gb=weight_bytes(model, quantization) / 1e9,
    )


def _experts(model: ModelSpec) -> tuple[float, float]:
    """All routed experts' parameters (10⁹), and the share of them that a token takes.

    total = rest + experts and active = rest + share · experts give both, share being k of n experts;
    where the counts aren't known the share of all weights stands in.
    """
    if not model.is_mixture_of_experts:
        return 0.0, 1.0
    total, active = model.parameters_total_billion, model.parameters_active_billion
    share = (
        model.experts_active / model.experts_total
        if model.experts_total and model.experts_active
        else active / total
    )
    if share >= 1 or active >= total:
        return 0.0, 1.0
    return (total - active) / (1 - share), share
