"""A small fleet as dcgm-exporter and vLLM tell of it, written to Prometheus at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.prometheus.remote_write import RemoteWriter
from tests.prometheus.server import PrometheusServer
from wattkeeper.telemetry.cluster import ClusterView, KnownNode, KnownPod
from wattkeeper.telemetry.prometheus import PrometheusSource
from wattkeeper.telemetry.promql import PrometheusOptions

T0 = 1_700_000_000.0
MIB = 1024**2


@dataclass(frozen=True)
class Fleet:
    """`gpus` GPUs, eight a node, each held by one model server; all series carry `test=name`."""

    name: str
    gpus: int = 1

    def uuid(self, number: int = 0) -> str:
        return f"GPU-{number:08d}"

    def cluster(self) -> ClusterView:
        nodes = [
            KnownNode(f"node-{i}", (f"192.0.2.{i}",), has_gpus=True) for i in range((self.gpus + 7) // 8)
        ]
        return ClusterView(
            nodes,
            [
                KnownPod("team", f"llm-{i}", f"uid-{i}", f"node-{i // 8}", f"10.1.{i // 200}.{i % 200}")
                for i in range(self.gpus)
            ],
        )

    def gpu_labels(self, number: int, **more: str) -> dict[str, str]:
        return {
            "UUID": self.uuid(number),
            "gpu": str(number % 8),
            "Hostname": f"node-{number // 8}",
            "modelName": "NVIDIA H100 80GB HBM3",
            "exported_pod": f"llm-{number}",
            "exported_namespace": "team",
            "exported_container": "server",
            "pod": f"nvidia-dcgm-exporter-{number // 8}",
            "namespace": "gpu-operator",
            "instance": f"192.0.2.{number // 8}:9400",
            "job": "dcgm",
            "test": self.name,
        } | more

    def server_labels(self, number: int, **more: str) -> dict[str, str]:
        return {
            "engine": "0",
            "model_name": "org/model",
            "namespace": "team",
            "pod": f"llm-{number}",
            "instance": f"10.1.{number // 200}.{number % 200}:8000",
            "job": "llms",
            "test": self.name,
        } | more

    def write(
        self,
        writer: RemoteWriter,
        at: float,
        *,
        gpu: Mapping[str, float] | None = None,
        server: Mapping[str, float] | None = None,
        **labels: str,
    ) -> None:
        """One scrape of everything; `gpu` and `server` replace single values, `labels` of all GPU rows."""
        gpu = {
            "DCGM_FI_DEV_POWER_USAGE": 121.5,
            "DCGM_FI_DEV_GPU_UTIL": 0.0,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0,
            "DCGM_FI_DEV_FB_USED": 60_000.0,
            "DCGM_FI_DEV_SM_CLOCK": 1980.0,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (at - T0 + 1e6) * 121_500,
        } | dict(gpu or {})
        server = {
            "vllm:num_requests_running": 0.0,
            "vllm:num_requests_waiting": 0.0,
            "vllm:prompt_tokens_total": 1000.0,
            "vllm:generation_tokens_total": 500.0,
            "vllm:request_success_total": 10.0,
        } | dict(server or {})
        numbers = range(self.gpus)
        writer.write(
            [
                ({"__name__": name} | self.gpu_labels(i, **labels), [(at, value)])
                for i in numbers
                for name, value in gpu.items()
            ]
            + [
                ({"__name__": name} | self.server_labels(i), [(at, value)])
                for i in numbers
                for name, value in server.items()
            ]
        )

    def source(self, prometheus: PrometheusServer, **options: object) -> PrometheusSource:
        fields: dict[str, object] = {"url": prometheus.url, "selector": {"test": self.name}} | options
        return PrometheusSource(PrometheusOptions(**fields))  # type: ignore[arg-type]
