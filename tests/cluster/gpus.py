"""The GPUs that fake nodes may carry, with the names that real nodes and clouds give them.

Names of GPU feature discovery are NVML's product names with blanks turned into dashes; its memory is NVML's
total in MiB, a little less than the nominal size. Instance types are the providers' own, by GPU count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpu:
    """One model. ``gke`` and ``aws`` are the values of the providers' accelerator labels."""

    product: str
    memory_mib: int
    family: str
    compute: tuple[int, int]
    gke: str | None = None
    gke_machines: Mapping[int, str] = field(default_factory=dict)
    aws: str | None = None
    aws_instances: Mapping[int, str] = field(default_factory=dict)
    azure_sizes: Mapping[int, str] = field(default_factory=dict)


GPUS: Mapping[str, Gpu] = {
    "H100-SXM": Gpu(
        product="NVIDIA-H100-80GB-HBM3",
        memory_mib=81559,
        family="hopper",
        compute=(9, 0),
        gke="nvidia-h100-80gb",
        gke_machines={1: "a3-highgpu-1g", 2: "a3-highgpu-2g", 4: "a3-highgpu-4g", 8: "a3-highgpu-8g"},
        aws="h100",
        aws_instances={1: "p5.4xlarge", 8: "p5.48xlarge"},
        azure_sizes={8: "Standard_ND96isr_H100_v5"},
    ),
    "H100-NVL": Gpu(
        product="NVIDIA-H100-NVL",
        memory_mib=95830,
        family="hopper",
        compute=(9, 0),
        azure_sizes={1: "Standard_NC40ads_H100_v5", 2: "Standard_NC80adis_H100_v5"},
    ),
    "H200-NVL": Gpu(product="NVIDIA-H200-NVL", memory_mib=143771, family="hopper", compute=(9, 0)),
    "A100-SXM4-80GB": Gpu(
        product="NVIDIA-A100-SXM4-80GB",
        memory_mib=81920,
        family="ampere",
        compute=(8, 0),
        gke="nvidia-a100-80gb",
        gke_machines={1: "a2-ultragpu-1g", 2: "a2-ultragpu-2g", 4: "a2-ultragpu-4g", 8: "a2-ultragpu-8g"},
        aws="a100",
        aws_instances={8: "p4de.24xlarge"},
        azure_sizes={8: "Standard_ND96amsr_A100_v4"},
    ),
    "A100-SXM4-40GB": Gpu(
        product="NVIDIA-A100-SXM4-40GB",
        memory_mib=40960,
        family="ampere",
        compute=(8, 0),
        gke="nvidia-tesla-a100",
        gke_machines={1: "a2-highgpu-1g", 2: "a2-highgpu-2g", 4: "a2-highgpu-4g", 8: "a2-highgpu-8g"},
        aws="a100",
        aws_instances={8: "p4d.24xlarge"},
        azure_sizes={8: "Standard_ND96asr_v4"},
    ),
    "L40S": Gpu(
        product="NVIDIA-L40S",
        memory_mib=46068,
        family="ada-lovelace",
        compute=(8, 9),
        aws="l40s",
        aws_instances={1: "g6e.xlarge", 4: "g6e.12xlarge", 8: "g6e.48xlarge"},
    ),
    "L4": Gpu(
        product="NVIDIA-L4",
        memory_mib=23034,
        family="ada-lovelace",
        compute=(8, 9),
        gke="nvidia-l4",
        gke_machines={1: "g2-standard-12", 2: "g2-standard-24", 4: "g2-standard-48", 8: "g2-standard-96"},
        aws="l4",
        aws_instances={1: "g6.xlarge", 4: "g6.12xlarge", 8: "g6.48xlarge"},
    ),
    "A30": Gpu(product="NVIDIA-A30", memory_mib=24576, family="ampere", compute=(8, 0)),
    "T4": Gpu(
        product="Tesla-T4",
        memory_mib=15360,
        family="turing",
        compute=(7, 5),
        gke="nvidia-tesla-t4",
        gke_machines={1: "n1-standard-8"},
        aws="t4",
        aws_instances={1: "g4dn.xlarge"},
    ),
}
