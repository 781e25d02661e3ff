"""A container engine for the tests: the user's own where one answers, else a dockerd that is ours alone.

Ours keeps its images in the user's cache, everything else in a folder that goes away with it. It touches
neither the machine's bridges nor its firewall (``--bridge=none``): builds use the host's network, containers
none. It needs root and Debian's packages (``scripts/system-packages image``), and is ended, by process id,
with the tests.
"""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

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

    def layers(self, image: str) -> list[tuple[int, int]]:
        """Each layer, the base's first: its bytes plain, and compressed as a registry holds them."""
        with tempfile.TemporaryDirectory(prefix="wk-save-") as name:
            archive = Path(name) / "image.tar"
            self.run("save", f"--output={archive}", image)
            with tarfile.open(archive) as saved:
                (manifest,) = json.load(_member(saved, "manifest.json"))
                return [_sizes(_member(saved, layer)) for layer in manifest["Layers"]]


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """A file of a saved image; layers that are equal are stored once, as links."""
    file = archive.extractfile(name)
    assert file is not None, name
    return file


def _sizes(layer: IO[bytes]) -> tuple[int, int]:
    plain, compressed, packer = 0, 0, zlib.compressobj(6)
    while block := layer.read(1 << 20):
        plain += len(block)
        compressed += len(packer.compress(block))
    return plain, compressed + len(packer.flush())


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
            _unmount_below(folder)


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


def _unmount_below(folder: Path) -> None:
    """A container on the host's network leaves a mount of its name space behind, which keeps the folder."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted(points, reverse=True):
        if point.startswith(f"{folder}/"):
            subprocess.run(["umount", point], check=True)
