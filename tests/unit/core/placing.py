"""Builders for the core's placement tests, and a forecaster that fails on a question nobody expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wattkeeper.core.demand import Demand, ModelChoice, Scenario, Sla, WorkloadShape
from wattkeeper.core.fleet import GpuNode, Pool
from wattkeeper.core.forecast import Forecast, GpuKind, MemoryFit, Refusal, RefusalReason
from wattkeeper.core.selectors import label_equals

GIB = 1024**3


def forecast(watts: float, itl_ms: float, **more: Any) -> Forecast:
    """A forecast whose upper bounds are 10 % above."""
    return Forecast(
        power_watts=watts,
        power_upper_watts=watts * 1.1,
        itl_seconds=itl_ms / 1000,
        itl_upper_seconds=itl_ms * 1.1 / 1000,
        **more,
    )


FITTING = MemoryFit(
    weight_bytes=16 * GIB,
    kv_bytes_per_token=131072,
    required_bytes=18 * GIB,
    usable_bytes=21 * GIB,
    max_sequences=40,
)
TOO_LARGE = MemoryFit(
    weight_bytes=16 * GIB,
    kv_bytes_per_token=131072,
    required_bytes=18 * GIB,
    usable_bytes=14 * GIB,
    max_sequences=0,
    kv_bytes_per_sequence=512 * 131072,
)
OUT_OF_RANGE = Refusal(
    RefusalReason.OUT_OF_PREDICTOR_RANGE, "spec.placement.tensorParallelSize", "only 1 was trained: set 1"
)


@dataclass
class FakeForecaster:
    """Answers from tables by GPU label and tensor parallel size; anything else fails the test."""

    forecasts: Mapping[tuple[str, int], Forecast | Refusal]
    memories: Mapping[tuple[str, int], MemoryFit | Refusal] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    unknown_gpus: frozenset[str] = frozenset()
    refuses_model: Refusal | None = None

    def gpu_name(self, gpu: GpuKind) -> str | None:
        if gpu.label in self.unknown_gpus:
            return None
        if all(label != gpu.label for label, _ in (*self.forecasts, *self.memories)):
            raise AssertionError(f"nobody expected the GPU {gpu.label!r}")
        return self.names.get(gpu.label, gpu.label.removeprefix("NVIDIA-"))

    def check_model(self, model: ModelChoice) -> Refusal | None:
        return self.refuses_model

    def memory(
        self, model: ModelChoice, gpu: GpuKind, workload: WorkloadShape, tensor_parallel_size: int
    ) -> MemoryFit | Refusal:
        return self.memories.get((gpu.label, tensor_parallel_size), FITTING)

    def forecast(
        self, model: ModelChoice, gpu: GpuKind, workload: WorkloadShape, sla: Sla, tensor_parallel_size: int
    ) -> Forecast | Refusal:
        try:
            return self.forecasts[gpu.label, tensor_parallel_size]
        except KeyError:
            raise AssertionError(
                f"nobody expected a forecast of {gpu.label!r} × {tensor_parallel_size}"
            ) from None


#: The measured figures of Llama-3.1-8B-Instruct at 0.33 requests a second.
MEASURED = FakeForecaster(
    {
        ("NVIDIA-H100-NVL", 1): forecast(201, 5.9),
        ("NVIDIA-A30", 1): forecast(139, 20.6),
        ("NVIDIA-L4", 1): forecast(71, 62),
    }
)


def demand(name: str = "llama", **changes: Any) -> Demand:
    values: dict[str, Any] = {
        "uid": f"uid-{name}",
        "namespace": "default",
        "name": name,
        "created": "2026-01-01T00:00:00Z",
        "model": ModelChoice("meta-llama/Llama-3.1-8B-Instruct"),
        "workload": WorkloadShape(Scenario.SERVER, 0.33, 256, 256),
        "sla": Sla(0.070),
        "tensor_parallel_size": 1,
    }
    return Demand(**values | changes)


def node(name: str, gpus: int = 1, label: str = "NVIDIA-L4", **changes: Any) -> GpuNode:
    labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": label, **changes.pop("labels", {})}
    named_by = label_equals({"nvidia.com/gpu.product": label})
    return GpuNode(name, labels, GpuKind(label), gpus, gpu_labels=named_by, **changes)


def pool(name: str, *nodes: GpuNode, label: str = "NVIDIA-L4", **changes: Any) -> Pool:
    """A pool of these nodes; without any, of one node with one GPU."""
    members = nodes or (node(f"{name}-0", label=label),)
    values: dict[str, Any] = {
        "name": name,
        "gpu": GpuKind(label),
        "nodes": members,
        "labels": {"wattkeeper.dev/gpu": name},
        "node_selector": {"nvidia.com/gpu.product": label},
    }
    return Pool(**values | changes)


L4 = pool("l4", label="NVIDIA-L4")
A30 = pool("a30", label="NVIDIA-A30")
H100 = pool("h100-nvl", label="NVIDIA-H100-NVL")
