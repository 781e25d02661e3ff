"""Seed 002's dose-response on one board: bare, then a CUDA context, then ever more memory under it.

The board has to be ours alone, or the figures say nothing. Whether it is, evidence alone decides: processes
that hold it, utilisation, memory that we don't hold. It is looked at before anything begins and with every
reading; as soon as somebody else's work shows, the run ends and what we hold is given back.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from wattkeeper.agent.errors import DriverError, NotAloneError
from wattkeeper.agent.nvml import BoardIdentity, BoardState
from wattkeeper.agent.recording import BARE_PHASE, line_of
from wattkeeper.core.power_samples import BATCH_READINGS, BATCH_SECONDS, EMPTY_BYTES

_GIB = 1024**3
#: A context with its modules took 0.3 to 0.7 GB where it was seen; beyond this it isn't only ours.
_CONTEXT_BYTES = 2 * _GIB
#: With fewer readings a phase has no mean to speak of, and batches of the running figures stay empty.
LONGEST_INTERVAL_SECONDS = BATCH_SECONDS / BATCH_READINGS
#: NVML refreshes its power reading about so often.
SHORTEST_INTERVAL_SECONDS = 0.1
_FEWEST_READINGS = 2


class Clock(Protocol):
    """Time: `now` in Unix seconds, `monotonic` for durations."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ReadableBoard(Protocol):
    """What is needed of `nvml.Board`."""

    @property
    def identity(self) -> BoardIdentity: ...

    def read(self) -> BoardState: ...


class HeldMemory(Protocol):
    """What is needed of `cuda_driver.Context`."""

    def hold(self, total_bytes: int) -> None: ...


