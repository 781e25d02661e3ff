"""Contexts and memory through libcuda, over the stub driver."""

from __future__ import annotations

import pytest

from tests.stub_driver.build import FIRST_UUID, SECOND_UUID
from tests.unit.agent.conftest import MakeNode

IMPORTS = "from wattkeeper.agent.cuda_driver import *\n"
HOLD = IMPORTS + "with CudaDriver().context(0) as context:\n"
GIB = 1024**3


def test_memory_is_held_in_steps_and_given_back(make_node: MakeNode) -> None:
    node = make_node()
    body = (
        " for size in (0, 2 << 30, 1 << 30, 5 << 30):\n  context.hold(size); print(context.held_bytes >> 30)"
    )
    done = node.python("-c", HOLD + body)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "2", "2", "5"]
    assert node.calls() == [
        ("retain", 0, 0),
        ("allocate", 0, 2 * GIB),
        ("allocate", 0, 3 * GIB),
        ("free", 0, 3 * GIB),
        ("free", 0, 2 * GIB),
        ("release", 0, 0),
    ]


@pytest.mark.parametrize(
    "ending", ["raise KeyboardInterrupt", "raise SystemExit(3)", "1 / 0", "context.hold(1 << 50)"]
)
def test_everything_is_given_back_however_it_ends(ending: str, make_node: MakeNode) -> None:
    node = make_node(faults=("oom@64",))
    done = node.python("-c", f"{HOLD} context.hold(1 << 30)\n {ending}")
    assert done.returncode != 0
    assert node.calls()[-2:] == [("free", 0, GIB), ("release", 0, 0)]


def test_boards_are_found_by_uuid_and_before_that_by_bus(make_node: MakeNode) -> None:
    ask = IMPORTS + "import sys; print(CudaDriver().device_of(sys.argv[1], sys.argv[2] or None))"
    new, old = make_node(boards=2), make_node("old", boards=2)
    assert new.python("-c", ask, FIRST_UUID, "").stdout == "1\n"  # CUDA's order is the reverse here
    assert new.python("-c", ask, SECOND_UUID, "").stdout == "0\n"
    assert old.python("-c", ask, FIRST_UUID, "0000:01:00.0").stdout == "1\n"
    for node, uuid, bus in (
        (new, "GPU-1", "0000:01:00.0"),
        (old, FIRST_UUID, ""),
        (old, FIRST_UUID, "0000:09:00.0"),
    ):
        done = node.python("-c", ask, uuid, bus)
        assert f"CUDA doesn't see GPU {uuid}: look whether CUDA_VISIBLE_DEVICES hides it" in done.stderr


def test_probing_leaves_no_cuda_behind(make_node: MakeNode) -> None:
    probe = IMPORTS + f"probe('{FIRST_UUID}', None)\n"
    probe += "print(any('libcuda' in line for line in open('/proc/self/maps')))"
    node = make_node()
    assert node.python("-c", probe).stdout == "False\n"
    assert node.calls() == []
    refused = make_node(faults=("no_device",)).python("-c", probe)
    assert "DriverError: cuInit: CUDA_ERROR_NO_DEVICE: give the container a GPU" in refused.stderr
    missing = make_node("none").python("-c", probe)
    assert "DriverError: the CUDA driver can't be loaded" in missing.stderr


def test_a_driver_without_a_function_is_too_old(make_node: MakeNode) -> None:
    done = make_node("old").python("-c", IMPORTS + "CudaDriver().call('cuDeviceGetUuid', b'', 0)")
    assert "DriverError: the CUDA driver has no cuDeviceGetUuid: it is too old, upgrade it" in done.stderr
