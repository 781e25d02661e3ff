"""Node labels as they are seen in public (names replaced), and what they say of the GPU."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from wattkeeper.core.gpu_labels import read_gpu
from wattkeeper.core.gpu_names import FRACTION, gpu_of_instance_type, gpu_slug, same_family

EIGHT = {"nvidia.com/gpu": 8}
H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.strategy": "single",
}


def test_gpu_feature_discovery_names_model_and_memory() -> None:
    reading = read_gpu(H100, EIGHT)
    assert reading is not None
    assert reading.problem is None
    assert (reading.kind.label, reading.kind.memory_bytes) == ("NVIDIA-H100-80GB-HBM3", 81559 * 1024**2)


@pytest.mark.parametrize(
    ("labels", "gpu"),
    [
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "NVIDIA-L4"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, "Tesla-T4"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, "NVIDIA-A100-SXM4-40GB"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, "NVIDIA-H100-80GB-HBM3"),
        ({"cloud.google.com/gke-accelerator": "nvidia-next-gpu"}, "nvidia-next-gpu"),
        ({"eks.amazonaws.com/instance-gpu-name": "l40s"}, "NVIDIA-L40S"),
        ({"karpenter.k8s.aws/instance-gpu-name": "a10g"}, "NVIDIA-A10G"),
        (
            {
                "karpenter.k8s.aws/instance-gpu-name": "a100",
                "node.kubernetes.io/instance-type": "p4de.24xlarge",
            },
            "NVIDIA-A100-SXM4-80GB",
        ),
        ({"karpenter.k8s.aws/instance-gpu-name": "a100"}, "a100"),
        ({"node.kubernetes.io/instance-type": "g6.12xlarge"}, "NVIDIA-L4"),
        ({"node.kubernetes.io/instance-type": "Standard_NC40ads_H100_v5"}, "NVIDIA-H100-NVL"),
        ({"node.kubernetes.io/instance-type": "Standard_NC24ads_A100_v4"}, "NVIDIA-A100-80GB-PCIe"),
        # GPU feature discovery has the last word within the family: it asks the driver.
        (
            {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
                "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
            },
            "NVIDIA-A100-SXM4-80GB",
        ),
    ],
)
def test_clouds_name_the_gpu(labels: dict[str, str], gpu: str) -> None:
    reading = read_gpu(labels, EIGHT)
    assert reading is not None
    assert reading.problem is None
    assert reading.kind.label == gpu


def test_a_clouds_nominal_memory_is_not_taken_for_the_drivers() -> None:
    labels = {"karpenter.k8s.aws/instance-gpu-name": "t4", "karpenter.k8s.aws/instance-gpu-memory": "16384"}
    reading = read_gpu(labels, EIGHT)
    assert reading is not None
    assert reading.kind.memory_bytes is None


@pytest.mark.parametrize("memory", ["", "lots", "-1", "1e30", "99999999999999", "٣"])
def test_absurd_memory_labels_are_not_read(memory: str) -> None:
    reading = read_gpu(H100 | {"nvidia.com/gpu.memory": memory}, EIGHT)
    assert reading is not None
    assert reading.kind.memory_bytes is None


@pytest.mark.parametrize(
    ("labels", "resources", "reason"),
    [
        (
            H100 | {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"},
            {"nvidia.com/gpu": 32},
            "GpuShared",
        ),
        (H100 | {"nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu": 32}, "GpuShared"),
        (H100 | {"nvidia.com/gpu.sharing-strategy": "mps"}, EIGHT, "GpuShared"),
        (H100, {"nvidia.com/gpu.shared": 32}, "GpuShared"),
        (
            {
                "cloud.google.com/gke-accelerator": "nvidia-l4",
                "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
            },
            EIGHT,
            "GpuShared",
        ),
        (
            {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-INVALID",
                "nvidia.com/gpu.count": "0",
                "nvidia.com/gpu.replicas": "0",
                "nvidia.com/gpu.memory": "0",
            },
            {"nvidia.com/gpu": 0},
            "GpuPartitioned",
        ),
        (
            {"nvidia.com/gpu.product": "NVIDIA-H100-NVL-MIG-1g.12gb", "nvidia.com/gpu.memory": "11008"},
            {"nvidia.com/gpu": 7},
            "GpuPartitioned",
        ),
        (
            {"nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb-SHARED"},
            {"nvidia.com/gpu": 14},
            "GpuShared",
        ),
        (H100 | {"nvidia.com/mig.strategy": "mixed"}, {"nvidia.com/mig-1g.10gb": 7}, "GpuPartitioned"),
        (
            {
                "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
                "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
            },
            {"nvidia.com/gpu": 7},
            "GpuPartitioned",
        ),
        (H100 | {"nvidia.com/gpu.count": "0"}, {"nvidia.com/gpu": 0}, "NoGpus"),
        (H100 | {"nvidia.com/gpu.count": "4"}, EIGHT, "GpuModelsMixed"),
        (H100 | {"nvidia.com/vgpu.present": "true"}, EIGHT, "GpuVirtual"),
        ({"node.kubernetes.io/instance-type": "g6f.xlarge"}, {"nvidia.com/gpu": 1}, "GpuVirtual"),
        (
            {"nvidia.com/gpu.product": "NVIDIA-L4", "node.kubernetes.io/instance-type": "p5.48xlarge"},
            {"nvidia.com/gpu": 8},
            "GpuLabelsDisagree",
        ),
        ({}, {"nvidia.com/gpu": 2}, "GpuUnnamed"),
        ({"node.kubernetes.io/instance-type": "homelab"}, {"nvidia.com/gpu": 2}, "GpuUnnamed"),
    ],
)
def test_what_would_need_a_guess_is_a_problem_with_its_cure(
    labels: dict[str, str], resources: dict[str, int], reason: str
) -> None:
    reading = read_gpu(labels, resources)
    assert reading is not None
    assert reading.problem is not None
    assert reading.problem.reason == reason
    assert re.search(r": .*(turn|give|use|check|keep|correct|install|write)", reading.problem.message)


def test_whole_gpus_beside_mig_slices_are_exact() -> None:
    """With the mixed strategy nvidia.com/gpu counts whole GPUs alone; the label counts all boards."""
    labels = H100 | {"nvidia.com/mig.strategy": "mixed"}
    reading = read_gpu(labels, {"nvidia.com/gpu": 6, "nvidia.com/mig-1g.10gb": 14})
    assert reading is not None
    assert reading.problem is None


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"node.kubernetes.io/instance-type": "m5.large"},
        {"cloud.google.com/gke-accelerator": "amd-mi300x"},
        {
            "karpenter.k8s.aws/instance-gpu-name": "radeon-pro-v520",
            "karpenter.k8s.aws/instance-gpu-manufacturer": "amd",
        },
    ],
)
def test_other_nodes_are_none_of_ours(labels: dict[str, str]) -> None:
    assert read_gpu(labels, {"amd.com/gpu": 1, "cpu": 8}) is None


def test_labels_may_precede_the_driver() -> None:
    reading = read_gpu({"karpenter.k8s.aws/instance-gpu-name": "l4"}, {})
    assert reading is not None
    assert reading.problem is None


@pytest.mark.parametrize(
    ("labels", "slug"),
    [
        (("NVIDIA-A100-PCIE-40GB", "A100-PCIE-40GB"), "a100-pcie-40gb"),
        (("Tesla-T4", "NVIDIA-Tesla-T4", "T4"), "t4"),
        (("NVIDIA-H100-80GB-HBM3",), "h100-80gb-hbm3"),
        (("A100-SXM4-40GB-MIG-1g.5gb",), "a100-sxm4-40gb-mig-1g-5gb"),
        (("NVIDIA RTX 6000 Ada Generation",), "rtx-6000-ada-generation"),
    ],
)
def test_one_slug_for_all_spellings_of_a_board(labels: tuple[str, ...], slug: str) -> None:
    assert {gpu_slug(label) for label in labels} == {slug}


@pytest.mark.parametrize(
    ("one", "other"), [("L4", "L40"), ("L40", "L40S"), ("A10", "A100"), ("A10", "A10G"), ("H20", "H200")]
)
def test_prefixes_are_other_families(one: str, other: str) -> None:
    assert not same_family(f"NVIDIA-{one}", f"NVIDIA-{other}")


#: How the table of cloud instances writes what NVML writes otherwise.
_TABLE_NAMES = {
    "A100 SXM4 40GB": "NVIDIA-A100-SXM4-40GB",
    "A100 SXM4 80GB": "NVIDIA-A100-SXM4-80GB",
    "A100 PCIe 80GB": "NVIDIA-A100-80GB-PCIe",
    "H100 NVL": "NVIDIA-H100-NVL",
    "H100 SXM5": "NVIDIA-H100-80GB-HBM3",
    "H200 SXM": "NVIDIA-H200",
    "V100 SXM2 16GB": "Tesla-V100-SXM2-16GB",
    "V100 SXM2 32GB": "Tesla-V100-SXM2-32GB",
    "V100 PCIe 16GB": "Tesla-V100-PCIE-16GB",
    "T4": "Tesla-T4",
    "B200 SXM": "NVIDIA-B200",
    "B300 SXM": "NVIDIA-B300-SXM6-AC",
    "GB200 (per GPU)": "NVIDIA-GB200",
    "RTX PRO 6000 Blackwell Server": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
}
#: No NVML name was read for the RTX PRO 4500, and AMD isn't supported: for these a pool is written by hand.
_LEFT_OUT = ("g7.", "Standard_ND96isr_MI300X_v5")


@pytest.mark.data
def test_instance_types_against_the_table_of_cloud_instances(data_dir: Path) -> None:
    with (data_dir / "gpus" / "cloud_instances.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 100
    for row in rows:
        instance_type, found = row["instance_type"], gpu_of_instance_type(row["instance_type"])
        if instance_type.startswith(_LEFT_OUT):
            assert found is None, instance_type
        elif "fraction" in row["gpu_model"]:
            assert found == FRACTION, instance_type
        else:
            table_row = row["gpu_table_row"]
            assert found == _TABLE_NAMES.get(table_row, f"NVIDIA-{table_row}"), instance_type
