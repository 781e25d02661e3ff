"""Every published sample of dcgm-exporter and of model servers, with what a person reads in it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.telemetry.pages import MIB, NOW, Holder, read_series, shown
from wattkeeper.core.readings import GpuReading, Sample, ServerReading
from wattkeeper.telemetry.engines import ENGINES
from wattkeeper.telemetry.exposition import parse
from wattkeeper.telemetry.series import FaultKind, Faults, Series
from wattkeeper.telemetry.servers import attribute_servers

pytestmark = pytest.mark.data

A30 = {"model_name": "NVIDIA A30", "node": "node-b", "mig": True}
A100 = {"model_name": "NVIDIA A100 80GB PCIe", "mig": True, "engine_active_ratio": 0.0}
V100 = {"model_name": "Tesla V100-SXM2-32GB", "node": "node-d"}


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-{number:012x}"


# By file: what is known of each GPU, everything else being unknown.
GPUS: dict[str, dict[str, dict[str, object]]] = {
    "01_1x_names_empty_pod": {
        uuid(1): {
            "index": "0",
            "node": "dcgm-exporter-aaaaa",
            "power_watts": 30.982,
            "energy_joules": 55491669.881,
            "gpu_util_ratio": 0.0,
            "sm_clock_mhz": 585.0,
            "memory_clock_mhz": 5000.0,
            "temperature_celsius": 54.0,
        }
    },
    "02_old_namespace_mig": {uuid(2): A100 | {"index": "0"}, uuid(3): A100 | {"index": "1"}},
    "03_2020_minimal_labels": {
        uuid(4): {
            "index": "0",
            "power_watts": 302.206,
            "energy_joules": 4335301.032,
            "gpu_util_ratio": 0.44,
            "sm_clock_mhz": 1530.0,
            "memory_clock_mhz": 877.0,
            "temperature_celsius": 55.0,
            "memory_temperature_celsius": 54.0,
        },
        uuid(5): {
            "index": "0",
            "dram_active_ratio": 0.000001,
            "holders": (Holder("default", "tester-a", "dcgmproftester11"),),
        },
    },
    # The truth is about 52.7 + 56.1 W; the plain sum is 323 W.
    "05_mig_power_repeated": {
        uuid(7): A30 | {"index": "0", "power_watts": 52.746},
        uuid(8): A30 | {"index": "1", "power_watts": 56.127},
    },
    "07_memory_held_util_zero_no_pod": {
        uuid(0xA): {
            "index": "0",
            "model_name": "NVIDIA RTX A5000",
            "node": "node-c",
            "gpu_util_ratio": 0.0,
            "memory_used_bytes": float(21383 * MIB),
        }
    },
    "08_prometheus_side_node_label": {
        uuid(0xB): {
            "index": "0",
            "model_name": "NVIDIA A100 80GB PCIe",
            "node": "aks-gpunp-00000000-vmss000000",
            "gpu_util_ratio": 0.0,
        }
    },
    "09_bare_metal_multi_gpu": {
        uuid(0x14): V100 | {"index": "0", "gpu_util_ratio": 0.0},
        uuid(0x16): V100 | {"index": "2", "power_limit_watts": 300.0},
        uuid(0x17): V100 | {"index": "3", "power_limit_watts": 300.0},
    },
    "10_virtual_gpus_identical": {},  # the post left the UUIDs out
    "12_prof_stuck_at_zero": {
        uuid(0xD): {"index": "0", "dram_active_ratio": 0.0},
        uuid(0xE): {
            "index": "1",
            "power_watts": 167.362,
            "energy_joules": 129931554.972,
            "sm_clock_mhz": 1380.0,
            "memory_clock_mhz": 877.0,
            "temperature_celsius": 56.0,
            "memory_temperature_celsius": 54.0,
        },
    },
    "14_vllm_sleep_draft": {},
    "15_vllm_v0_no_engine_label": {},
    "17_sglang_doc_sample": {},
    "18_triton_trtllm_doc_sample": {},
    "constructed_hpc_job": {
        uuid(0x2A): {
            "index": "2",
            "model_name": "NVIDIA A100-SXM4-80GB",
            "node": "node-g",
            "power_watts": 240.0,
            "other_jobs": ("1001", "1002"),
        }
    },
    "constructed_lowercase_hostname_dra": {
        uuid(0x28): {
            "index": "0",
            "model_name": "NVIDIA H100 80GB HBM3",
            "node": "node-e",
            "power_watts": 121.5,
            "energy_joules": 987654321.0,
            "holders": (Holder("team-a", "llm-a-0", "server"),),
        }
    },
    "constructed_vgpu_per_process": {
        uuid(0x29): {
            "index": "0",
            "model_name": "NVIDIA L4",
            "node": "node-f",
            "power_watts": 33.25,
            "memory_used_bytes": float(18200 * MIB),
            "virtual": True,
            "holders": (
                Holder(
                    "team-a",
                    "llm-a",
                    "server",
                    "11111111-1111-4111-8111-111111111111",
                    memory_bytes=float(9100 * MIB),
                ),
                Holder("team-a", "llm-b", "server", "22222222-2222-4222-8222-222222222222"),
            ),
        }
    },
    "constructed_vllm_v1": {},
}
# By file of a model server: its readings' engines, with what is known.
SERVERS: dict[str, dict[str, dict[str, object]]] = {
    # As first proposed, without a label for the state.
    "14_vllm_sleep_draft": {"vllm": {"model": "mymodel", "asleep": 0.0}},
    # Nothing in it tells of requests: unknown, and no server at all.
    "15_vllm_v0_no_engine_label": {},
    "17_sglang_doc_sample": {
        "sglang": {
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "running": 162.0,
            "waiting": 2826.0,
            "generation_tokens_total": 7557572.0,
        }
    },
    # `max` is a limit; what else is counted overlaps.
    "18_triton_trtllm_doc_sample": {"triton": {"model": "tensorrt_llm", "running": 1.0, "waiting": 1.0}},
    # Level 1: the weights are offloaded, the CUDA context stays.
    "constructed_vllm_v1": {"vllm": {"model": "org/model-a", "running": 0.0, "waiting": 0.0, "asleep": 1.0}},
}
FAULTS = {"10_virtual_gpus_identical": {FaultKind.NO_GPU_IDENTITY: 7}}


@pytest.fixture(scope="module")
def samples(data_dir: Path) -> dict[str, list[Series]]:
    """The series of each file."""
    found = {}
    for path in sorted((data_dir / "telemetry").glob("*.prom")):
        faults = Faults()
        found[path.stem] = parse(path.read_text(), NOW, faults)
        assert faults.found() == (), f"{path.name}: {faults.found()}"
    return found


def rounded(known: dict[str, object]) -> dict[str, object]:
    """Values to what the exporter printed: conversion leaves the last bits of a double behind."""
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in known.items()}


def readings_of(samples: dict[str, list[Series]]) -> dict[str, GpuReading]:
    readings: dict[str, GpuReading] = {}
    for series in samples.values():
        readings |= read_series(series)[0]
    return readings


def test_no_sample_is_left_out(samples: dict[str, list[Series]]) -> None:
    assert set(samples) == set(GPUS)


def test_every_line_is_parsed(samples: dict[str, list[Series]], data_dir: Path) -> None:
    for name, series in samples.items():
        lines = (data_dir / "telemetry" / f"{name}.prom").read_text().splitlines()
        assert len(series) == sum(bool(line) and not line.startswith("#") for line in lines)


@pytest.mark.parametrize("name", sorted(GPUS))
def test_gpus_of(name: str, samples: dict[str, list[Series]]) -> None:
    readings, faults = read_series(samples[name])
    assert {uuid: rounded(shown(reading)) for uuid, reading in readings.items()} == GPUS[name]
    assert faults == FAULTS.get(name, {})
    for reading in readings.values():
        assert all(
            sample.measured_at == NOW for sample in (reading.power_watts, reading.gpu_util_ratio) if sample
        )


def servers_of(series: list[Series]) -> dict[tuple[str, str], tuple[ServerReading, ...]]:
    return attribute_servers(series, ENGINES, None, Faults())


def in_pod(name: str, series: list[Series]) -> list[Series]:
    """The series as Prometheus has them that scrapes a pod named after the file."""
    target = {"namespace": "team", "pod": name, "instance": f"{name}.team:8000", "job": "llms"}
    return [Series(each.name, dict(each.labels) | target, each.sample) for each in series]


@pytest.mark.parametrize("name", sorted(GPUS))
def test_servers_of(name: str, samples: dict[str, list[Series]]) -> None:
    found = {}
    for readings in servers_of(in_pod(name, samples[name])).values():
        for reading in readings:
            values = {key: getattr(reading, key) for key in ServerReading.__dataclass_fields__}
            shown = {key: value.value for key, value in values.items() if isinstance(value, Sample)}
            found[reading.engine] = {"model": reading.model} | shown
    assert found == SERVERS.get(name, {})


@given(st.randoms(use_true_random=False))
def test_no_mix_of_files_and_no_order_changes_a_reading(
    samples: dict[str, list[Series]], shuffle: random.Random
) -> None:
    chosen = [name for name in samples if shuffle.random() < 0.5]
    mixed = [
        series
        for name in chosen
        for series in (in_pod(name, samples[name]) if name in SERVERS else samples[name])
    ]
    shuffle.shuffle(mixed)
    assert read_series(mixed)[0] == readings_of({name: samples[name] for name in chosen})
    alone: dict[tuple[str, str], tuple[ServerReading, ...]] = {}
    for name in chosen:
        if name in SERVERS:
            alone |= servers_of(in_pod(name, samples[name]))
    assert servers_of(mixed) == alone
