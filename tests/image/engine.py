"""A container engine for the tests: the user's own where one answers, else a dockerd that is ours alone.

Ours keeps its images in the user's cache, everything else in a folder that goes away with it. It touches
neither the machine's bridges nor its firewall (``--bridge=none``): builds use the host's network, containers
none. It needs root and Debian's packages (``scripts/system-packages image``), and is ended, by process id,
with the tests.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.locks import exclusive
from tests.cluster.paths import cache_directory

READY_SECONDS = 60.0
STOP_SECONDS = 30.0


class EngineError(Exception):
    """There is no container engine, or it refused. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A docker command line and the daemon that it talks to."""

    docker: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, *arguments: str, timeout_seconds: float = 540, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs ``docker ARGUMENTS``; a failure raises with what it wrote."""
        result = subprocess.run(
            [self.docker, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        if check and result.returncode != 0:
            command = " ".join(arguments)
            raise EngineError(
                f"docker {command} ended with {result.returncode}:\n{result.stdout}{result.stderr}"
            )
        return result

    def answers(self) -> bool:
        return self.run("version", timeout_seconds=20, check=False).returncode == 0

    def saved_bytes(self, image: str) -> tuple[int, int]:
        """The image as ``docker save`` writes it: its bytes plain, and as gzip, as a registry holds it."""
        with tempfile.TemporaryDirectory(prefix="wk-save-") as name:
            archive = Path(name) / "image.tar"
            self.run("save", f"--output={archive}", image)
            packed = subprocess.run(["gzip", "-6", "--stdout", str(archive)], capture_output=True, check=True)
            return archive.stat().st_size, len(packed.stdout)


@contextmanager
def engine() -> Iterator[Engine]:
    """The engine that answers (``DOCKER_HOST`` or the default socket), else one for the block alone."""
    docker = shutil.which("docker")
    if docker is not None:
        own = Engine(docker, {"DOCKER_BUILDKIT": "1"})
        if own.answers():
            yield own
            return
    with _own_daemon() as started:
        yield started


@contextmanager
def _own_daemon() -> Iterator[Engine]:
    dockerd, docker = _programs()
    data = cache_directory() / "docker"
    data.mkdir(parents=True, exist_ok=True)
    # Two daemons must not share a data root: a second test run waits for the first.
    with (
        exclusive(cache_directory() / "docker.lock", print),
        tempfile.TemporaryDirectory(prefix="wk-docker-") as name,
    ):
        folder = Path(name)
        (folder / "daemon.json").write_text("{}")  # not the machine's own /etc/docker/daemon.json
        socket = f"unix://{folder}/sock"
        log = folder / "dockerd.log"
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                [
                    dockerd,
                    f"--config-file={folder}/daemon.json",
                    f"--data-root={data}",
                    f"--exec-root={folder}/exec",
                    f"--pidfile={folder}/pid",
                    f"--host={socket}",
                    "--bridge=none",
                    "--iptables=false",
                    "--ip6tables=false",
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt at the terminal ends the tests, and they end it
            )
        try:
            started = Engine(docker, {"DOCKER_HOST": socket, "DOCKER_BUILDKIT": "1"})
            _wait_until_it_answers(started, daemon, log)
            yield started
        finally:
            _end(daemon)


def _programs() -> tuple[str, str]:
    """dockerd and the docker command of the same package.

    Another docker found first on PATH may be newer and miss the plugin without which it can't build.
    """
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"])
    dockerd = shutil.which("dockerd", path=search)
    packaged = shutil.which("docker", path="/usr/bin") or shutil.which("docker")
    if dockerd is None or packaged is None:
        raise EngineError(
            "no container engine: no docker daemon answers and dockerd isn't installed. "
            "Run scripts/system-packages image (as root, on Debian), or start Docker"
        )
    if os.geteuid() != 0:
        raise EngineError(
            "no docker daemon answers, and starting one needs root: start Docker, or run this as root"
        )
    return dockerd, packaged


def _wait_until_it_answers(started: Engine, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not started.answers():
        if daemon.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise EngineError(f"dockerd did not start. The end of its log:\n{tail}")
        time.sleep(0.2)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """Asks it to stop, which ends its containers and its containerd too; insists if it doesn't."""
    daemon.terminate()
    try:
        daemon.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
