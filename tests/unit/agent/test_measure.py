"""`wattkeeper tax measure --local`, whole: real pynvml and CUDA calls over a driver that replays a board."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.stub_driver.build import FIRST_UUID, SECOND_UUID, StubNode, readings
from tests.unit.agent.conftest import MakeNode
from wattkeeper.cli.tax_local import measured_from
from wattkeeper.cli.tax_measure import EXIT_DRIVER, EXIT_NOT_ALONE
from wattkeeper.core.power_samples import RestState

GIB = 1024**3
#: The constructed board has eight readings a level.
SHORT = ("--bare=4m", "--level=4m", "--levels=0,6,12,21")


def measure(node: StubNode, *options: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with a virtual clock."""
    return node.python("-m", "tests.stub_driver.measure", *options)


def analysis(node: StubNode, *options: str) -> dict[str, Any]:
    """What `tax analyze` finds in a recording that was just measured."""
    file = node.folder / "measured.jsonl"
    done = measure(node, *options, f"--record={file}")
    assert done.returncode == 0, done.stderr
    analysed = node.python("-m", "wattkeeper", "tax", "analyze", "--json", str(file))
    (study,) = json.loads(analysed.stdout)
    return dict(study)


def failure(node: StubNode, *options: str) -> tuple[int, str]:
    """Exit code and error of a run that fails."""
    done = measure(node, *(options or SHORT), "--record=-")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return done.returncode, errors[0]


def assert_all_given_back(node: StubNode) -> None:
    calls = node.calls()
    taken = sorted(size for call, _, size in calls if call == "allocate")
    freed = sorted(size for call, _, size in calls if call == "free")
    assert taken == freed
    assert sum(call == "retain" for call, _, _ in calls) == 1
    assert calls[-1] == ("release", 0, 0)


@pytest.mark.data
@pytest.mark.parametrize(
    ("board", "watts", "clocks"),
    [("h100", 49.9, (345, 1980)), ("a100", 26.3, (210, 1410)), ("l40s", 66.4, (210, 2520))],
)
def test_measuring_and_analysing_gives_the_tax_that_was_recorded(
    board: str, watts: float, clocks: tuple[int, int], make_node: MakeNode, data_dir: Path
) -> None:
    recording = data_dir / "parking-tax" / f"{board}_dose_response.jsonl"
    recorded = readings(recording)
    sizes = sorted({row["target_vram_gb"] for row in recorded})
    node = make_node(recording=recording)
    study = analysis(node, "--bare=20m", f"--levels={','.join(f'{size:g}' for size in sizes)}")
    assert study["gpu"] == recorded[0]["gpu_name"]
    assert study["step_watts"] == pytest.approx(watts, abs=0.05)
    assert (study["bare"]["sm_clock_mhz"], study["levels"][0]["sm_clock_mhz"]) == clocks
    # All of the recording's study, not the step alone.
    original = node.python("-m", "wattkeeper", "tax", "analyze", "--json", str(recording))
    (expected,) = json.loads(original.stdout)
    assert study["slope"] == pytest.approx(expected["slope"], rel=0.02)
    for level, there in zip(study["levels"], expected["levels"], strict=True):
        assert level["gigabytes"] == there["gigabytes"] and level["readings"] == 40
        assert level["mean_watts"] == pytest.approx(there["mean_watts"], abs=5e-4)
    assert_all_given_back(node)


def test_a_constructed_board(make_node: MakeNode) -> None:
    node = make_node()
    study = analysis(node, *SHORT)
    assert study["step_watts"] == pytest.approx(40.0, abs=0.1)
    assert (study["bare"]["sm_clock_mhz"], study["levels"][0]["sm_clock_mhz"]) == (210, 1740)
    assert [call for call in node.calls() if call[0] == "allocate"] == [
        ("allocate", 0, 6 * GIB),
        ("allocate", 0, 6 * GIB),
        ("allocate", 0, 9 * GIB),
    ]
    assert_all_given_back(node)


def test_the_default_levels_follow_the_memory_and_last_long_enough(make_node: MakeNode) -> None:
    node = make_node()
    done = measure(node, "--record=-")
    assert done.returncode == 0, done.stderr
    assert "0, 6, 12, 21 GiB, 122 minutes in all" in done.stderr
    assert "too short" not in done.stderr
    state = measured_from(done.stdout.splitlines()).state
    assert state.moments[RestState.BARE].weight >= 6
    assert state.moments[RestState.CONTEXT].weight >= 12


