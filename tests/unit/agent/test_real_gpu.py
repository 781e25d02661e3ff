"""The same over a real driver, where there is one: short, so the figures are rough."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wattkeeper.agent.errors import DriverError
from wattkeeper.agent.nvml import BoardState, open_nvml
from wattkeeper.cli.tax_local import measured_from
from wattkeeper.cli.tax_measure import EXIT_NOT_ALONE

TIMES = ("--bare=20s", "--level=10s", "--settle=10s", "--interval=500ms", "--levels=0,1,2")


@pytest.fixture(scope="module")
def board() -> tuple[str, BoardState]:
    """UUID of the first GPU here, and a reading of it."""
    try:
        with open_nvml() as boards:
            if boards:
                return boards[0].identity.uuid, boards[0].read()
    except DriverError as error:
        pytest.skip(f"no NVIDIA GPU at hand: {error}")
    pytest.skip("no NVIDIA GPU at hand: the driver sees none")


def test_a_real_board_is_read(board: tuple[str, BoardState]) -> None:
    uuid, state = board
    assert uuid.startswith("GPU-")
    assert state.power_watts is not None and 1 < state.power_watts < 1500
    assert state.memory_total_bytes is not None and state.memory_total_bytes > 1024**3
    assert state.gpu_util_ratio is None or 0 <= state.gpu_util_ratio <= 1


def test_a_context_costs_power_on_a_real_board(board: tuple[str, BoardState]) -> None:
    command = [sys.executable, "-m", "wattkeeper", "tax", "measure", "--local", f"--gpu={board[0]}"]
    done = subprocess.run([*command, *TIMES, "--record=-"], capture_output=True, text=True, check=False)
    if done.returncode == EXIT_NOT_ALONE:
        pytest.skip(f"the GPU is in use: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    study = measured_from(done.stdout.splitlines()).study
    bare, context = study.bare, study.levels[0]
    assert context.mean_watts > bare.mean_watts
    if bare.sm_clock_mhz is not None and context.sm_clock_mhz is not None:
        assert context.sm_clock_mhz >= bare.sm_clock_mhz
    with open_nvml() as boards:  # everything was given back
        used = next(each for each in boards if each.identity.uuid == board[0]).read().memory_used_bytes
    assert (
        used is None
        or board[1].memory_used_bytes is None
        or used < board[1].memory_used_bytes + 100 * 1024**2
    )
