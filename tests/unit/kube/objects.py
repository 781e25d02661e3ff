"""Objects as the API server gives them, for the tests of what is kept of them."""

from itertools import count
from typing import Any

_versions = count(100)


def meta(name: str, namespace: str | None = "team-a", **more: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(next(_versions)),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 1,
        **more,
    }
    return metadata | ({"namespace": namespace} if namespace else {})


def node(name: str, gpus: int = 1, product: str = "NVIDIA-L4", **labels: str) -> dict[str, Any]:
    return {
        "metadata": meta(
            name, None, labels={"nvidia.com/gpu.product": product, "kubernetes.io/hostname": name, **labels}
        ),
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "capacity": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, node_name: str = "", gpus: int = 1, model: str = "", **status: Any) -> dict[str, Any]:
    labels = {"wattkeeper.dev/llmdeployment": model} if model else {}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": meta(name, labels=labels),
        "spec": {"nodeName": node_name, "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": "Running", **status},
    }


def llmd(name: str, status: dict[str, Any] | None = None, created: int = 0, **spec: Any) -> dict[str, Any]:
    basis: dict[str, Any] = {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "workload": {"requestsPerSecond": "330m"},
        "sla": {"interTokenLatency": "70ms"},
        "replicas": 1,
    }
    resource = {
        "apiVersion": "wattkeeper.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": meta(name, creationTimestamp=f"2026-01-01T00:00:{created:02}Z"),
        "spec": basis | spec,
    }
    return resource | ({"status": status} if status is not None else {})


def pool(name: str, selector: dict[str, str], **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "wattkeeper.dev/v1alpha1",
        "kind": "GPUNodePool",
        "metadata": meta(name, None, labels=labels),
        "spec": {"nodeSelector": selector},
    }
