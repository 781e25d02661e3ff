"""GPUs under every name that drivers, node labels and clouds give them; whole tokens only."""

from __future__ import annotations

import copy
import json
import re
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper_predictor import ArtifactError, InvalidInput, UnknownGpu
from wattkeeper_predictor.catalog import GpuCatalogue
from wattkeeper_predictor.catalog.labels import split_suffix, tokens

NAMES = {
    # NVML and GPU feature discovery
    "NVIDIA-H100-80GB-HBM3": "H100 SXM5",
    "NVIDIA H100 80GB HBM3": "H100 SXM5",
    "NVIDIA-H100-PCIe": "H100 PCIe",
    "NVIDIA-H100-NVL": "H100 NVL",
    "NVIDIA-H100": "H100 SXM5",
    "NVIDIA-H200": "H200 SXM",
    "NVIDIA-H200-NVL": "H200 NVL",
    "NVIDIA-H20": "H20",
    "NVIDIA-H800": "H800 SXM5",
    "NVIDIA-GH200-480GB": "GH200 96GB HBM3",
    "NVIDIA-GH200-144G-HBM3e": "GH200 144GB HBM3e",
    "NVIDIA-B200": "B200 SXM",
    "NVIDIA-GB200": "GB200",
    "NVIDIA-B300-SXM6-AC": "B300 SXM",
    "NVIDIA-GB300": "GB300",
    "A100-SXM4-40GB": "A100 SXM4 40GB",
    "NVIDIA-A100-SXM4-40GB": "A100 SXM4 40GB",
    "NVIDIA-A100-SXM4-80GB": "A100 SXM4 80GB",
    "A100-PCIE-40GB": "A100 PCIe 40GB",
    "NVIDIA-A100-80GB-PCIe": "A100 PCIe 80GB",
    "NVIDIA-A30": "A30",
    "NVIDIA-A10": "A10",
    "NVIDIA-A10G": "A10G",
    "NVIDIA-A16": "A16",
    "NVIDIA-A40": "A40",
    "NVIDIA-A2": "A2",
    "NVIDIA-L4": "L4",
    "NVIDIA-L40": "L40",
    "NVIDIA-L40S": "L40S",
    "NVIDIA-L20": "L20",
    "Tesla-T4": "T4",
    "Tesla-V100-SXM2-16GB-N": "V100 SXM2 16GB",
    "Tesla-V100-SXM2-32GB": "V100 SXM2 32GB",
    "Tesla-V100-PCIE-32GB": "V100 PCIe 32GB",
    "NVIDIA-RTX-A6000": "RTX A6000",
    "NVIDIA-RTX-6000-Ada-Generation": "RTX 6000 Ada",
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": "RTX PRO 6000 Blackwell Server",
    "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition": "RTX PRO 6000 Blackwell Workstation",
    "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition": "RTX PRO 6000 Blackwell Max-Q",
    "NVIDIA-GeForce-RTX-4090": "RTX 4090",
    "NVIDIA-GeForce-RTX-5090": "RTX 5090",
    # invented, but seen in test manifests
    "NVIDIA-H100-SXM5-80GB": "H100 SXM5",
    "NVIDIA-A100-PCIE-80GB": "A100 PCIe 80GB",
    # GKE
    "nvidia-l4": "L4",
    "nvidia-tesla-t4": "T4",
    "nvidia-tesla-v100": "V100 SXM2 16GB",
    "nvidia-tesla-a100": "A100 SXM4 40GB",
    "nvidia-a100-80gb": "A100 SXM4 80GB",
    "nvidia-h100-80gb": "H100 SXM5",
    "nvidia-h100-mega-80gb": "H100 SXM5",
    # EKS and Karpenter
    "t4": "T4",
    "a10g": "A10G",
    "l40s": "L40S",
    "h100": "H100 SXM5",
    "b200": "B200 SXM",
    # CoreWeave, AMD
    "H100_NVLINK_80GB": "H100 SXM5",
    "A100_PCIE_40GB": "A100 PCIe 40GB",
    "AMD_Instinct_MI300X_OAM": "Instinct MI300X",
    # instance types of EKS, GKE, AKS
    "p5.48xlarge": "H100 SXM5",
    "g5.xlarge": "A10G",
    "g6.12xlarge": "L4",
    "a2-highgpu-1g": "A100 SXM4 40GB",
    "Standard_NC24ads_A100_v4": "A100 PCIe 80GB",
    "Standard_NC40ads_H100_v5": "H100 NVL",
    "Standard_ND96isr_H200_v5": "H200 SXM",
}


