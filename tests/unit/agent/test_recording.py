"""The recording's lines, written and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.agent.nvml import BoardIdentity, BoardState
from wattkeeper.agent.recording import BARE_PHASE, line_of, records_of
from wattkeeper.core.power_samples import RestState

IDENTITY = BoardIdentity("GPU-1", 0, "NVIDIA L40S", "0000:01:00.0", "580.65.06", False)
KNOWN = st.floats(0, 4000, allow_nan=False)
UNKNOWN = st.none() | KNOWN


@given(
    st.builds(
        BoardState,
        power_watts=KNOWN,
        power_limit_watts=UNKNOWN,
        sm_clock_mhz=UNKNOWN,
        temperature_celsius=UNKNOWN,
        memory_temperature_celsius=UNKNOWN,
        gpu_util_ratio=st.none() | st.floats(0, 1),
        memory_used_bytes=st.none() | st.integers(0, 2**40),
    ),
    st.none() | st.floats(0, 1000),
    st.booleans(),
    st.integers(1_500_000_000, 2_000_000_000),
)
def test_what_is_written_is_read_again(
    state: BoardState, gibibytes: float | None, unboosted: bool, at: int
) -> None:
    phase = BARE_PHASE if gibibytes is None else "phase1_0gb"
    line = line_of(IDENTITY, state, at=at + 0.25, phase=phase, gibibytes=gibibytes, unboosted=unboosted)
    (record,) = records_of(["created, waiting", line, ""])
    dose, rest = record.dose(), record.rest()
    assert (record.at, record.uuid, record.gpu_name) == (at + 0.25, "GPU-1", "NVIDIA L40S")
    assert (dose.gigabytes, dose.watts) == (gibibytes, state.power_watts)
    assert dose.sm_clock_mhz == rest.sm_clock_mhz == state.sm_clock_mhz
    assert dose.temperature_celsius == state.temperature_celsius
    assert dose.memory_temperature_celsius == state.memory_temperature_celsius
    assert record.power_limit_watts == state.power_limit_watts
    context = RestState.CONTEXT_UNBOOSTED if unboosted else RestState.CONTEXT
    assert rest.state is (RestState.BARE if gibibytes is None else context)


@pytest.mark.data
def test_the_seeds_recordings_are_read(data_dir: Path) -> None:
    for file in (data_dir / "parking-tax").glob("*_dose_response.jsonl"):
        records = list(records_of(file.read_text().splitlines()))
        assert sum(record.gibibytes is None for record in records) == 40
        assert not any(record.unboosted for record in records)


LINE = json.loads(
    line_of(
        IDENTITY, BoardState(power_watts=71.0), at=1.0, phase="phase1_0gb", gibibytes=0.0, unboosted=False
    )
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"power_w": None}, "power_w is missing"),
        ({"power_w": "71"}, "power_w must be a number from 0, got '71'"),
        ({"power_w": True}, "power_w must be a number from 0, got True"),
        ({"power_w": -1}, "power_w must be a number from 0, got -1"),
        ({"target_vram_gb": None}, "target_vram_gb is missing"),
        ({"phase": ""}, "phase is missing"),
        ({"timestamp": "yesterday"}, "timestamp must be a time as RFC 3339 writes it, got 'yesterday'"),
    ],
)
def test_a_line_that_cannot_be_read_names_its_field(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        list(records_of([json.dumps(LINE | changes)]))


def test_a_line_that_was_cut_off() -> None:
    with pytest.raises(ValueError, match="no valid JSON"):
        list(records_of([json.dumps(LINE)[:-5]]))
