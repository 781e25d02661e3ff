"""How many sequences a GPU's memory holds: ``memory.memory_fit``'s accounting, for arrays of questions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.memory import (
    BLOCK_TOKENS,
    CONTEXT_BYTES,
    LARGE_GPU_DEFAULTS,
    LOGIT_BYTES,
    SMALL_GPU_DEFAULTS,
    WEIGHT_OVERHEAD,
)

from .columns import Columns

Array = NDArray[np.float64]
_BYTES = 2


@dataclass(frozen=True, slots=True)
class Capacity:
    """Sequences, by two measures.

    ``whole``: sequences that fit with the whole cache of prompt + output each, at most the limit: what may
    be promised. ``running``: as many as fit at their mean length, which is what an engine that admits by
    present use reaches on average; at least 1.
    """

    whole: Array
    running: Array


def capacity(c: Columns) -> Capacity:
    """Both measures, never above the limit of sequences."""
    free = c.utilization * c.memory_gb - c.weights_gb / c.gpus - _engine_gb(c)
    split = _cache_split(c)
    whole = free / (_cache_gb(c, c.prompt + c.output) / split)
    mean = c.prompt + c.output / 2 + BLOCK_TOKENS
    at_work = free / ((c.cache_full_gb * mean + c.cache_window_gb * np.minimum(mean, _window(c))) / split)
    promised = np.clip(np.floor(whole + 1e-9), 0, c.sequence_limit)
    return Capacity(whole=promised, running=np.clip(np.maximum(at_work, promised), 1, c.sequence_limit))


def _cache_split(c: Columns) -> Array:
    # Heads are replicated beyond their number, and shares are whole heads.
    return c.kv_heads / np.ceil(c.kv_heads / c.gpus)


def _cache_gb(c: Columns, tokens: Array) -> Array:
    kept = np.minimum(tokens, _window(c))
    return c.cache_full_gb * _whole_blocks(tokens) + c.cache_window_gb * _whole_blocks(kept)


def _window(c: Columns) -> Array:
    return np.where(c.window_tokens > 0, c.window_tokens, np.inf)


def _whole_blocks(tokens: Array) -> Array:
    return np.ceil(tokens / BLOCK_TOKENS) * BLOCK_TOKENS


def _engine_gb(c: Columns) -> Array:
    batched = np.where(
        c.large > 0, float(LARGE_GPU_DEFAULTS.batched_tokens), float(SMALL_GPU_DEFAULTS.batched_tokens)
    )
    wide = np.where(c.gated > 0, 3, 2) * c.intermediate / c.gpus + 3 * c.hidden
    forward = batched * wide * _BYTES
    logits = c.sequence_limit * c.vocab * LOGIT_BYTES
    return (CONTEXT_BYTES + np.maximum(forward, logits)) / 1e9 + WEIGHT_OVERHEAD * c.weights_gb / c.gpus
