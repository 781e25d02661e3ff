"""An activator in this process, engines in their own, and a leader that writes down what it hears."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from wattkeeper.activator.app import Activator
from wattkeeper.activator.settings import ActivatorSettings
from wattkeeper.core.activation import Address, ModelKey, Route, RoutingTable, Standing

HOST = "127.0.0.1"
MODEL = ModelKey("team-a", "chat")
#: Until whatever is waited for must have happened. Seconds.
PATIENCE = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


async def eventually(holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds; fails after a long time."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for knows of no event
            await asyncio.sleep(0.005)


@dataclass
class RecordingLeader:
    """What the operator would hear; `on_demand` is called as it would act."""

    demands: list[tuple[ModelKey, int]] = field(default_factory=list)
    reports: list[Sequence[Standing]] = field(default_factory=list)
    on_demand: Callable[[ModelKey, int], None] = lambda model, epoch: None
    unreachable: bool = False

    async def demand(self, model: ModelKey, epoch: int) -> None:
        if self.unreachable:
            raise ConnectionError("the leader isn't there")
        self.demands.append((model, epoch))
        self.on_demand(model, epoch)

    async def report(self, standings: Sequence[Standing]) -> None:
        if self.unreachable:
            raise ConnectionError("the leader isn't there")
        self.reports.append(standings)


class Place:
    """An activator with one model."""

    def __init__(self, route: Route, settings: ActivatorSettings) -> None:
        self.leader = RecordingLeader()
        self.log: list[str] = []
        self.activator = Activator(settings, self.leader, access_log=self.log.append)
        self.route = route
        self.activator.swap(RoutingTable.of([route]))

    @property
    def port(self) -> int:
        return self.route.port

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def change(self, **changes: Any) -> None:
        """Swap in a table in which the model's route is changed so."""
        self.route = replace(self.route, **changes)
        self.activator.swap(RoutingTable.of([self.route]))

    @property
    def standing(self) -> Standing:
        (standing,) = self.activator.standings()
        return standing

    def metric(self, name: str, **labels: str) -> float:
        labels = {"namespace": MODEL.namespace, "model": MODEL.name} | labels
        value = self.activator.metrics.registry.get_sample_value(f"wattkeeper_activator_{name}", labels)
        assert value is not None, f"no sample {name} {labels}"
        return value


@dataclass
class EngineProcess:
    port: int
    process: asyncio.subprocess.Process

    @property
    def address(self) -> Address:
        return Address(HOST, self.port)

    @classmethod
    async def start(cls, port: int | None = None) -> EngineProcess:
        """Returns when it listens."""
        engine = await cls.load(port)
        await engine.listen()
        return engine

    @classmethod
    async def load(cls, port: int | None = None) -> EngineProcess:
        """A process that listens when it is told to."""
        port = port or free_port()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.activator.engine",
            str(port),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(port, process)

    async def listen(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"listen\n")
        async with asyncio.timeout(PATIENCE):
            line = await self.process.stdout.readline()
        assert line == b"listening\n", f"the engine didn't start: {line!r}"

    async def counts(self) -> dict[str, dict[str, Any]]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{HOST}:{self.port}/counts") as got,
        ):
            counts: dict[str, dict[str, Any]] = await got.json()
            return counts

    async def end(self) -> dict[str, dict[str, Any]]:
        """As kubelet does: SIGTERM, in-flight requests are finished. Returns its last counts."""
        assert self.process.stdout is not None
        with suppress(ProcessLookupError):
            self.process.terminate()
        async with asyncio.timeout(PATIENCE):
            last = await self.process.stdout.read()
            await self.process.wait()
        counts: dict[str, dict[str, Any]] = json.loads(last)
        return counts

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()


async def raw(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """Send bytes, `pause` seconds apart, and return all that comes until the other side closes."""
    reader, writer = await asyncio.open_connection(HOST, port)
    answer = asyncio.create_task(reader.read())
    try:
        for part in parts:
            if answer.done():
                break
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        async with asyncio.timeout(PATIENCE):
            return await answer
    except ConnectionError:
        return answer.result() if answer.done() and not answer.exception() else b""
    finally:
        answer.cancel()
        writer.close()


def status_of(answer: bytes) -> int:
    """The status of the first answer in some bytes."""
    assert answer.startswith(b"HTTP/1.1 "), f"not an answer: {answer[:100]!r}"
    return int(answer[9:12])


def error_of(answer: bytes) -> dict[str, Any]:
    """The OpenAI error in an answer."""
    error: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    return error


def memory_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
