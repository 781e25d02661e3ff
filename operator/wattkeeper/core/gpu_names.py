"""The clouds' names of GPUs, put into the form in which GPU feature discovery writes them.

GPU feature discovery reads NVML and so tells the exact board; clouds label nodes with shorter names, or
with the instance type alone (AKS). One form for all makes a pool keep its name when discovery starts on
nodes that so far had only a cloud's label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_A100_40_SXM = "NVIDIA-A100-SXM4-40GB"
_A100_80_SXM = "NVIDIA-A100-SXM4-80GB"
_H100_SXM = "NVIDIA-H100-80GB-HBM3"
_RTX_PRO_6000 = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"

#: Values of cloud.google.com/gke-accelerator. A value that isn't here is passed on as it is.
GKE_ACCELERATORS: Mapping[str, str] = MappingProxyType(
    {
        "nvidia-tesla-p4": "Tesla-P4",
        "nvidia-tesla-p100": "Tesla-P100-PCIE-16GB",
        "nvidia-tesla-v100": "Tesla-V100-SXM2-16GB",
        "nvidia-tesla-t4": "Tesla-T4",
        "nvidia-l4": "NVIDIA-L4",
        "nvidia-tesla-a100": _A100_40_SXM,
        "nvidia-a100-80gb": _A100_80_SXM,
        "nvidia-h100-80gb": _H100_SXM,
        "nvidia-h100-mega-80gb": _H100_SXM,
        "nvidia-h200-141gb": "NVIDIA-H200",
        "nvidia-b200": "NVIDIA-B200",
        "nvidia-rtx-pro-6000": _RTX_PRO_6000,
    }
)

#: Values of karpenter.k8s.aws/instance-gpu-name and eks.amazonaws.com/instance-gpu-name. The A100 and the
#: V100 come in two sizes under one name, so for them the instance type decides.
AWS_GPU_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "t4": "Tesla-T4",
        "t4g": "NVIDIA-T4G",
        "a10g": "NVIDIA-A10G",
        "l4": "NVIDIA-L4",
        "l40s": "NVIDIA-L40S",
        "h100": _H100_SXM,
        "h200": "NVIDIA-H200",
        "b200": "NVIDIA-B200",
        "b300": "NVIDIA-B300-SXM6-AC",
    }
)

#: Instance types of AWS, Google and Azure by family; None: a fraction of a GPU.
_INSTANCE_FAMILIES: tuple[tuple[str, str | None], ...] = (
    (r"g4dn\.\w+", "Tesla-T4"),
    (r"g5\.\w+", "NVIDIA-A10G"),
    (r"g5g\.\w+", "NVIDIA-T4G"),
    (r"(g6|gr6)\.\w+", "NVIDIA-L4"),
    (r"(g6f|gr6f)\.\w+", None),
    (r"g6e\.\w+", "NVIDIA-L40S"),
    (r"g7e\.\w+", _RTX_PRO_6000),
    (r"p3\.\w+", "Tesla-V100-SXM2-16GB"),
    (r"p3dn\.\w+", "Tesla-V100-SXM2-32GB"),
    (r"p4d\.\w+", _A100_40_SXM),
    (r"p4de\.\w+", _A100_80_SXM),
    (r"p5\.\w+", _H100_SXM),
    (r"(p5e|p5en)\.\w+", "NVIDIA-H200"),
    (r"p6-b200\.\w+", "NVIDIA-B200"),
    (r"p6-b300\.\w+", "NVIDIA-B300-SXM6-AC"),
    (r"a2-(highgpu|megagpu)-\d+g", _A100_40_SXM),
    (r"a2-ultragpu-\d+g", _A100_80_SXM),
    (r"a3-(highgpu|megagpu|edgegpu)-\d+g", _H100_SXM),
    (r"a3-ultragpu-\d+g", "NVIDIA-H200"),
    (r"a4-highgpu-\d+g", "NVIDIA-B200"),
    (r"a4x-highgpu-\d+g", "NVIDIA-GB200"),
    (r"g2-standard-\d+", "NVIDIA-L4"),
    (r"g4-standard-\d+", _RTX_PRO_6000),
    (r"Standard_NC(4|8|16|64)as_T4_v3", "Tesla-T4"),
    (r"Standard_NC\d+r?s_v3", "Tesla-V100-PCIE-16GB"),
    (r"Standard_ND40rs_v2", "Tesla-V100-SXM2-32GB"),
    (r"Standard_NC8ads_A10_v4", None),
    (r"Standard_NC\d+ads_A10_v4", "NVIDIA-A10"),
    (r"Standard_NV(6|12|18)ads_A10_v5", None),
    (r"Standard_NV\d+ad(m?)s_A10_v5", "NVIDIA-A10"),
    (r"Standard_NC\d+ads_A100_v4", "NVIDIA-A100-80GB-PCIe"),
    (r"Standard_ND96asr_(A100_)?v4", _A100_40_SXM),
    (r"Standard_ND96amsr_A100_v4", _A100_80_SXM),
    (r"Standard_NC\d+adi?s_H100_v5", "NVIDIA-H100-NVL"),
    (r"Standard_ND96isr_H100_v5", _H100_SXM),
    (r"Standard_ND96isr_H200_v5", "NVIDIA-H200"),
    (r"Standard_ND128isr_NDR_GB200_v6", "NVIDIA-GB200"),
)
_COMPILED = tuple((re.compile(pattern), label) for pattern, label in _INSTANCE_FAMILIES)

FRACTION = "fraction"
_VENDOR_PREFIXES = ("nvidia-", "tesla-")


def gpu_of_instance_type(instance_type: str) -> str | None:
    """The GPU of a cloud's instance type, FRACTION where it has only part of one, None if unknown."""
    for pattern, label in _COMPILED:
        if pattern.fullmatch(instance_type):
            return label or FRACTION
    return None


def gpu_slug(label: str) -> str:
    """A GPU's label in small letters, digits and single hyphens, without the vendor: `h100-80gb-hbm3`.

    Old drivers write no vendor, and Tesla before some boards: all spellings of one board get one slug.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    for prefix in _VENDOR_PREFIXES:
        slug = slug.removeprefix(prefix)
    return slug


def same_family(one: str, other: str) -> bool:
    """Whether two labels name the same chip family (`A100-SXM4-40GB`, `NVIDIA-A100-80GB-PCIe`).

    Only the family is compared: drivers spell the rest in many ways.
    """
    return gpu_slug(one).split("-", maxsplit=1)[0] == gpu_slug(other).split("-", maxsplit=1)[0]
