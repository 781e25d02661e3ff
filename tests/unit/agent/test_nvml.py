"""Boards through the real pynvml, over the stub driver; what a driver doesn't tell is unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stub_driver.build import FIRST_UUID, StubNode
from tests.unit.agent.conftest import MakeNode

READ = """
import dataclasses, json, sys
from wattkeeper.agent.nvml import choose, open_nvml
with open_nvml() as boards:
    board = choose(boards, None)
    state = dataclasses.asdict(board.read())
    state["processes"] = state["processes"] if state["processes"] is None else sorted(state["processes"])
    print(json.dumps({"identity": dataclasses.asdict(board.identity), "state": state}))
"""


def read(node: StubNode) -> tuple[dict[str, Any], dict[str, Any]]:
    done = node.python("-c", READ)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["identity"], answer["state"]


def test_a_reading_in_our_units(make_node: MakeNode) -> None:
    identity, state = read(make_node())
    assert identity == {
        "uuid": FIRST_UUID,
        "index": 0,
        "name": "NVIDIA Constructed 24GB",
        "pci_bus_id": "0000:01:00.0",
        "driver_version": "580.65.06",
        "mig_enabled": False,
    }
    assert 14 < state.pop("power_watts") < 16
    assert state == {
        "power_limit_watts": 300.0,
        "energy_joules": 1.0,  # the stub counts a joule a reading
        "sm_clock_mhz": 210.0,
        "memory_clock_mhz": 405.0,
        "temperature_celsius": 30.0,
        "memory_temperature_celsius": None,
        "gpu_util_ratio": 0.0,
        "memory_util_ratio": 0.0,
        "memory_total_bytes": 24576 * 1024**2,
        "memory_used_bytes": 2 * 1024**2,
        "memory_free_bytes": 24058 * 1024**2,
        "processes": [],
        "unknown": {"memory temperature": "Not Supported"},
    }


def test_an_old_driver(make_node: MakeNode) -> None:
    identity, state = read(make_node("old"))
    assert identity["mig_enabled"] is None
    unknown = {name for name, value in state.items() if value is None}
    assert unknown == {"energy_joules", "memory_temperature_celsius", "processes"}
    # Two functions gave these: the newer one that is missing isn't complained about.
    assert state["temperature_celsius"] == 30.0 and state["memory_used_bytes"] == 2 * 1024**2
    assert set(state["unknown"]) == {
        "energy",
        "memory temperature",
        "Compute processes",
    }
    assert set(state["unknown"].values()) == {"Function Not Found"}


@pytest.mark.parametrize(
    ("fault", "field"),
    [("no_power", "power_watts"), ("garbled_power", "power_watts"), ("garbled_util", "gpu_util_ratio")],
)
def test_an_unknown_value_is_none(fault: str, field: str, make_node: MakeNode) -> None:
    _, state = read(make_node(faults=(fault,)))
    assert state[field] is None


def test_a_lost_gpu_is_an_error(make_node: MakeNode) -> None:
    done = make_node(faults=("lost",)).python("-c", READ)
    assert done.returncode == 1
    assert f"GpuLostError: GPU {FIRST_UUID}: power: GPU is lost: it fell off the bus" in done.stderr