def test_a_recording_has_the_columns_of_the_seeds(make_node: MakeNode) -> None:
    node = make_node()
    done = measure(node, *SHORT, "--record=-")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(readings(node.recording)[0]) < set(rows[0])
    first, last = rows[0], rows[-1]
    assert first["phase"] == "bare_idle" and last["phase"] == "phase4_21gb"
    assert first["uuid"] == FIRST_UUID and first["gpu_name"] == "NVIDIA Constructed 24GB"
    assert last["mem_used_mb"] == 402 + 21 * 1024 and last["mem_total_mb"] == 24576
    assert first["mem_temp_c"] is None  # no sensor: unknown
    assert last["energy_j"] > first["energy_j"] and last["driver_version"] == "580.65.06"
    assert all(row["gpu_util_pct"] == 0 for row in rows)
    at = [row["timestamp"] for row in rows[:2]]
    assert at == ["2026-03-25T00:54:50+00:00", "2026-03-25T00:55:20+00:00"]


def test_cudas_order_of_boards_is_not_nvmls(make_node: MakeNode) -> None:
    node = make_node(boards=2)
    code, error = failure(node)
    assert code == EXIT_DRIVER and "choose one by --gpu" in error and SECOND_UUID in error
    for chosen in ("1", SECOND_UUID):
        (node.folder / "calls").unlink(missing_ok=True)
        assert measure(node, *SHORT, f"--gpu={chosen}", "--record=-").returncode == 0
        assert {board for _, board, _ in node.calls()} == {1}
    code, error = failure(node, "--gpu=7")
    assert code == EXIT_DRIVER and "no GPU 7" in error


def test_an_old_driver_leaves_values_unknown_and_never_zero(make_node: MakeNode) -> None:
    node = make_node("old")
    done = measure(node, *SHORT, "--record=-")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["energy_j"] for row in rows} == {row["mem_temp_c"] for row in rows} == {None}
    assert all(row["power_w"] > 0 and row["mem_used_mb"] > 0 for row in rows)
    assert measured_from(done.stdout.splitlines()).study.step_watts == pytest.approx(40.0, abs=0.1)
    assert_all_given_back(node)


def test_an_old_driver_finds_the_board_by_its_bus(make_node: MakeNode) -> None:
    node = make_node("old", boards=2)
    assert measure(node, *SHORT, "--gpu=0", "--record=-").returncode == 0
    assert {board for _, board, _ in node.calls()} == {0}


def test_a_context_without_boost_is_kept_apart(make_node: MakeNode) -> None:
    node = make_node()
    for options, variables in ((("--disable-perf-boost",), {}), ((), {"CUDA_DISABLE_PERF_BOOST": "1"})):
        done = measure(make_node(variables=variables), *SHORT, *options, "--record=-")
        measured = measured_from(done.stdout.splitlines())
        assert measured.unboosted
    plain = measured_from(measure(node, *SHORT, "--record=-").stdout.splitlines())
    assert not plain.unboosted


# ---- what isn't ours ---------------------------------------------------------------------------------

HOLD = """
import time
from wattkeeper.agent.cuda_driver import CudaDriver
with CudaDriver().context(0) as context:
    context.hold(1 << 30)
    print("held", flush=True)
    time.sleep(120)
"""


def test_a_gpu_that_another_process_holds_is_left_alone(make_node: MakeNode) -> None:
    node = make_node()
    other = node.start("-c", HOLD)
    try:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        code, error = failure(node)
    finally:
        other.kill()
        other.communicate()
    assert code == EXIT_NOT_ALONE
    assert f"process {other.pid} holds it" in error and FIRST_UUID in error
    # It was killed without a chance to give anything back: the driver did, and the board is free again.
    assert measure(node, *SHORT, "--record=-").returncode == 0


@pytest.mark.parametrize(
    ("fault", "evidence"),
    [
        ("intruder", "process 4242 holds it"),
        ("busy", "37% utilised"),
        ("hidden", "3074 MiB of it are held by a process not seen here"),
    ],
)
def test_work_that_is_there_before_is_not_disturbed(fault: str, evidence: str, make_node: MakeNode) -> None:
    node = make_node(faults=(fault,))
    code, error = failure(node)
    assert code == EXIT_NOT_ALONE and evidence in error and "measure when nothing else runs" in error
    assert node.calls() == []


@pytest.mark.parametrize(
    ("fault", "evidence"),
    [("intruder", "process 4242 holds it"), ("busy", "37% utilised"), ("hidden", "3072 MiB of it are held")],
)
@pytest.mark.parametrize("after", [4, 22])
def test_work_that_arrives_ends_the_run(fault: str, evidence: str, after: int, make_node: MakeNode) -> None:
    node = make_node(faults=(f"{fault}@{after}",))
    done = measure(node, *SHORT, "--record=-")
    assert done.returncode == EXIT_NOT_ALONE and evidence in done.stderr
    assert 0 < len(done.stdout.splitlines()) < after  # what was read before stays as evidence
    if after > 10:
        assert_all_given_back(node)
    else:
        assert node.calls() == []  # the context wasn't there yet


