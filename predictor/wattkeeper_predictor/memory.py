"""Does a model fit a GPU, and how many sequences at once? Accounted as vLLM does.

vLLM (``vllm/v1/worker/gpu_worker.py``, ``determine_available_memory``) takes
``gpu_memory_utilization`` × the total memory, subtracts the weights, the peak activations of a
profiling step of ``max_num_batched_tokens`` tokens and everything allocated outside PyTorch (the CUDA
context), and cuts the rest into KV-cache blocks of 16 tokens. The defaults of batched tokens and
sequences are those of ``vllm/engine/arg_utils.py`` for the API server: 8,192 and 1,024 on GPUs with
at least 70 GiB other than the A100, else 2,048 and 256.

All figures are for one GPU of ``tensor_parallel_size``. Monotone by construction: more parameters
never need less memory, and a longer context never lets more sequences run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .errors import InvalidInput
from .quantization import check_gpu_runs, effective_quantization, weight_bytes
from .specs import GpuSpec, ModelSpec, ServingConfig, Workload

BLOCK_TOKENS = 16
_KV_BYTES_PER_ELEMENT = 2
_GIB = 1024**3
# What the engine holds outside weights and activations: CUDA context, kernels, workspaces; and the
# loss to padding and the allocator's rounding. Both fitted on the offline runs of Watt Counts, where the
# sequences that ran at once tell the memory that was left.
CONTEXT_BYTES = 600_000_000
WEIGHT_OVERHEAD = 0.02
# The sampler holds logits of every sequence in 16 bits and once more in 32.
LOGIT_BYTES = 6


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The memory of one GPU, in bytes, and what fits.

    ``required_bytes`` = weights + engine + the cache of one sequence of prompt + output.
    ``max_sequences`` is 0 if not even one fits; ``max_context_tokens`` is the longest single
    sequence that fits (an engine told to serve a longer one refuses to start).
    """

    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes_per_sequence: int
    engine_bytes: int
    usable_bytes: int
    required_bytes: int
    max_sequences: int
    max_context_tokens: int
    fits: bool


@dataclass(frozen=True, slots=True)
class EngineDefaults:
    """vLLM's batch limits for its API server."""

    batched_tokens: int
    sequences: int


LARGE_GPU_DEFAULTS = EngineDefaults(8192, 1024)
SMALL_GPU_DEFAULTS = EngineDefaults(2048, 256)


def engine_defaults(gpu: GpuSpec) -> EngineDefaults:
    """vLLM's defaults on this GPU (``EngineArgs.get_batch_defaults``)."""
    # The driver reports a little less than the nominal size; what vLLM compares is the driver's figure.
    large = gpu.memory_bytes >= 70 * _GIB and "a100" not in gpu.name.lower()
    return LARGE_GPU_DEFAULTS if large else SMALL_GPU_DEFAULTS


