"""Starts, pauses and stops a Prometheus of our own, and no other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import ports, processes

VARIABLE = "WATTKEEPER_TEST_PROMETHEUS"
CURE = f"needs Prometheus: apt-get install prometheus, or set {VARIABLE} to its program"
READY_SECONDS = 60.0

# Nothing is scraped: what is in it was written by the test.
NOTHING_SCRAPED = "global: {}\n"


def program() -> str | None:
    """The path of Prometheus, None where there is none."""
    return os.environ.get(VARIABLE) or shutil.which("prometheus")


class PrometheusServer:
    """One Prometheus with its data in `folder`. It keeps its port and its data over `stop` and `start`.

    `config` is its configuration file's text. Samples may be written to it at any time of the last years, but
    each series only forwards. Use as a context manager.
    """

    def __init__(
        self, folder: Path, config: str = NOTHING_SCRAPED, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.config = config
        self.port = ports.reserve(1)[0]
        self._environment = dict(os.environ) | dict(environment or {})
        self._process: processes.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "prometheus.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, "Prometheus isn't running"
        return self._process.pid

    def start(self) -> None:
        """Returns when queries are answered."""
        found = program()
        assert found is not None, CURE
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "prometheus.yaml"
        config.write_text(self.config)
        command = [
            found,
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            "--storage.tsdb.retention.time=3650d",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
        ]
        self._process = processes.start("prometheus", command, self.log, self._environment)
        self._await_ready()

    def stop(self) -> None:
        if self._process is not None:
            self.resume()
            processes.stop([self._process])
            self._process = None

    def pause(self) -> None:
        """It still takes connections, and answers none of them."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None and self._process.alive():
            os.kill(self.pid, signal.SIGCONT)

    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(self.pid)], capture_output=True, check=True)
        return int(shown.stdout) * 1024

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_SECONDS
        while not self._ready():
            if not self._process.alive() or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Prometheus doesn't start:\n{processes.tail(self.log)}")
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> PrometheusServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