@pytest.mark.parametrize(("label", "name"), NAMES.items())
def test_every_name_finds_its_gpu(label: str, name: str, gpus: GpuCatalogue) -> None:
    found = gpus.match(label)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "label",
    [
        "A1",
        "A100G",
        "L400",
        "L4S",
        "H",
        "NVIDIA",
        "",
        "RTX 6000",
        "GTX 1080",
        "NVIDIA-H100-NVL-PCIE-X",
        "H2000",
    ],
)
def test_near_names_are_other_gpus(label: str, gpus: GpuCatalogue) -> None:
    assert gpus.match(label) is None


@given(data=st.data())
def test_a_longer_or_shorter_token_never_matches(data: st.DataObject) -> None:
    catalogue = GpuCatalogue.load()
    label = data.draw(st.sampled_from([name for name in NAMES if name.startswith("NVIDIA-")]))
    words = label.split("-")
    place = data.draw(st.integers(1, len(words) - 1))
    words[place] += data.draw(st.sampled_from("qxz79"))
    changed = catalogue.match("-".join(words))
    assert changed is None or changed.name != NAMES[label]


@given(label=st.sampled_from(sorted(NAMES)))
def test_case_and_separators_do_not_matter(label: str) -> None:
    catalogue = GpuCatalogue.load()
    if "." in label or label.startswith("Standard"):
        return
    assert catalogue.match(label.upper().replace("-", " ").replace("_", " ")) == catalogue.match(label)


@pytest.mark.parametrize(
    ("label", "name", "mig", "invalid", "shared"),
    [
        ("NVIDIA-H100-NVL-MIG-1g.12gb", "H100 NVL", "1g.12gb", False, False),
        ("A100-SXM4-40GB-MIG-1g.5gb", "A100 SXM4 40GB", "1g.5gb", False, False),
        ("A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100 SXM4 40GB", "1g.5gb", False, True),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gbme", "H100 SXM5", "1g.10gbme", False, False),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb+me", "H100 SXM5", "1g.10gb+me", False, False),
        ("NVIDIA-A100-SXM4-80GB-MIG-INVALID", "A100 SXM4 80GB", None, True, False),
        ("NVIDIA-L4-SHARED", "L4", None, False, True),
        ("NVIDIA-L4", "L4", None, False, False),
    ],
)
def test_slices_and_sharing_are_told_apart_from_the_name(
    label: str, name: str, mig: str | None, invalid: bool, shared: bool, gpus: GpuCatalogue
) -> None:
    read = gpus.lookup(label)
    assert read.gpu_name == name
    assert (read.mig.name if read.mig else None) == mig
    assert (read.mig_invalid, read.shared) == (invalid, shared)


def test_a_slice_says_its_share() -> None:
    profile = split_suffix("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb").mig
    assert profile is not None
    assert (profile.compute_slices, profile.memory_gb) == (3, 20)
    assert profile.compute_fraction == pytest.approx(3 / 7)


@pytest.mark.parametrize(
    ("label", "memory_mib", "name"),
    [
        ("a100", 40960, "A100 SXM4 40GB"),
        ("a100", 81920, "A100 SXM4 80GB"),
        ("v100", 16384, "V100 SXM2 16GB"),
        ("v100", 32768, "V100 SXM2 32GB"),
        ("NVIDIA-H100", 64000, None),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4864, "A100 SXM4 40GB"),
    ],
)
def test_memory_decides_between_sizes(
    label: str, memory_mib: int, name: str | None, gpus: GpuCatalogue
) -> None:
    found = gpus.match(label, memory_mib=memory_mib)
    assert (found.name if found else None) == name