def memory_fit(model: ModelSpec, gpu: GpuSpec, serving: ServingConfig, workload: Workload) -> MemoryFit:
    """Account the memory of one GPU.

    Raises ``InvalidInput`` if the tokens exceed what the model was made for, the heads don't divide
    by the tensor parallel size, or the GPU lacks the weight format.
    """
    _check_context(model, workload)
    _check_parallel(model, serving)
    quantization = effective_quantization(model, serving)
    check_gpu_runs(quantization, gpu)

    parallel = serving.tensor_parallel_size
    defaults = engine_defaults(gpu)
    sequence_limit = serving.max_sequences or defaults.sequences
    weights = -(-weight_bytes(model, quantization) // parallel)
    engine = _engine_bytes(model, weights, parallel, sequence_limit, defaults.batched_tokens)
    usable = math.floor(serving.gpu_memory_utilization * gpu.memory_bytes)
    for_cache = usable - weights - engine
    one_sequence = kv_bytes(model, workload.prompt_tokens + workload.output_tokens, parallel)
    return MemoryFit(
        weight_bytes=weights,
        kv_bytes_per_token=_kv_bytes_per_token_and_layer(model, parallel) * _cache_layers(model),
        kv_bytes_per_sequence=one_sequence,
        engine_bytes=engine,
        usable_bytes=usable,
        required_bytes=weights + engine + one_sequence,
        max_sequences=max(0, min(sequence_limit, for_cache // one_sequence)),
        max_context_tokens=_longest_context(model, for_cache, parallel),
        fits=for_cache >= one_sequence,
    )


def kv_bytes(model: ModelSpec, tokens: int, tensor_parallel_size: int = 1) -> int:
    """Cache bytes on one GPU for one sequence of ``tokens``; sliding layers keep their window only."""
    per_layer = _kv_bytes_per_token_and_layer(model, tensor_parallel_size)
    full = _cache_layers(model) - model.sliding_layers
    windowed = tokens if model.sliding_window is None else min(tokens, model.sliding_window)
    return per_layer * (full * _whole_blocks(tokens) + model.sliding_layers * _whole_blocks(windowed))


def _kv_bytes_per_token_and_layer(model: ModelSpec, parallel: int) -> int:
    if model.kv_elements_per_token is not None:
        # A latent cache is one vector for all heads: every GPU keeps the whole of it.
        return model.kv_elements_per_token * _KV_BYTES_PER_ELEMENT
    # With more GPUs than KV heads, heads are replicated.
    heads = -(-model.kv_heads // parallel)
    return 2 * heads * model.head_dim * _KV_BYTES_PER_ELEMENT


def _cache_layers(model: ModelSpec) -> int:
    return model.layers if model.kv_layers is None else model.kv_layers


def _whole_blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS


def _engine_bytes(model: ModelSpec, weights: int, parallel: int, sequences: int, batched_tokens: int) -> int:
    # Widest point of a layer: the gate's and up projections' outputs beside their product, and the residual.
    wide = (3 if model.gated_mlp else 2) * model.intermediate_size / parallel + 3 * model.hidden_size
    forward = batched_tokens * wide * 2
    logits = sequences * model.vocab_size * LOGIT_BYTES
    return math.ceil(CONTEXT_BYTES + WEIGHT_OVERHEAD * weights + max(forward, logits))


def _longest_context(model: ModelSpec, available: int, parallel: int) -> int:
    """The most tokens, in whole blocks, whose cache fits in ``available`` bytes."""
    per_layer = _kv_bytes_per_token_and_layer(model, parallel)
    full = _cache_layers(model) - model.sliding_layers
    everywhere = available // (per_layer * _cache_layers(model)) if available > 0 else 0
    if model.sliding_window is not None and model.sliding_layers and everywhere > model.sliding_window:
        beyond = available - per_layer * model.sliding_layers * _whole_blocks(model.sliding_window)
        everywhere = beyond // (per_layer * full) if full else everywhere
        if not full:
            return model.max_context_tokens or everywhere
    longest = everywhere // BLOCK_TOKENS * BLOCK_TOKENS
    return longest if model.max_context_tokens is None else min(longest, model.max_context_tokens)


def _check_context(model: ModelSpec, workload: Workload) -> None:
    tokens = workload.prompt_tokens + workload.output_tokens
    if model.max_context_tokens is not None and tokens > model.max_context_tokens:
        raise InvalidInput(
            "workload.prompt_tokens",
            f"prompt and output together are {tokens} tokens, but {model.id} takes at most "
            f"{model.max_context_tokens}; shorten one of the two",
        )


def _check_parallel(model: ModelSpec, serving: ServingConfig) -> None:
    if model.attention_heads % serving.tensor_parallel_size:
        raise InvalidInput(
            "serving.tensor_parallel_size",
            f"{model.attention_heads} attention heads of {model.id} can't be split over "
            f"{serving.tensor_parallel_size} GPUs; choose a size that divides them",
        )
