"""The four inputs of a prediction: GPU, model, workload, serving configuration.

All are immutable values that check themselves when built: an instance that exists is sound.
Units are in the names; ``None`` means "not known", which recipes must cope with.
Errors: ``InvalidInput`` with the dotted path of the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .errors import InvalidInput

Scenario = Literal["Server", "Offline"]
SCENARIOS: tuple[Scenario, ...] = ("Server", "Offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU as the driver shows it (of a board with several, one of them).

    ``memory_bytes`` is what the driver reports as total (NVML, the node label
    ``nvidia.com/gpu.memory``); ``memory_nominal_gb`` is the figure on the data sheet. Replace the
    former with ``dataclasses.replace`` when a node tells the exact one.
    """

    name: str
    memory_bytes: int
    memory_bandwidth_gb_s: float
    tdp_watts: float
    fp16_dense_tflops: float | None = None
    memory_nominal_gb: float | None = None
    memory_type: str | None = None
    compute_capability: str | None = None
    architecture: str | None = None
    form_factor: str | None = None
    release_year: int | None = None
    base_clock_mhz: float | None = None
    boost_clock_mhz: float | None = None
    sm_count: int | None = None
    l2_cache_mb: float | None = None
    process_nm: float | None = None
    transistors_millions: float | None = None
    fp8_dense_tflops: float | None = None
    int8_dense_tops: float | None = None
    nvlink_gb_s: float | None = None
    pcie_generation: int | None = None
    nvml_name: str | None = None
    vendor: str = "NVIDIA"
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        _text(self.name, "gpu.name")
        _number(self.memory_bytes, "gpu.memory_bytes", most=1e14)
        _number(self.memory_bandwidth_gb_s, "gpu.memory_bandwidth_gb_s", most=1e6)
        _number(self.tdp_watts, "gpu.tdp_watts", most=1e5)
        for name, most in _OPTIONAL_GPU_NUMBERS.items():
            value = getattr(self, name)
            if value is not None:
                _number(value, f"gpu.{name}", most=most)
        if self.compute_capability is not None:
            _capability(self.compute_capability)
        if self.base_clock_mhz and self.boost_clock_mhz and self.base_clock_mhz > self.boost_clock_mhz:
            raise InvalidInput(
                "gpu.base_clock_mhz",
                f"{self.base_clock_mhz} MHz is above the boost clock of {self.boost_clock_mhz} MHz; "
                "correct one of the two or leave both out",
            )

    @property
    def capability(self) -> tuple[int, int] | None:
        """CUDA compute capability as (major, minor), or None where it isn't known."""
        return None if self.compute_capability is None else _capability(self.compute_capability)


