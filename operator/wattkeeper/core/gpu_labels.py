"""Which GPU a node has, by its labels; and what keeps its GPUs from being offered.

Read are the labels of GPU feature discovery (it asks NVML), then those of GKE, EKS Auto Mode and
Karpenter, then the instance type (all that AKS and plain EKS node groups tell). Anything that would need
a guess (shared, partitioned or virtual GPUs, two models in one node, labels that disagree) is a problem
with its cure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wattkeeper.core.demand import LabelRequirement
from wattkeeper.core.fleet import Problem
from wattkeeper.core.forecast import GpuKind
from wattkeeper.core.gpu_names import (
    AWS_GPU_NAMES,
    FRACTION,
    GKE_ACCELERATORS,
    gpu_of_instance_type,
    gpu_slug,
    same_family,
)

GPU_RESOURCE = "nvidia.com/gpu"
_SHARED_RESOURCE = "nvidia.com/gpu.shared"
_MIG_RESOURCE_PREFIX = "nvidia.com/mig-"

GFD_PRODUCT = "nvidia.com/gpu.product"
GFD_COUNT = "nvidia.com/gpu.count"
GFD_MEMORY_MIB = "nvidia.com/gpu.memory"
GFD_REPLICAS = "nvidia.com/gpu.replicas"
GFD_SHARING = "nvidia.com/gpu.sharing-strategy"
VGPU_PRESENT = "nvidia.com/vgpu.present"
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
AWS_GPU_NAME_LABELS = ("eks.amazonaws.com/instance-gpu-name", "karpenter.k8s.aws/instance-gpu-name")
INSTANCE_TYPE = "node.kubernetes.io/instance-type"

#: Problems that a written pool's `gpu` settles, since it says what the labels leave open.
CURED_BY_NAMING = frozenset({"GpuUnnamed", "GpuLabelsDisagree"})

_MIB = 1024**2
_MOST_MEMORY_MIB = 1 << 26  # 64 TiB: beyond it the label is a mistake


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A node's GPU: its kind (an empty label where none is named), the labels that say so, any problem."""

    kind: GpuKind
    named_by: tuple[LabelRequirement, ...]
    problem: Problem | None


@dataclass(frozen=True, slots=True)
class _Naming:
    key: str
    value: str
    gpu: str


def read_gpu(labels: Mapping[str, str], resources: Mapping[str, int]) -> GpuReading | None:
    """The GPU of a node with these labels and resources (the larger of capacity and allocatable).

    None if nothing says that the node has an NVIDIA GPU.
    """
    namings = list(_namings(labels))
    if not namings and not any(_is_gpu_resource(name) and count > 0 for name, count in resources.items()):
        return None
    whole_gpus = resources.get(GPU_RESOURCE, 0)
    problem = (
        _shared(labels, resources)
        or _partitioned(labels, resources)
        or _fraction(labels)
        or _mixed(labels, whole_gpus)
        or _disagreeing(namings)
        or _unnamed(namings)
    )
    if not namings:
        return GpuReading(GpuKind(""), (), problem)
    best = namings[0]
    kind = GpuKind(best.gpu, _memory_bytes(labels))
    return GpuReading(kind, (LabelRequirement(best.key, "In", (best.value,)),), problem)


def _is_gpu_resource(name: str) -> bool:
    return name in (GPU_RESOURCE, _SHARED_RESOURCE) or name.startswith(_MIG_RESOURCE_PREFIX)


def _namings(labels: Mapping[str, str]) -> Iterator[_Naming]:
    """All that the labels say about the GPU, the most exact source first."""
    if product := labels.get(GFD_PRODUCT):
        yield _Naming(GFD_PRODUCT, product, product)
    accelerator = labels.get(GKE_ACCELERATOR, "")
    if accelerator.startswith("nvidia"):
        yield _Naming(GKE_ACCELERATOR, accelerator, GKE_ACCELERATORS.get(accelerator, accelerator))
    for key in AWS_GPU_NAME_LABELS:
        if (name := labels.get(key, "")) in AWS_GPU_NAMES:
            yield _Naming(key, name, AWS_GPU_NAMES[name])
    instance_type = labels.get(INSTANCE_TYPE, "")
    if (gpu := gpu_of_instance_type(instance_type)) and gpu != FRACTION:
        yield _Naming(INSTANCE_TYPE, instance_type, gpu)
    for key in AWS_GPU_NAME_LABELS:
        # Unknown to us, or of two memory sizes: the predictor's catalogue has the last word.
        name = labels.get(key, "")
        maker = labels.get(key.replace("-gpu-name", "-gpu-manufacturer"), "nvidia")
        if name and name not in AWS_GPU_NAMES and maker == "nvidia":
            yield _Naming(key, name, name)