class Listener(Protocol):
    """Who is told, while it goes on: of each line of the recording, and of progress in words."""

    def reading(self, line: str) -> None: ...

    def progress(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Phase:
    """One level of the study. `gibibytes` is None on the bare board."""

    name: str
    gibibytes: float | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is held for how long. Raises ValueError for what makes no study, naming the field.

    Seed 002 took 20 minutes a level at 30 s, and let the board settle for 90 s after each change. The bare
    board gets more by default: the running figures count a state as measured after half an hour of it.
    """

    levels_gib: tuple[float, ...]
    bare_seconds: float = 2100.0
    level_seconds: float = 1200.0
    settle_seconds: float = 90.0
    interval_seconds: float = 30.0
    unboosted: bool = False

    def __post_init__(self) -> None:
        levels = self.levels_gib
        if len(levels) < 3 or levels[0] != 0 or not _rising(levels):
            raise ValueError("levels must be at least three, beginning with 0 and rising: such as 0,4,16,64")
        if not SHORTEST_INTERVAL_SECONDS <= self.interval_seconds <= LONGEST_INTERVAL_SECONDS:
            raise ValueError(
                f"interval must be from {SHORTEST_INTERVAL_SECONDS:g} to {LONGEST_INTERVAL_SECONDS:g} s, "
                f"got {self.interval_seconds:g} s"
            )
        if not self.settle_seconds >= 0:
            raise ValueError(f"settle must not be negative, got {self.settle_seconds:g} s")
        for name, seconds in (("bare", self.bare_seconds), ("level", self.level_seconds)):
            if not seconds >= _FEWEST_READINGS * self.interval_seconds:
                raise ValueError(
                    f"{name} must last at least {_FEWEST_READINGS} intervals of {self.interval_seconds:g} s, "
                    f"got {seconds:g} s"
                )

    @property
    def phases(self) -> tuple[Phase, ...]:
        """In the order in which they are held."""
        context = (
            Phase(f"phase{number}_{level:g}gb", level, self.level_seconds)
            for number, level in enumerate(self.levels_gib, start=1)
        )
        return (Phase(BARE_PHASE, None, self.bare_seconds), *context)

    @property
    def seconds(self) -> float:
        """How long all of it takes."""
        return sum(self.settle_seconds + phase.seconds for phase in self.phases)

    def readings(self, phase: Phase) -> int:
        # Half a step more, so that 1200 / 30 is 40 in floats too.
        return int(phase.seconds / self.interval_seconds + 0.5)


def _rising(levels: tuple[float, ...]) -> bool:
    return math.isfinite(levels[-1]) and all(a < b for a, b in itertools.pairwise(levels))


def default_levels(memory_total_bytes: int) -> tuple[float, ...]:
    """No memory, a quarter, a half and seven eighths of the board's, in whole GiB (small ones: tenths)."""
    total = memory_total_bytes / _GIB
    unit = 1.0 if total >= 8 else 0.1
    levels = {round(math.floor(share * total / unit) * unit, 1) for share in (0.0, 0.25, 0.5, 0.875)}
    return tuple(sorted(levels))


def measure(
    board: ReadableBoard,
    open_context: Callable[[], AbstractContextManager[HeldMemory]],
    plan: Plan,
    clock: Clock,
    listener: Listener,
) -> None:
    """Carry out the plan, telling the listener of every reading as it is taken.

    Context and memory are given back however it ends. Raises NotAloneError, DriverError.
    """
    run = _Run(board, plan, clock, listener)
    bare, *levels = plan.phases
    run.begin()
    run.hold(bare)
    with open_context() as context:
        run.context_opened()
        for phase in levels:
            run.allocate(context, phase)
            run.hold(phase)


class _Run:
    """The state of one run: which processes and how much memory are known to be ours."""

    def __init__(self, board: ReadableBoard, plan: Plan, clock: Clock, listener: Listener) -> None:
        self._board, self._plan, self._clock, self._listener = board, plan, clock, listener
        self._own: frozenset[int] = frozenset()
        self._held = 0  # bytes that we allocated
        self._used: int | None = 0  # bytes in use that are accounted for; None: the driver doesn't tell

    def begin(self) -> None:
        """Refuse what can't be measured. Raises NotAloneError, DriverError."""
        identity, state = self._board.identity, self._board.read()
        if identity.mig_enabled:
            raise DriverError(
                f"GPU {identity.uuid} is cut into MIG instances, and its power is the whole board's: measure "
                "a board of the same kind without MIG"
            )
        if state.power_watts is None:
            raise DriverError(
                f"GPU {identity.uuid} doesn't tell its power ({state.unknown.get('power', 'unknown')}): "
                "measure on the node itself rather than in a virtual machine, with a driver that supports it"
            )
        if state.memory_used_bytes is None and (state.processes is None or state.gpu_util_ratio is None):
            why = "; ".join(f"{what}: {reason}" for what, reason in state.unknown.items())
            raise NotAloneError(
                f"nothing tells whether GPU {identity.uuid} is free ({why}): upgrade the driver"
            )
        self._check(state)
        self._used = state.memory_used_bytes
        largest = self._plan.levels_gib[-1]
        if state.memory_free_bytes is not None and largest * _GIB > state.memory_free_bytes:
            free = state.memory_free_bytes / _GIB
            raise DriverError(
                f"GPU {identity.uuid} has {free:.1f} GiB free, and the largest level is {largest:g} GiB: "
                "choose smaller --levels"
            )

    def context_opened(self) -> None:
        """Learn which process is ours. In a container its id may be the host's, so it isn't looked up."""
        state = self._board.read()
        if state.processes is not None:
            if len(state.processes) > 1:
                raise NotAloneError(self._intruded(f"processes {_listed(state.processes)} hold it"))
            self._own = state.processes
        self._account(state, _CONTEXT_BYTES)

    def allocate(self, context: HeldMemory, phase: Phase) -> None:
        """Hold the phase's memory."""
        assert phase.gibibytes is not None
        wanted = round(phase.gibibytes * _GIB)
        context.hold(wanted)
        self._account(self._board.read(), wanted - self._held)
        self._held = wanted

    def hold(self, phase: Phase) -> None:
        """Let the board settle, then take the phase's readings."""
        plan, clock = self._plan, self._clock
        self._listener.progress(
            f"{phase.name}: {plan.settle_seconds:g} s to settle, then {phase.seconds:g} s of readings"
        )
        clock.sleep(plan.settle_seconds)
        started, watts = clock.monotonic(), []
        for number in range(plan.readings(phase)):
            wait = started + number * plan.interval_seconds - clock.monotonic()
            if wait > 0:
                clock.sleep(wait)
            at, state = clock.now(), self._board.read()
            self._check(state)
            if state.power_watts is None:
                continue
            watts.append(state.power_watts)
            line = line_of(
                self._board.identity,
                state,
                at=at,
                phase=phase.name,
                gibibytes=phase.gibibytes,
                unboosted=plan.unboosted,
            )
            self._listener.reading(line)
        if len(watts) < _FEWEST_READINGS:
            raise DriverError(
                f"GPU {self._board.identity.uuid} told its power {len(watts)} times in {phase.seconds:g} s: "
                "look for NVRM lines in dmesg, and measure again"
            )
        self._listener.progress(
            f"{phase.name}: {math.fsum(watts) / len(watts):.2f} W over {len(watts)} readings"
        )

    def _account(self, state: BoardState, most_bytes: int) -> None:
        """Take what is in use now for ours, if it can be."""
        used = state.memory_used_bytes
        if self._used is None:
            return
        if used is None:  # not told this once: at most what we may have taken
            self._used += most_bytes
            return
        if used - self._used > most_bytes + EMPTY_BYTES:
            raise NotAloneError(self._intruded(f"{(used - self._used) / _GIB:.1f} GiB more are in use"))
        self._used = used

    def _check(self, state: BoardState) -> None:
        """Raises NotAloneError when anything shows that somebody else is at work here."""
        if state.processes is not None and (others := state.processes - self._own):
            raise NotAloneError(self._intruded(f"process {_listed(others)} holds it"))
        if state.gpu_util_ratio:
            raise NotAloneError(self._intruded(f"it is {state.gpu_util_ratio:.0%} utilised"))
        if state.memory_used_bytes is None or self._used is None:
            return
        if state.memory_used_bytes - self._used >= EMPTY_BYTES:
            held = (state.memory_used_bytes - self._used) / 1024**2
            raise NotAloneError(self._intruded(f"{held:.0f} MiB of it are held by a process not seen here"))

    def _intruded(self, evidence: str) -> str:
        uuid = self._board.identity.uuid
        return f"GPU {uuid} isn't ours alone: {evidence}: measure when nothing else runs on it"


def _listed(processes: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(processes)))
