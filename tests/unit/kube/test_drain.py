"""The preStop hook, run as it would be in the container: against a real HTTP server with a stream open."""

import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from wattkeeper.kube.manifests import drain
from wattkeeper.kube.manifests.drain import drain_script
from wattkeeper.kube.manifests.engines import VLLM

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


@dataclass
class Engine:
    """A model server that streams tokens, and tells of it as vLLM does."""

    running: int = 0
    waiting: int = 0
    tokens: int = 0
    silent: bool = False  # nothing but the page's frame: the metrics are absent
    broken: bool = False  # answers with an error
    finish: threading.Event = field(default_factory=threading.Event)
    scrapes: int = 0

    def page(self) -> str:
        labels = 'engine="0",model_name="a model of ours"'
        lines = ["# HELP vllm:num_requests_running Running.", "# TYPE vllm:num_requests_running gauge"]
        if not self.silent:
            lines += [
                f"vllm:num_requests_running{{{labels}}} {self.running}.0",
                f"vllm:num_requests_waiting{{{labels}}} {self.waiting}.0",
                # Its name begins like the gauge's, and must not be taken for it.
                f'vllm:num_requests_waiting_by_reason{{reason="capacity",{labels}}} 7.0',
                f"vllm:generation_tokens_total{{{labels}}} {self.tokens}.0",
                f"vllm:prompt_tokens_total{{{labels}}} 512.0",
            ]
        return "\n".join(lines) + "\n"


@contextmanager
def serving(engine: Engine) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/metrics":
                engine.scrapes += 1
                self._answer(500 if engine.broken else 200, engine.page().encode())
            else:
                self._stream()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self) -> None:
            engine.running += 1
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while not engine.finish.wait(0.05):
                engine.tokens += 1
                self.wfile.write(b"6\r\ntoken \r\n")
                self.wfile.flush()
            self.wfile.write(b"4\r\ndone\r\n0\r\n\r\n")
            engine.running -= 1

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        engine.finish.set()
        server.shutdown()
        server.server_close()


def hook(port: int, shell: str, path: str | None = None, propagation: int = 0) -> subprocess.Popen[bytes]:
    environment = {"PATH": path or os.environ["PATH"]}
    script = drain_script(VLLM.metrics, port, propagation)
    return subprocess.Popen([shutil.which(shell) or shell, "-c", script], env=environment)


def ends(process: subprocess.Popen[bytes], seconds: float = 20) -> int:
    try:
        return process.wait(seconds)
    finally:
        process.kill()


@pytest.fixture
def only_python(tmp_path: Path) -> str:
    """A PATH with python3 and sleep, and no curl."""
    sleep = shutil.which("sleep")
    assert sleep
    (tmp_path / "sleep").symlink_to(sleep)
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    return str(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_it_waits_for_the_stream_and_cuts_no_token(shell: str) -> None:
    engine = Engine()
    with serving(engine) as port:
        answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/completions", timeout=30)
        assert answer.read(6) == b"token "
        process = hook(port, shell)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        assert engine.scrapes >= 2
        engine.finish.set()
        assert answer.read().endswith(b"done")
        assert ends(process) == 0


def test_it_works_with_python_where_there_is_no_curl(only_python: str) -> None:
    engine = Engine(running=1)
    with serving(engine) as port:
        moving = threading.Thread(target=_generate, args=(engine,), daemon=True)
        moving.start()
        process = hook(port, "dash", path=only_python)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        engine.running = 0
        assert ends(process) == 0
        assert engine.scrapes >= 3


def test_a_queued_request_counts_too() -> None:
    engine = Engine(waiting=1)
    with serving(engine) as port:
        threading.Thread(target=_generate, args=(engine,), daemon=True).start()
        process = hook(port, "dash")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        engine.waiting = 0
        assert ends(process) == 0


def test_it_waits_for_propagation_first() -> None:
    with serving(Engine()) as port:
        started = time.monotonic()
        assert ends(hook(port, "dash", propagation=2)) == 0
        assert time.monotonic() - started >= 2


@pytest.mark.parametrize("with_curl", [True, False])
def test_an_engine_that_is_gone_holds_nothing_up(with_curl: bool, only_python: str) -> None:
    with serving(Engine()) as port:
        pass
    assert ends(hook(port, "dash", path=None if with_curl else only_python)) == 0


@pytest.mark.parametrize("state", [{"silent": True}, {"broken": True}])
def test_what_cannot_be_known_is_not_taken_for_idle(state: dict[str, bool]) -> None:
    engine = Engine(**state)  # type: ignore[arg-type]
    with serving(engine) as port:
        process = hook(port, "dash")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(4)
        assert engine.scrapes >= 3
        process.kill()
        process.wait()


def test_frozen_gauges_do_not_hold_it_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests were cancelled at once: the gauge stays, and no token moves (vllm#22545)."""
    monkeypatch.setattr(drain, "_FROZEN_SCRAPES", 3)
    engine = Engine(running=106)
    with serving(engine) as port:
        assert ends(hook(port, "dash")) == 0
        assert engine.scrapes >= 4


def _generate(engine: Engine) -> None:
    while not engine.finish.wait(0.05):
        engine.tokens += 1
