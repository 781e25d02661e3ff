"""Fake GPU nodes as dictionaries. Pure: `fleet` puts them into a cluster.

A node looks like a real one to the scheduler and to whatever reads labels: GPUs in its capacity, and the
labels of GPU feature discovery, of a cloud, or of both. kwok keeps it ready because of its annotation.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from tests.cluster.components import FAKE_NODE_ANNOTATION, FAKE_NODE_VALUE
from tests.cluster.gpus import GPUS, Gpu

Node = dict[str, Any]
Style = Literal["bare", "gke", "eks", "eks-auto", "karpenter", "aks"]

GPU_RESOURCE = "nvidia.com/gpu"
# As GKE sets it; others use the value "true".
GPU_TAINT = {"key": GPU_RESOURCE, "value": "present", "effect": "NoSchedule"}


def gpu_node(
    name: str,
    gpu: str,
    count: int = 1,
    *,
    style: Style = "bare",
    feature_discovery: bool | None = None,
    pool: str | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    replicas: int = 1,
    unhealthy: int = 0,
    labels: Mapping[str, str | None] | None = None,
    cpu: str = "64",
    memory: str = "512Gi",
) -> Node:
    """A Node manifest with ``count`` GPUs of the model ``gpu`` (a key of `gpus.GPUS`).

    ``style`` chooses whose labels it carries. ``feature_discovery`` adds those of GPU feature discovery to a
    cloud's; by default only a bare node has them, as clouds install it only with NVIDIA's operator.
    ``pool`` names the cloud's node pool (default: after the GPU). ``replicas`` above 1 shares each GPU by
    time-slicing. ``unhealthy`` GPUs are in the capacity but cannot be allocated. ``labels`` are added last
    and win; the value None removes a label.

    Raises ValueError for an unknown GPU or style, or a GPU count that the cloud does not offer.
    """
    model = _model(gpu)
    if not 0 <= unhealthy <= count:
        raise ValueError(f"count {count}, unhealthy {unhealthy}: they must obey 0 <= unhealthy <= count")
    if replicas < 1:
        raise ValueError(f"replicas {replicas}: give at least 1")
    merged = _cloud_labels(style, gpu, model, count, pool or gpu.lower())
    if feature_discovery if feature_discovery is not None else style == "bare":
        merged |= gfd_labels(model, count, replicas)
    for key, value in (labels or {}).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    capacity = {GPU_RESOURCE: str(count * replicas)}
    allocatable = {GPU_RESOURCE: str((count - unhealthy) * replicas)}
    return _node(name, merged, taints, cpu, memory, capacity, allocatable)


def cpu_node(
    name: str,
    *,
    taints: Sequence[Mapping[str, str]] = (),
    labels: Mapping[str, str] | None = None,
    cpu: str = "16",
    memory: str = "64Gi",
) -> Node:
    """A Node manifest without GPUs."""
    return _node(name, dict(labels or {}), taints, cpu, memory, {}, {})


def mixed_fleet(prefix: str = "") -> list[Node]:
    """Ten bare nodes of seven GPU models: the fleet of the demo. ``prefix`` comes before each name."""
    sizes = (
        ("h100", "H100-SXM", 8, 1),
        ("h100-nvl", "H100-NVL", 2, 1),
        ("a100-80gb", "A100-SXM4-80GB", 8, 1),
        ("a100-40gb", "A100-SXM4-40GB", 8, 1),
        ("l40s", "L40S", 4, 2),
        ("l4", "L4", 4, 2),
        ("a30", "A30", 2, 2),
    )
    return [
        gpu_node(f"{prefix}{stem}-{number}", gpu, count)
        for stem, gpu, count, machines in sizes
        for number in range(machines)
    ]


def gfd_labels(model: Gpu, count: int, replicas: int = 1) -> dict[str, str]:
    """The labels of GPU feature discovery and of the GPU operator (``present``)."""
    shared = replicas > 1
    major, minor = model.compute
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": f"{model.product}-SHARED" if shared else model.product,
        "nvidia.com/gpu.count": str(count),
        # Replicas of each GPU, not of all together.
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": "time-slicing" if shared else "none",
        "nvidia.com/gpu.memory": str(model.memory_mib),
        "nvidia.com/gpu.family": model.family,
        "nvidia.com/gpu.compute.major": str(major),
        "nvidia.com/gpu.compute.minor": str(minor),
        "nvidia.com/mig.capable": str(model.family in ("ampere", "hopper")).lower(),
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/cuda.driver-version.full": "570.86.15",
    }


def _cloud_labels(style: Style, name: str, model: Gpu, count: int, pool: str) -> dict[str, str]:
    match style:
        case "bare":
            return {}
        case "gke":
            return {
                "cloud.google.com/gke-nodepool": pool,
                "cloud.google.com/gke-accelerator": _offered(style, name, model.gke),
                "cloud.google.com/gke-accelerator-count": str(count),
                "node.kubernetes.io/instance-type": _sized(style, name, model.gke_machines, count),
            }
        case "eks":
            return {
                "eks.amazonaws.com/nodegroup": pool,
                "node.kubernetes.io/instance-type": _sized(style, name, model.aws_instances, count),
            }
        case "eks-auto":
            return {
                "karpenter.sh/nodepool": pool,
                "eks.amazonaws.com/compute-type": "auto",
                "eks.amazonaws.com/instance-gpu-name": _offered(style, name, model.aws),
                "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia",
                "eks.amazonaws.com/instance-gpu-count": str(count),
                "node.kubernetes.io/instance-type": _sized(style, name, model.aws_instances, count),
            }
        case "karpenter":
            return {
                "karpenter.sh/nodepool": pool,
                "karpenter.sh/capacity-type": "on-demand",
                "karpenter.k8s.aws/instance-gpu-name": _offered(style, name, model.aws),
                "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
                "karpenter.k8s.aws/instance-gpu-count": str(count),
                "node.kubernetes.io/instance-type": _sized(style, name, model.aws_instances, count),
            }
        case "aks":
            # Azure's accelerator label names the vendor only; the size tells the model.
            return {
                "kubernetes.azure.com/agentpool": pool,
                "kubernetes.azure.com/accelerator": "nvidia",
                "node.kubernetes.io/instance-type": _sized(style, name, model.azure_sizes, count),
            }
    raise ValueError(f"unknown style {style!r}: give one of {', '.join(get_args(Style))}")


def _model(gpu: str) -> Gpu:
    if gpu not in GPUS:
        raise ValueError(f"unknown GPU {gpu!r}: give one of {', '.join(GPUS)}")
    return GPUS[gpu]


def _offered(style: str, gpu: str, value: str | None) -> str:
    if value is None:
        raise ValueError(f"{gpu} is not offered in style {style!r}")
    return value


def _sized(style: str, gpu: str, sizes: Mapping[int, str], count: int) -> str:
    if count not in sizes:
        offered = ", ".join(map(str, sizes)) or "none"
        raise ValueError(f"no machine with {count} × {gpu} in style {style!r}; there are: {offered}")
    return sizes[count]


def _node(
    name: str,
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
    cpu: str,
    memory: str,
    capacity: Mapping[str, str],
    allocatable: Mapping[str, str],
) -> Node:
    base = {"cpu": cpu, "memory": memory, "ephemeral-storage": "2Ti", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {FAKE_NODE_ANNOTATION: FAKE_NODE_VALUE},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **labels,
            },
        },
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {"capacity": base | dict(capacity), "allocatable": base | dict(allocatable)},
    }
