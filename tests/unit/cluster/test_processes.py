import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import processes
from tests.cluster.errors import StartError
from tests.cluster.processes import Process
from tests.cluster.readiness import wait

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def python(code: str, log: Path) -> Process:
    return processes.start("sample", [sys.executable, "-c", code], log, ENVIRONMENT)


def test_process_is_started_and_ended(tmp_path: Path) -> None:
    process = python("import time; time.sleep(600)", tmp_path / "log")
    assert process.alive()
    processes.stop([process])
    assert not process.alive()
    processes.stop([process])  # a second time does nothing


def test_process_that_ignores_the_request_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TERMINATE_SECONDS", 0.1)
    log = tmp_path / "log"
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('set', flush=True); time.sleep(600)"
    process = python(code, log)
    wait(process, log, lambda: None if "set" in log.read_text() else "not yet", seconds=60)
    processes.stop([process])
    assert not process.alive()


def test_id_given_to_another_process_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            ours = Process("ended", stranger.pid, started_ticks=1)
            assert not ours.alive()
            processes.stop([ours])
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_process_outlives_nothing_but_is_its_own_session(tmp_path: Path) -> None:
    process = python("import time; time.sleep(600)", tmp_path / "log")
    try:
        assert os.getsid(process.pid) == process.pid != os.getsid(0)
    finally:
        processes.stop([process])


def test_current_process_is_alive() -> None:
    me = processes.current()
    assert me.pid == os.getpid() and me.alive()
    assert not replace(me, started_ticks=me.started_ticks + 1).alive()


def test_ended_process_is_reported_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = python("import sys; sys.exit('no such flag: --wat')", log)
    with pytest.raises(StartError, match=r"sample ended while starting.(?s:.*)log(?s:.*)no such flag: --wat"):
        wait(process, log, lambda: "not ready", seconds=60)
    processes.stop([process])


def test_late_process_is_reported_with_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = python("import time; time.sleep(600)", log)
    try:
        with pytest.raises(StartError, match=r"not ready after 0 s: port shut(?s:.*)nothing was written"):
            wait(process, log, lambda: "port shut", seconds=0)
    finally:
        processes.stop([process])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ""),
        (b"one\ntwo\nthree\n", "    two\n    three"),
        (b"\xff broken\n", "    \ufffd broken"),
    ],
)
def test_tail(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "log").write_bytes(content)
    assert processes.tail(tmp_path / "log", lines=2) == expected


def test_tail_of_a_long_or_absent_log(tmp_path: Path) -> None:
    assert processes.tail(tmp_path / "absent") == ""
    (tmp_path / "log").write_text("x" * 100_000 + "\nend\n")
    assert processes.tail(tmp_path / "log", lines=1) == "    end"
