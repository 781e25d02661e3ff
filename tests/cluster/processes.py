"""Starts, watches and ends processes that may outlive this one; never touches any other.

A process is remembered by its id and the moment it started, so that an id which the system has given to
another program meanwhile is never mistaken for ours. Reads /proc, so it needs Linux.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# An API server asked to end waits a minute for open watches, and etcd for the API server; what they hold
# is thrown away, so neither is given that long.
TERMINATE_SECONDS = 1.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.05
TAIL_BYTES = 4096


@dataclass(frozen=True)
class Process:
    """A process of ours. ``started_ticks`` counts clock ticks from the boot to its start."""

    name: str
    pid: int
    started_ticks: int

    def alive(self) -> bool:
        """Whether this very process still runs (one that ended but was not reaped does not)."""
        return _started_ticks(self.pid) == self.started_ticks


def start(name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Starts a process in a session of its own, with its output appended to ``log``."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            # Interrupting the caller (Ctrl-C) must not end the cluster.
            start_new_session=True,
        )
    # The child is not reaped before `stop`, so its entry exists even if it has ended already.
    ticks = _stat(child.pid)
    _children[child.pid] = child
    return Process(name, child.pid, ticks[1] if ticks is not None else 0)


def current() -> Process:
    """The calling process."""
    stat = _stat(os.getpid())
    assert stat is not None, "/proc does not show this process: the local cluster needs Linux"
    return Process("owner", os.getpid(), stat[1])


def stop(processes: Iterable[Process]) -> None:
    """Ends the processes together: asks first, and kills those that have not ended in time."""
    processes = list(processes)
    for number, seconds in ((signal.SIGTERM, TERMINATE_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        for process in processes:
            if process.alive():
                os.kill(process.pid, number)
        deadline = time.monotonic() + seconds
        while any(process.alive() for process in processes) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    for process in processes:
        child = _children.pop(process.pid, None)
        if child is not None:
            child.wait()


def tail(log: Path, lines: int = 25) -> str:
    """The last lines of a log, indented; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])


# Children of this process, kept so that they can be reaped.
_children: dict[int, "subprocess.Popen[bytes]"] = {}


def _started_ticks(pid: int) -> int | None:
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else stat[1]


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start time (fields 3 and 22 of proc_pid_stat(5)); None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses and may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])
