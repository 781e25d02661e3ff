from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from tests.cluster.components import FAKE_NODE_ANNOTATION
from tests.cluster.gpus import GPUS
from tests.cluster.nodes import GPU_RESOURCE, GPU_TAINT, Style, cpu_node, gpu_node, mixed_fleet

MODELS = st.sampled_from(sorted(GPUS))


@pytest.mark.parametrize(
    ("gpu", "product", "memory", "family", "compute"),
    [
        ("H100-SXM", "NVIDIA-H100-80GB-HBM3", "81559", "hopper", ("9", "0")),
        ("H100-NVL", "NVIDIA-H100-NVL", "95830", "hopper", ("9", "0")),
        ("A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "81920", "ampere", ("8", "0")),
        ("A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", "40960", "ampere", ("8", "0")),
        ("L40S", "NVIDIA-L40S", "46068", "ada-lovelace", ("8", "9")),
        ("L4", "NVIDIA-L4", "23034", "ada-lovelace", ("8", "9")),
        ("A30", "NVIDIA-A30", "24576", "ampere", ("8", "0")),
    ],
)
def test_feature_discovery_labels(
    gpu: str, product: str, memory: str, family: str, compute: tuple[str, str]
) -> None:
    labels = gpu_node("n", gpu, 2)["metadata"]["labels"]
    assert labels["nvidia.com/gpu.present"] == "true"
    assert labels["nvidia.com/gpu.product"] == product
    assert labels["nvidia.com/gpu.memory"] == memory
    assert labels["nvidia.com/gpu.family"] == family
    assert (labels["nvidia.com/gpu.compute.major"], labels["nvidia.com/gpu.compute.minor"]) == compute
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/gpu.replicas"] == "1"


@pytest.mark.parametrize(
    ("style", "gpu", "count", "expected"),
    [
        ("gke", "L4", 2, {"cloud.google.com/gke-accelerator": "nvidia-l4"}),
        ("gke", "A100-SXM4-40GB", 1, {"node.kubernetes.io/instance-type": "a2-highgpu-1g"}),
        ("gke", "H100-SXM", 8, {"cloud.google.com/gke-accelerator-count": "8"}),
        ("gke", "L4", 1, {"cloud.google.com/gke-nodepool": "l4"}),
        ("eks", "A100-SXM4-40GB", 8, {"node.kubernetes.io/instance-type": "p4d.24xlarge"}),
        ("eks", "L40S", 4, {"eks.amazonaws.com/nodegroup": "l40s"}),
        ("eks-auto", "L4", 1, {"eks.amazonaws.com/instance-gpu-name": "l4"}),
        ("karpenter", "L40S", 1, {"karpenter.k8s.aws/instance-gpu-name": "l40s"}),
        ("aks", "H100-NVL", 1, {"node.kubernetes.io/instance-type": "Standard_NC40ads_H100_v5"}),
        ("aks", "A100-SXM4-80GB", 8, {"kubernetes.azure.com/accelerator": "nvidia"}),
    ],
)
def test_cloud_labels(style: Style, gpu: str, count: int, expected: dict[str, str]) -> None:
    labels = gpu_node("n", gpu, count, style=style)["metadata"]["labels"]
    assert expected.items() <= labels.items()
    assert not any(key.startswith("nvidia.com/") for key in labels)
    both = gpu_node("n", gpu, count, style=style, feature_discovery=True)["metadata"]["labels"]
    assert labels.items() <= both.items()
    assert both["nvidia.com/gpu.product"] == GPUS[gpu].product


def test_every_style_is_offered_for_some_gpu() -> None:
    for style in get_args(Style):
        offered = 0
        for gpu in GPUS:
            for count in (1, 2, 4, 8):
                try:
                    gpu_node("n", gpu, count, style=style)
                    offered += 1
                except ValueError:
                    continue
        assert offered, style


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gpu": "H100"}, "unknown GPU 'H100': give one of H100-SXM"),
        ({"gpu": "L4", "style": "oke"}, "unknown style 'oke': give one of bare, gke"),
        ({"gpu": "A30", "style": "gke"}, "A30 is not offered in style 'gke'"),
        (
            {"gpu": "L4", "style": "eks", "count": 3},
            "no machine with 3 × L4 in style 'eks'; there are: 1, 4, 8",
        ),
        ({"gpu": "L4", "count": 1, "unhealthy": 2}, "0 <= unhealthy <= count"),
        ({"gpu": "L4", "count": -1}, "0 <= unhealthy <= count"),
        ({"gpu": "L4", "replicas": 0}, "replicas 0: give at least 1"),
    ],
)
def test_impossible_nodes_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpu_node("n", **arguments)  # type: ignore[arg-type]


@given(gpu=MODELS, count=st.integers(0, 16), replicas=st.integers(1, 8), data=st.data())
def test_gpus_add_up(gpu: str, count: int, replicas: int, data: st.DataObject) -> None:
    unhealthy = data.draw(st.integers(0, count))
    node = gpu_node("n", gpu, count, replicas=replicas, unhealthy=unhealthy)
    capacity, allocatable = node["status"]["capacity"], node["status"]["allocatable"]
    labels = node["metadata"]["labels"]
    assert int(capacity[GPU_RESOURCE]) == int(labels["nvidia.com/gpu.count"]) * replicas
    assert int(capacity[GPU_RESOURCE]) - int(allocatable[GPU_RESOURCE]) == unhealthy * replicas
    assert labels["nvidia.com/gpu.product"].endswith("-SHARED") == (replicas > 1)
    assert all(parse_quantity(value) >= 0 for value in capacity.values())


@given(gpu=MODELS, value=st.one_of(st.none(), st.text("abc", min_size=1)))
def test_given_labels_win(gpu: str, value: str | None) -> None:
    labels = gpu_node("n", gpu, labels={"nvidia.com/gpu.product": value})["metadata"]["labels"]
    assert labels.get("nvidia.com/gpu.product") == value


def test_taints_are_copied() -> None:
    node = gpu_node("n", "L4", taints=[GPU_TAINT])
    assert node["spec"]["taints"] == [GPU_TAINT]
    node["spec"]["taints"][0]["value"] = "changed"
    assert GPU_TAINT["value"] == "present"


def test_cpu_node_has_no_gpu() -> None:
    node = cpu_node("n")
    assert GPU_RESOURCE not in node["status"]["capacity"]
    assert node["metadata"]["annotations"][FAKE_NODE_ANNOTATION] == "fake"


def test_mixed_fleet_has_each_model_the_demo_names() -> None:
    fleet = mixed_fleet("x-")
    names = [node["metadata"]["name"] for node in fleet]
    assert len(set(names)) == len(names) and all(name.startswith("x-") for name in names)
    products = {node["metadata"]["labels"]["nvidia.com/gpu.product"] for node in fleet}
    assert products == {
        "NVIDIA-H100-80GB-HBM3",
        "NVIDIA-H100-NVL",
        "NVIDIA-A100-SXM4-80GB",
        "NVIDIA-A100-SXM4-40GB",
        "NVIDIA-L40S",
        "NVIDIA-L4",
        "NVIDIA-A30",
    }
