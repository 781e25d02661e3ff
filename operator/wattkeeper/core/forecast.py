"""The core's port to a predictor, and the values that cross it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from wattkeeper.core.demand import ModelChoice, Sla, WorkloadShape


class RefusalReason(StrEnum):
    """Why no forecast can be given. A refusal is an answer, not a fault."""

    UNKNOWN_GPU = "UnknownGpu"
    UNKNOWN_MODEL = "UnknownModel"
    INVALID_MODEL = "InvalidModel"
    OUT_OF_PREDICTOR_RANGE = "OutOfPredictorRange"
    UNSUPPORTED_BY_GPU = "UnsupportedByGpu"
    UNSUPPORTED_PARALLELISM = "UnsupportedParallelism"
    INVALID_WORKLOAD = "InvalidWorkload"


@dataclass(frozen=True, slots=True)
class Refusal:
    """No number out of thin air: the reason, and a message that names the field and the cure."""

    reason: RefusalReason
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A pool's GPU as its nodes name it. `memory_bytes` is what the nodes report, where they do."""

    label: str  # e.g. NVIDIA-H100-80GB-HBM3
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory of one GPU of a replica, as vLLM accounts it."""

    weight_bytes: int
    kv_bytes_per_token: int
    required_bytes: int  # weights + engine + KV cache of one sequence of prompt + output
    usable_bytes: int
    max_sequences: int
    kv_bytes_per_sequence: int = 0  # prompt + output; layers with a sliding window keep less than all tokens
    max_context_tokens: int | None = None  # longest sequence whose cache fits; the server is started with it

    @property
    def fits(self) -> bool:
        return self.required_bytes <= self.usable_bytes and self.max_sequences >= 1


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one replica would draw and how fast it would answer.

    Power is the board power of all the replica's GPUs together, mean over the workload. The upper
    bounds are one-sided at the SLA's confidence.
    """

    power_watts: float
    power_upper_watts: float
    itl_seconds: float
    itl_upper_seconds: float
    ttft_seconds: float | None = None
    ttft_upper_seconds: float | None = None
    notes: tuple[str, ...] = ()


class Forecaster(Protocol):
    """Implemented by `wattkeeper.prediction` over the embedded predictor; deterministic and without I/O."""

    def gpu_name(self, gpu: GpuKind) -> str | None:
        """The catalogue's name of this GPU, or None when it isn't known."""

    def check_model(self, model: ModelChoice) -> Refusal | None:
        """Why this model can't be forecast on any GPU, or None."""

    def memory(
        self, model: ModelChoice, gpu: GpuKind, workload: WorkloadShape, tensor_parallel_size: int
    ) -> MemoryFit | Refusal:
        """Memory that one GPU of the replica needs, against what it has."""

    def forecast(
        self, model: ModelChoice, gpu: GpuKind, workload: WorkloadShape, sla: Sla, tensor_parallel_size: int
    ) -> Forecast | Refusal:
        """Power and latency of one replica at the workload's load."""
