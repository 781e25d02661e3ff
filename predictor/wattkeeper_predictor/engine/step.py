"""How long one decoding step takes: a sum of terms, each physical and each never falling with the batch.

All functions take and give arrays of shape (n,); times are seconds. Every term falls or stays as bandwidth,
compute or power grow, so more bandwidth never slows a step of the same batch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .columns import Columns
from .parameters import StepParameters

Array = NDArray[np.float64]

# vLLM captures CUDA graphs up to this many sequences; above it kernels are launched one by one.
_CAPTURED_SEQUENCES = 512
_FAST_HEAD_DIMS = (64, 128, 256)
# PCIe has no multicast and no peer writes in its all-reduce: several times NVLink's latency (no data here).
_PCIE_LATENCY = 3.0
_ACTIVATION_BYTES = 2
_LOGIT_BYTES = 4


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Seconds of one step, by cause."""

    weights: Array
    cache: Array
    compute: Array
    power: Array
    layers: Array
    step: Array
    sequences: Array
    logits: Array
    link: Array
    uncaptured: Array

    def total(self) -> Array:
        """The step's whole time."""
        return (
            self.weights + self.cache + self.compute + self.power + self.layers
            + self.step + self.sequences + self.logits + self.link + self.uncaptured
        )  # fmt: skip


TERM_NAMES: tuple[str, ...] = tuple(field.name for field in fields(StepTerms))


def mean_context(c: Columns) -> Array:
    """Mean tokens that a running sequence attends to."""
    return c.prompt + c.output / 2


def weight_gb_per_gpu(c: Columns, batch: Array) -> Array:
    """Gigabytes of weights that a step reads on each GPU.

    Routed experts are touched by chance: b tokens that take the share s each leave (1 − s)^b of them cold.
    """
    touched = 1 - (1 - c.expert_share) ** batch
    matrices = c.dense_billion - c.head_billion + c.expert_billion * touched
    return (c.bytes_per_weight * matrices + 2 * c.head_billion) / c.gpus


def gflop_per_token(c: Columns) -> Array:
    """10⁹ operations that one token costs on each GPU."""
    return 2 * c.active_billion / c.gpus


def matrix_tflops(c: Columns) -> Array:
    """Dense rate of the matrix products in the weights' format."""
    return c.tflops * np.where(c.eight_bit > 0, c.fp8_speedup, 1.0)


def cache_gb_per_sequence(c: Columns) -> Array:
    """Gigabytes of KV cache that one sequence's attention reads a step, on each GPU."""
    context = mean_context(c)
    read = c.cache_full_gb * context + c.cache_window_gb * np.minimum(context, c.window_tokens)
    return read / np.minimum(c.gpus, c.kv_heads)


def step_terms(p: StepParameters, c: Columns, batch: Array) -> StepTerms:
    """One step of ``batch`` sequences, each generating a token."""
    read = (
        p.weight_read
        * np.where(c.gddr > 0, p.weight_read_gddr, 1.0)
        * (1 + p.batched_read * (1 - 1 / np.maximum(batch, 1)))
    )
    imbalance = np.where(c.expert_parallel > 0, p.expert_imbalance, 1.0)
    odd = (c.hopper > 0) & ~np.isin(c.head_dim, _FAST_HEAD_DIMS)
    cache = p.cache_read * (1 + p.cache_read_old * c.old) * np.where(odd, p.cache_read_odd, 1.0)
    gflop = gflop_per_token(c) * batch
    several = c.gpus > 1
    clock = (1.7 / c.boost_ghz) ** p.layer_clock
    return StepTerms(
        weights=read * imbalance * weight_gb_per_gpu(c, batch) / c.bandwidth_gb_s,
        cache=cache * batch * cache_gb_per_sequence(c) / c.bandwidth_gb_s,
        compute=p.compute * (1 + p.compute_old * c.old) * gflop / (1e3 * matrix_tflops(c)),
        power=p.power * gflop / c.tdp_watts * (c.process_nm / 7) ** p.power_node,
        layers=c.layers * (p.layer * clock + p.layer_mixture * c.mixture + p.layer_hybrid * c.hybrid),
        step=np.full_like(batch, p.step),
        sequences=batch * (p.sequence + p.sampling * 1e2 / c.sm_ghz),
        logits=p.logits * batch * _LOGIT_BYTES * c.vocab / 1e9 / (c.bandwidth_gb_s * c.gpus),
        link=np.where(
            several,
            p.link_latency * c.layers * np.where(c.pcie > 0, _PCIE_LATENCY, 1.0)
            + p.link_read * _exchanged_gb(c, batch) / c.link_gb_s,
            0.0,
        ),
        uncaptured=p.layer_uncaptured * c.layers * (batch > _CAPTURED_SEQUENCES),
    )


def prompt_seconds(p: StepParameters, c: Columns) -> Array:
    """What reading one prompt adds to the step that carries it: its operations, and their exchange."""
    # Causal attention: each token attends to half the prompt on average, twice (scores and values).
    attention = 2 * c.cache_layers * c.hidden * c.prompt**2 / c.gpus / 1e9
    gflop = gflop_per_token(c) * c.prompt + attention
    return (
        p.compute * (1 + p.compute_old * c.old) * gflop / (1e3 * matrix_tflops(c))
        + p.power * gflop / c.tdp_watts * (c.process_nm / 7) ** p.power_node
        + p.link_read * _exchanged_gb(c, c.prompt) / c.link_gb_s
    )


def _exchanged_gb(c: Columns, tokens: Array) -> Array:
    """Gigabytes that each GPU sends for ``tokens``: two all-reduces of their activations a layer."""
    return 2 * _ACTIVATION_BYTES * tokens * c.hidden * c.layers * (c.gpus - 1) / c.gpus / 1e9
