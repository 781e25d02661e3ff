"""The protocol on its own: times, what is refused, and that memory is given back whatever happens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.agent.dose_response import Plan, default_levels, measure
from wattkeeper.agent.errors import DriverError, NotAloneError
from wattkeeper.agent.nvml import BoardIdentity, BoardState

GIB, MIB = 1024**3, 1024**2
US = 77
BARE = BoardState(
    power_watts=50.0,
    gpu_util_ratio=0.0,
    memory_total_bytes=80 * GIB,
    memory_used_bytes=4 * MIB,
    memory_free_bytes=79 * GIB,
    processes=frozenset(),
)
L40S = BoardIdentity("GPU-1", 0, "NVIDIA L40S", None, None, None)


@dataclass
class World:
    """A board, a clock and a listener. `changes` are what a reading (by its number) shows otherwise."""

    changes: dict[int, dict[str, Any]] = field(default_factory=dict)
    fails_at: int | None = None
    identity: BoardIdentity = L40S
    seconds: float = 0.0
    open: bool = False
    held_bytes: int = 0
    closed: int = 0
    read_at: list[float] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def read(self) -> BoardState:
        self.read_at.append(self.seconds)
        self.seconds += 0.01  # asking takes time too
        number = len(self.read_at)
        if number == self.fails_at:
            raise DriverError("gone")
        state = BARE
        if self.open:
            used = 4 * MIB + 500 * MIB + self.held_bytes
            state = replace(BARE, power_watts=80.0, memory_used_bytes=used, processes=frozenset({US}))
        for since, change in self.changes.items():
            if number >= since:
                state = replace(state, **change)
        return state

    @contextlib.contextmanager
    def context(self) -> Iterator[World]:
        self.open = True
        try:
            yield self
        finally:
            self.open, self.held_bytes = False, 0
            self.closed += 1

    def hold(self, total_bytes: int) -> None:
        self.held_bytes = total_bytes

    def now(self) -> float:
        return 1_774_400_000.0 + self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.seconds += seconds

    def reading(self, line: str) -> None:
        self.lines.append(json.loads(line))

    def progress(self, text: str) -> None:
        self.said.append(text)

    def measure(self, plan: Plan) -> None:
        measure(self, self.context, plan, self, self)


PLAN = Plan(levels_gib=(0, 4, 16))
SHORT = Plan(levels_gib=(0, 4, 16), bare_seconds=120, level_seconds=120)
#: Readings of SHORT: one to begin, 4 bare ones, one after the context; then each level one and 4.
BARE_READING, CONTEXT_READING, LEVEL_READING = 3, 6, 14


def test_the_seeds_protocol_in_time() -> None:
    world = World()
    world.measure(PLAN)
    counts = {phase.name: PLAN.readings(phase) for phase in PLAN.phases}
    assert counts == {"bare_idle": 70, "phase1_0gb": 40, "phase2_4gb": 40, "phase3_16gb": 40}
    for name, count in counts.items():
        at = [line["timestamp"] for line in world.lines if line["phase"] == name]
        assert len(at) == count
    # Every 30 s to the end, without drift: what a reading takes isn't added.
    bare = world.read_at[1:71]
    assert bare[0] == pytest.approx(90.01) and bare[-1] - bare[0] == pytest.approx(69 * 30)
    assert [line["target_vram_gb"] for line in world.lines[::40]] == [0, 0, 0, 4, 16]
    assert (world.closed, world.held_bytes) == (1, 0)


def test_a_board_is_settled_after_each_change() -> None:
    world = World()
    world.measure(SHORT)
    gaps = [later - sooner for sooner, later in zip(world.read_at, world.read_at[1:], strict=False)]
    assert sum(gap > 89 for gap in gaps) == 4


@pytest.mark.parametrize("reading", [1, BARE_READING, CONTEXT_READING, LEVEL_READING])
@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({"processes": frozenset({US, 4242})}, "4242"),
        ({"gpu_util_ratio": 0.03}, "3% utilised"),
        ({"memory_used_bytes": 60 * GIB}, ""),
    ],
)
def test_somebody_elses_work_ends_it_at_once(reading: int, change: dict[str, Any], evidence: str) -> None:
    world = World(changes={reading: change})
    with pytest.raises(
        NotAloneError, match=r"GPU-1 isn't ours alone: .*: measure when nothing else"
    ) as caught:
        world.measure(SHORT)
    assert evidence in str(caught.value)
    assert world.closed == (reading >= CONTEXT_READING) and not world.open
    assert len(world.lines) <= reading


def test_ours_is_the_process_that_came_with_the_context() -> None:
    world = World()
    world.measure(SHORT)  # 77 isn't this process's id, as in a container
    stranger = World(changes={LEVEL_READING: {"processes": frozenset({78})}})
    with pytest.raises(NotAloneError, match="process 78 holds it"):
        stranger.measure(SHORT)


def test_memory_may_breathe_a_little() -> None:
    World(changes={BARE_READING: {"memory_used_bytes": 90 * MIB}}).measure(SHORT)


def test_memory_that_is_not_told_once_is_watched_again() -> None:
    """Just after the context was made a reading stays out; what comes later is still noticed."""
    told: dict[str, Any] = {"memory_used_bytes": 504 * MIB}
    untold = {CONTEXT_READING: {"memory_used_bytes": None}, CONTEXT_READING + 1: told}
    World(changes=untold).measure(SHORT)
    with pytest.raises(NotAloneError, match="MiB of it are held by a process not seen here"):
        World(changes={**untold, LEVEL_READING: {"memory_used_bytes": 40 * GIB}}).measure(SHORT)


def test_what_a_driver_does_not_tell_is_left_to_the_other_evidence() -> None:
    untold: dict[str, Any] = {"processes": None, "gpu_util_ratio": None}
    World(changes={1: untold}).measure(SHORT)
    World(changes={1: {"memory_used_bytes": None, "memory_free_bytes": None}}).measure(SHORT)
    with pytest.raises(NotAloneError, match="nothing tells whether GPU GPU-1 is free"):
        World(changes={1: untold | {"memory_used_bytes": None}}).measure(SHORT)


def test_a_board_with_mig_is_refused() -> None:
    world = World(identity=BoardIdentity("GPU-1", 0, "H100", None, None, True))
    with pytest.raises(DriverError, match="MIG"):
        world.measure(SHORT)


def test_a_phase_without_power_is_no_measurement() -> None:
    with pytest.raises(DriverError, match=r"told its power 0 times in 120 s"):
        World(changes={2: {"power_watts": None}}).measure(SHORT)
    world = World(changes={3: {"power_watts": None}, 4: {"power_watts": 51.0}})
    world.measure(SHORT)
    assert [line["power_w"] for line in world.lines[:3]] == [50.0, 51.0, 51.0]


@given(st.integers(1, 21))
def test_whichever_reading_fails_everything_is_given_back(number: int) -> None:
    world = World(fails_at=number)
    with pytest.raises(DriverError, match="gone"):
        world.measure(SHORT)
    assert not world.open and world.held_bytes == 0 and world.closed == (number >= CONTEXT_READING)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels_gib": (0, 4)}, "levels must be at least three"),
        ({"levels_gib": (1, 4, 8)}, "levels must be at least three, beginning with 0"),
        ({"levels_gib": (0, 8, 4)}, "and rising"),
        ({"levels_gib": (0, float("nan"), 4)}, "and rising"),
        ({"levels_gib": (0, 4, float("inf"))}, "and rising"),
        ({"interval_seconds": 61.0}, r"interval must be from 0\.1 to 60 s, got 61 s"),
        ({"interval_seconds": 0.0}, "interval must be"),
        ({"settle_seconds": -1.0}, "settle must not be negative"),
        ({"bare_seconds": 30.0}, "bare must last at least 2 intervals of 30 s, got 30 s"),
        ({"level_seconds": 0.0}, "level must last at least"),
    ],
)
def test_a_plan_that_is_no_study(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**({"levels_gib": (0, 4, 8)} | changes))


@pytest.mark.parametrize(
    ("gib", "levels"),
    [
        (79.6, (0, 19, 39, 69)),
        (45.0, (0, 11, 22, 39)),
        (15.0, (0, 3, 7, 13)),
        (8.0, (0, 2, 4, 7)),
        (4.0, (0, 1, 2, 3.5)),
    ],
)
def test_default_levels(gib: float, levels: tuple[float, ...]) -> None:
    found = default_levels(round(gib * GIB))
    assert found == levels
    Plan(levels_gib=found)


@given(st.floats(1, 512))
def test_default_levels_always_make_a_plan_that_fits(gib: float) -> None:
    levels = default_levels(int(gib * GIB))
    assert levels[-1] <= gib
    Plan(levels_gib=levels)