def _memory_bytes(labels: Mapping[str, str]) -> int | None:
    """Memory of one GPU as the driver reports it; clouds' labels give the nominal size, so aren't read."""
    mebibytes = _count(labels.get(GFD_MEMORY_MIB))
    return mebibytes * _MIB if mebibytes and mebibytes <= _MOST_MEMORY_MIB else None


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _shared(labels: Mapping[str, str], resources: Mapping[str, int]) -> Problem | None:
    strategy = labels.get(GFD_SHARING) or labels.get(GKE_SHARING)
    signs = (
        labels.get(GFD_PRODUCT, "").endswith("-SHARED"),
        (_count(labels.get(GFD_REPLICAS)) or 1) > 1,
        strategy not in (None, "none"),
        resources.get(_SHARED_RESOURCE, 0) > 0,
    )
    if not any(signs):
        return None
    return Problem(
        "GpuShared",
        f"its GPUs are shared ({strategy or 'time-slicing'}), so memory, latency and power depend on the "
        "neighbours and can't be predicted: turn sharing off in the device plugin for these nodes",
    )


def _partitioned(labels: Mapping[str, str], resources: Mapping[str, int]) -> Problem | None:
    product = labels.get(GFD_PRODUCT, "")
    if product.endswith("-MIG-INVALID"):
        return Problem(
            "GpuPartitioned",
            f"{GFD_PRODUCT} is {product}: GPUs with and without MIG, or several profiles, are mixed: give "
            "all GPUs of the node one MIG configuration, all-disabled for whole GPUs",
        )
    mig_devices = any(
        name.startswith(_MIG_RESOURCE_PREFIX) and count > 0 for name, count in resources.items()
    )
    only_slices = mig_devices and not resources.get(GPU_RESOURCE, 0)
    if "-MIG-" in product or GKE_PARTITION in labels or only_slices:
        return Problem(
            "GpuPartitioned",
            "it offers MIG slices, for which nothing is predicted yet: turn MIG off "
            "(nvidia.com/mig.config=all-disabled) to offer whole GPUs",
        )
    if _count(labels.get(GFD_COUNT)) == 0:
        return Problem(
            "NoGpus", f"{GFD_COUNT} is 0: check the driver and MIG configuration of the node's GPUs"
        )
    return None


def _fraction(labels: Mapping[str, str]) -> Problem | None:
    instance_type = labels.get(INSTANCE_TYPE, "")
    if labels.get(VGPU_PRESENT) != "true" and gpu_of_instance_type(instance_type) != FRACTION:
        return None
    return Problem(
        "GpuVirtual",
        "it has a virtual GPU, whose board power and memory bandwidth are shared with other machines: "
        "use nodes with whole GPUs",
    )


def _mixed(labels: Mapping[str, str], whole_gpus: int) -> Problem | None:
    # With two models in one node, GPU feature discovery describes one of them; its count betrays it.
    described = _count(labels.get(GFD_COUNT))
    if described is None or whole_gpus <= described:
        return None
    return Problem(
        "GpuModelsMixed",
        f"{GFD_COUNT} says {described} but the node has {whole_gpus} of {GPU_RESOURCE}: two GPU models in "
        "one node can't be told apart: keep one model a node",
    )


def _disagreeing(namings: list[_Naming]) -> Problem | None:
    for other in namings[1:]:
        best = namings[0]
        if not same_family(best.gpu, other.gpu):
            return Problem(
                "GpuLabelsDisagree",
                f"{best.key}={best.value} and {other.key}={other.value} name different GPUs: correct the "
                "wrong label, or write a GPUNodePool with spec.gpu for these nodes",
            )
    return None


def _unnamed(namings: list[_Naming]) -> Problem | None:
    if namings and gpu_slug(namings[0].gpu):
        return None
    return Problem(
        "GpuUnnamed",
        "no label names its GPU model: install GPU feature discovery (part of NVIDIA's GPU operator), or "
        "write a GPUNodePool with spec.gpu for these nodes",
    )