def test_the_hosts_process_ids_are_no_strangers(make_node: MakeNode) -> None:
    """In a container the driver may list processes by the host's ids: ours isn't known by its own."""
    node = make_node(faults=("host_pids",))
    assert measure(node, *SHORT, "--record=-").returncode == 0
    node = make_node(faults=("host_pids", "intruder@22"))
    assert failure(node)[0] == EXIT_NOT_ALONE


def test_a_driver_that_lists_no_processes_is_watched_by_memory(make_node: MakeNode) -> None:
    assert measure(make_node(faults=("no_list",)), *SHORT, "--record=-").returncode == 0
    code, error = failure(make_node(faults=("no_list", "hidden@22")))
    assert code == EXIT_NOT_ALONE and "3072 MiB" in error
    code, error = failure(make_node(faults=("blind",)))
    assert code == EXIT_NOT_ALONE and "nothing tells whether" in error and "memory: Not Supported" in error


def test_a_garbled_utilisation_says_nothing(make_node: MakeNode) -> None:
    done = measure(make_node(faults=("garbled_util",)), *SHORT, "--record=-")
    assert done.returncode == 0, done.stderr
    assert {json.loads(line)["gpu_util_pct"] for line in done.stdout.splitlines()} == {None}


# ---- what fails --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (("not_loaded",), ("Driver Not Loaded", "modprobe nvidia")),
        (("no_permission",), ("Insufficient Permissions", "/dev/nvidiactl")),
        (("mismatch",), ("reboot the node",)),
        (("no_power",), ("doesn't tell its power (Not Supported)",)),
        (("power_denied",), ("doesn't tell its power (Insufficient Permissions)",)),
        (("garbled_power",), ("4.29497e+06 W can't be",)),
        (("mig",), ("MIG", "measure a board of the same kind without MIG")),
        (("no_device",), ("CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES")),
        (("exclusive",), ("CUDA_ERROR_DEVICE_UNAVAILABLE", "--compute-mode=DEFAULT")),
        (("oom@8",), ("CUDA_ERROR_OUT_OF_MEMORY", "smaller --levels")),
        (("lost@22",), ("GPU is lost", "reboot the node")),
        (("power_timeout@1",), ("told its power 0 times",)),
    ],
)
def test_a_driver_that_fails_is_named_with_its_cure(
    faults: tuple[str, ...], words: tuple[str, ...], make_node: MakeNode
) -> None:
    node = make_node(faults=faults)
    code, error = failure(node)
    assert code == EXIT_DRIVER
    assert all(word in error for word in words), error
    if any(call == "retain" for call, _, _ in node.calls()):
        assert_all_given_back(node)


def test_no_driver_at_all(make_node: MakeNode) -> None:
    code, error = failure(make_node("none"))
    assert code == EXIT_DRIVER
    assert "run this on a node with an NVIDIA driver" in error and "NVIDIA_DRIVER_CAPABILITIES" in error


def test_a_level_larger_than_the_gpu(make_node: MakeNode) -> None:
    code, error = failure(make_node(), "--levels=0,6,40")
    assert code == EXIT_DRIVER and "23.5 GiB free" in error and "40 GiB" in error


def test_a_recording_that_cannot_be_written(make_node: MakeNode) -> None:
    node = make_node()
    done = measure(node, *SHORT, f"--record={node.folder}/missing/x.jsonl")
    assert done.returncode == 2 and "error: --record: " in done.stderr and "can't be written" in done.stderr
    assert node.calls() == []


def test_readings_that_fail_now_and_then_are_left_out(make_node: MakeNode) -> None:
    """A timeout is an unknown power, not a power of 0."""
    node = make_node(faults=("power_timeout@42",))
    done = measure(node, *SHORT, "--record=-")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 36 and min(row["power_w"] for row in rows) > 14


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_everything_back(ending: signal.Signals, make_node: MakeNode) -> None:
    node = make_node()
    times = ("--bare=200ms", "--settle=0s", "--interval=100ms", "--level=10m", "--levels=0,6,12")
    running = node.start("-m", "wattkeeper", "tax", "measure", "--local", *times, "--record=-")
    try:
        deadline = time.monotonic() + 60
        while not any(call == "retain" for call, _, _ in node.calls()):
            assert time.monotonic() < deadline and running.poll() is None, running.communicate()
            time.sleep(0.05)
        running.send_signal(ending)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 128 + ending
    assert f"stopped by {ending.name}; context and memory are given back" in errors
    assert_all_given_back(node)