_OPTIONAL_GPU_NUMBERS: Mapping[str, float] = {
    "fp16_dense_tflops": 1e6,
    "memory_nominal_gb": 1e5,
    "release_year": 2200,
    "base_clock_mhz": 1e5,
    "boost_clock_mhz": 1e5,
    "sm_count": 1e5,
    "l2_cache_mb": 1e5,
    "process_nm": 1e3,
    "transistors_millions": 1e8,
    "fp8_dense_tflops": 1e6,
    "int8_dense_tops": 1e6,
    "nvlink_gb_s": 1e6,
    "pcie_generation": 100,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder-only language model, from its published configuration.

    Parameter counts are true ones computed from the architecture (a "7B" may have 7.6), in 10⁹,
    embeddings included. ``parameters_active_billion`` counts what one token touches (equal to the
    total unless the model is a mixture of experts). ``kv_layers`` is the number of layers that keep
    a key-value cache, ``sliding_layers`` those among them that keep ``sliding_window`` tokens only.
    ``kv_elements_per_token`` overrides 2·kv_heads·head_dim where the cache isn't made of plain keys
    and values (latent attention). ``tower_parameters_billion`` are encoders of a multimodal model: they
    take memory, decoding doesn't touch them. ``native_quantization`` is the checkpoint's own format.
    """

    id: str
    model_type: str
    parameters_total_billion: float
    parameters_active_billion: float
    layers: int
    hidden_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_context_tokens: int | None = None
    tie_word_embeddings: bool = False
    experts_total: int | None = None
    experts_active: int | None = None
    native_dtype: str = "bfloat16"
    native_quantization: str | None = None
    gated_mlp: bool = True
    kv_layers: int | None = None
    sliding_layers: int = 0
    sliding_window: int | None = None
    kv_elements_per_token: int | None = None
    tower_parameters_billion: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        _text(self.id, "model.id")
        _text(self.model_type, "model.model_type")
        _number(self.parameters_total_billion, "model.parameters_total_billion", most=1e5)
        _number(self.parameters_active_billion, "model.parameters_active_billion", most=1e5)
        for name, most in _MODEL_COUNTS.items():
            value = getattr(self, name)
            if value is not None:
                _count(value, f"model.{name}", most=most)
        if self.tower_parameters_billion:
            _number(self.tower_parameters_billion, "model.tower_parameters_billion", most=1e5)
        self._check_contradictions()

    def _check_contradictions(self) -> None:
        if self.parameters_active_billion > self.parameters_total_billion * (1 + 1e-9):
            raise InvalidInput(
                "model.parameters_active_billion",
                f"{self.parameters_active_billion} exceeds the total of {self.parameters_total_billion}; "
                "a token can't touch more weights than the model has",
            )
        if self.attention_heads % self.kv_heads:
            raise InvalidInput(
                "model.kv_heads",
                f"{self.attention_heads} attention heads can't be shared by {self.kv_heads} KV heads; "
                "the first must be a multiple of the second",
            )
        if (self.experts_total is None) != (self.experts_active is None):
            raise InvalidInput("model.experts_active", "give both the total and active experts, or neither")
        if (self.experts_active or 0) > (self.experts_total or 0):
            raise InvalidInput(
                "model.experts_active",
                f"{self.experts_active} exceeds experts_total {self.experts_total}; lower it",
            )
        if (self.kv_layers if self.kv_layers is not None else self.layers) > self.layers:
            raise InvalidInput("model.kv_layers", f"{self.kv_layers} exceeds the {self.layers} layers")
        if self.sliding_layers and self.sliding_window is None:
            raise InvalidInput("model.sliding_window", "missing, but some layers slide; give it in tokens")
        if self.sliding_layers > (self.kv_layers if self.kv_layers is not None else self.layers):
            raise InvalidInput("model.sliding_layers", f"{self.sliding_layers} exceeds the layers that cache")

    @property
    def is_mixture_of_experts(self) -> bool:
        """Whether a token touches only part of the weights."""
        return (self.experts_total or 1) > 1 or self.parameters_active_billion < self.parameters_total_billion

    @property
    def architecture_key(self) -> tuple[object, ...]:
        """What a step's speed depends on: two ids with equal keys are the same network."""
        return (
            self.model_type,
            round(self.parameters_total_billion, 4),
            self.layers,
            self.hidden_size,
            self.attention_heads,
            self.kv_heads,
            self.head_dim,
            self.intermediate_size,
            self.vocab_size,
        )


_MODEL_COUNTS: Mapping[str, float] = {
    "layers": 1e4,
    "hidden_size": 1e6,
    "attention_heads": 1e5,
    "kv_heads": 1e5,
    "head_dim": 1e5,
    "intermediate_size": 1e7,
    "vocab_size": 1e8,
    "max_context_tokens": 1e9,
    "experts_total": 1e5,
    "experts_active": 1e5,
    "kv_layers": 1e4,
    "sliding_window": 1e9,
    "kv_elements_per_token": 1e8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one replica is asked to do.

    ``requests_per_second`` is the mean Poisson arrival rate **at one replica**; it must be given
    for Server and is ignored for Offline (a queue that is never empty). Token counts are means a
    request.
    """

    scenario: Scenario = "Server"
    requests_per_second: float | None = None
    prompt_tokens: int = 256
    output_tokens: int = 256

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise InvalidInput(
                "workload.scenario", f"{self.scenario!r} isn't a scenario; choose 'Server' or 'Offline'"
            )
        if self.requests_per_second is not None:
            _number(self.requests_per_second, "workload.requests_per_second", most=1e6)
        elif self.scenario == "Server":
            raise InvalidInput(
                "workload.requests_per_second", "missing; the Server scenario needs the mean arrival rate"
            )
        _count(self.prompt_tokens, "workload.prompt_tokens", most=1e8)
        _count(self.output_tokens, "workload.output_tokens", most=1e8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingConfig:
    """How the engine is run. ``quantization`` 'none' means the checkpoint as published.

    ``expert_parallel``: each GPU keeps whole experts of a mixture instead of a slice of every one.
    """

    quantization: str = "none"
    tensor_parallel_size: int = 1
    expert_parallel: bool = False
    max_sequences: int | None = None
    gpu_memory_utilization: float = 0.9

    def __post_init__(self) -> None:
        _text(self.quantization, "serving.quantization")
        _count(self.tensor_parallel_size, "serving.tensor_parallel_size", most=1024)
        if self.max_sequences is not None:
            _count(self.max_sequences, "serving.max_sequences", most=1e6)
        _number(self.gpu_memory_utilization, "serving.gpu_memory_utilization", most=1.0)


def _text(value: object, name: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(name, f"{value!r} isn't a name; give a non-empty string")


def _number(value: object, name: str, *, most: float) -> None:
    # math.isfinite raises an error of its own for an integer beyond all floats.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -math.inf < value < math.inf:
        raise InvalidInput(name, f"{value!r} isn't a finite number; give one above 0")
    if not 0 < value <= most:
        raise InvalidInput(name, f"{value!r} is out of bounds; give a number above 0 and at most {most:g}")


def _count(value: object, name: str, *, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(name, f"{value!r} isn't a whole number; give one from 1")
    if not 1 <= value <= most:
        raise InvalidInput(name, f"{value!r} is out of bounds; give a whole number from 1 to {most:g}")


def _capability(text: str) -> tuple[int, int]:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise InvalidInput("gpu.compute_capability", f"{text!r} isn't of the form '8.9'; give major.minor")
    return int(major), int(minor)
