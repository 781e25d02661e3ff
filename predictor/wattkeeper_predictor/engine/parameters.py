"""The simulator's fitted factors, each with its prior.

Every factor is positive and fitted as a logarithm with a normal prior of the width given. Priors are what
hardware and engines are known to do (seed of the fit, and what remains where data is silent); they are
not tuned to the measured runs. Two sets exist: *online* for an API server, *offline* for a full queue
handed to the engine at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Prior(NamedTuple):
    """Median and width (standard deviation of the logarithm)."""

    median: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParameters:
    """Factors on ideal times have no unit; times are in seconds."""

    weight_read: float  # weights over nominal bandwidth
    weight_read_gddr: float  # … further factor on GDDR
    batched_read: float  # how much longer weights take once there is more than one row
    cache_read: float  # KV cache over nominal bandwidth
    cache_read_old: float  # … added share before compute capability 8.0
    cache_read_odd: float  # … factor for heads whose size has no fast kernel on Hopper
    compute: float  # operations over the dense rate
    compute_old: float  # … added share before compute capability 8.0
    power: float  # operations over what the board's power allows, in seconds·W/GFLOP
    power_node: float  # exponent of the process node (relative to 7 nm) therein
    layer: float  # seconds a layer: launches, norms, small kernels
    layer_clock: float  # exponent of the clock (relative to 1.7 GHz) therein
    layer_mixture: float  # seconds a layer more with routed experts
    layer_hybrid: float  # seconds a layer more in models with state-space blocks
    layer_uncaptured: float  # seconds a layer more above 512 sequences, beyond the captured graphs
    step: float  # seconds a step: scheduler, sampler
    sequence: float  # seconds a sequence and step: bookkeeping on the host
    sampling: float  # seconds a sequence and step, at 100 multiprocessor-GHz
    logits: float  # reads of a 32-bit logit row
    link_latency: float  # seconds a layer: the two all-reduces of tensor parallelism over NVLink
    link_read: float  # bytes over the link's nominal rate
    expert_imbalance: float  # the fullest GPU's experts over the mean, with expert parallelism
    first_token: float  # seconds before the first token, beyond the prompt's own work
    occupancy: float  # sequences met by a request over Little's law
    tail: float  # steps after the queue has run dry, over the spread of output lengths

    def vector(self) -> Array:
        """Logarithms, in the order of the fields."""
        return np.log(np.array([getattr(self, field.name) for field in fields(self)], dtype=np.float64))

    def as_dict(self) -> dict[str, float]:
        """By name, as the manifest keeps them."""
        return asdict(self)


NAMES: tuple[str, ...] = tuple(field.name for field in fields(StepParameters))


def from_vector(logarithms: Array) -> StepParameters:
    """The inverse of ``vector``."""
    return StepParameters(**dict(zip(NAMES, np.exp(logarithms).tolist(), strict=True)))


_COMMON: Mapping[str, Prior] = {
    "weight_read": Prior(1.15, 0.5),
    "weight_read_gddr": Prior(1.0, 0.3),
    "batched_read": Prior(0.05, 0.7),
    "cache_read": Prior(1.3, 0.7),
    "cache_read_old": Prior(5.0, 0.7),
    "cache_read_odd": Prior(1.5, 0.7),
    "power_node": Prior(1.0, 0.5),
    "layer": Prior(20e-6, 0.7),
    "layer_clock": Prior(0.5, 0.7),
    "layer_mixture": Prior(30e-6, 1.0),
    "layer_hybrid": Prior(20e-6, 2.0),
    "layer_uncaptured": Prior(50e-6, 0.7),
    "step": Prior(0.3e-3, 0.7),
    "sampling": Prior(5e-6, 0.7),
    "logits": Prior(0.5, 0.7),
    # Two all-reduces of about 12 µs each, in NVLink's one- and two-shot kernels.
    "link_latency": Prior(25e-6, 0.4),
    "link_read": Prior(2.0, 0.3),
    "expert_imbalance": Prior(1.2, 0.3),
    "first_token": Prior(10e-3, 0.7),
    "occupancy": Prior(1.0, 0.7),
    "tail": Prior(0.5, 0.7),
}
ONLINE_PRIORS: Mapping[str, Prior] = {
    **_COMMON,
    # Large matrix products reach some two thirds of the dense rate.
    "compute": Prior(1.5, 0.25),
    "compute_old": Prior(7.0, 1.0),
    "power": Prior(0.5e-3, 1.0),
    "sequence": Prior(20e-6, 0.7),
}
OFFLINE_PRIORS: Mapping[str, Prior] = {
    **_COMMON,
    "compute": Prior(1.5, 1.0),
    "compute_old": Prior(2.0, 0.7),
    "power": Prior(1e-3, 1.5),
    "sequence": Prior(5e-6, 0.7),
}


def prior_vectors(priors: Mapping[str, Prior]) -> tuple[Array, Array]:
    """Logarithms of the medians, and widths, in the order of ``NAMES``."""
    ordered = [priors[name] for name in NAMES]
    return np.log([prior.median for prior in ordered]), np.array([prior.width for prior in ordered])