def test_an_ambiguous_name_lists_what_it_may_be(gpus: GpuCatalogue) -> None:
    assert gpus.lookup("a100").candidates == ("A100 SXM4 40GB", "A100 SXM4 80GB")
    with pytest.raises(UnknownGpu, match="A100 SXM4 40GB, A100 SXM4 80GB"):
        gpus.get("a100")


def test_a_gpu_known_by_name_only_says_what_is_missing(gpus: GpuCatalogue) -> None:
    assert gpus.lookup("NVIDIA-L2").incomplete == ("tdp_watts",)
    assert gpus.match("NVIDIA-L2") is None


def test_an_unknown_name_gives_near_ones_and_the_cure(gpus: GpuCatalogue) -> None:
    with pytest.raises(UnknownGpu, match="data sheet") as refused:
        gpus.get("H100 SXM9")
    assert "H100 SXM5" in str(refused.value)


def test_instance_types_tell_how_many(gpus: GpuCatalogue) -> None:
    spec, count = gpus.gpus_of_instance("p4d.24xlarge") or (None, 0)
    assert spec is not None
    assert (spec.name, count) == ("A100 SXM4 40GB", 8)
    assert gpus.gpus_of_instance("m5.large") is None


@pytest.mark.parametrize("fraction", ["g6f.large", "Standard_NV6ads_A10_v5", "Standard_NC8ads_A10_v4"])
def test_part_of_a_gpu_is_not_the_gpu(fraction: str, gpus: GpuCatalogue) -> None:
    assert gpus.match(fraction) is None
    assert gpus.gpus_of_instance(fraction) is None


def test_the_catalogue_is_large_and_each_value_has_a_source(gpus: GpuCatalogue) -> None:
    assert len(gpus.names()) >= 45
    raw = json.loads((resources.files("wattkeeper_predictor.catalog") / "gpus.json").read_text())
    for entry in raw["gpus"]:
        spec = gpus.get(entry["name"])
        assert spec.name == entry["name"]
        missing = set(entry["values"]) - set(entry["sources"]) - {"vendor"}
        assert not missing, f"{spec.name}: no source for {missing}"
        codes = [said for said in entry["sources"].values() if re.fullmatch(r"[A-Z0-9,]+", said)]
        coded = {code for said in codes for code in said.split(",")}
        assert coded <= {*raw["sources"], "ORIG"}, spec.name


def test_figures_that_are_often_confused(gpus: GpuCatalogue) -> None:
    assert gpus.get("L40").fp16_dense_tflops == 181  # the 362 that circulate are with sparsity
    assert gpus.get("H200").memory_bandwidth_gb_s == 4800
    assert gpus.get("A10G").tdp_watts == 300
    assert gpus.get("A16").tdp_watts == 62.5  # the driver shows four GPUs of a 250 W board
    assert gpus.get("T4").memory_bytes == 15360 * 1024**2


def test_a_damaged_catalogue_says_so() -> None:
    raw = json.loads((resources.files("wattkeeper_predictor.catalog") / "gpus.json").read_text())
    without = {key: value for key, value in raw.items() if key != "aliases"}
    with pytest.raises(ArtifactError, match="reinstall"):
        GpuCatalogue(without)
    dangling = {**raw, "aliases": {"x": "no such GPU"}}
    with pytest.raises(ArtifactError, match="no such GPU"):
        GpuCatalogue(dangling)
    unsound = copy.deepcopy(raw)
    unsound["gpus"][0]["values"]["tdp_watts"] = -1
    with pytest.raises(InvalidInput, match="tdp_watts"):
        GpuCatalogue(unsound)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A100 SXM4 80 GB", {"a100", "sxm4", "80gb"}),
        ("NVIDIA-GH200-144G-HBM3e", {"nvidia", "gh200", "144gb", "hbm3e"}),
        ("L40S", {"l40s"}),
    ],
)
def test_tokens(name: str, expected: set[str]) -> None:
    assert tokens(name) == expected
