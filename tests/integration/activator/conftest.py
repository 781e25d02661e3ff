"""Fixtures: the loop that the activator is run on, engines, and an activator that ends with its test."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from tests.integration.activator.harness import HOST, MODEL, EngineProcess, Place, free_port
from wattkeeper.activator.settings import ActivatorSettings
from wattkeeper.core.activation import Address, Route

StartEngine = Callable[..., Awaitable[EngineProcess]]
PlaceOf = Callable[..., Awaitable[Place]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the activator runs on."""
    uvloop = importlib.import_module("uvloop")
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def start_engine() -> AsyncIterator[StartEngine]:
    """Start an engine on a port, or any free one."""
    started: list[EngineProcess] = []

    async def start(port: int | None = None) -> EngineProcess:
        started.append(await EngineProcess.start(port))
        return started[-1]

    yield start
    for engine in started:
        engine.kill()
        await engine.process.wait()


@pytest.fixture
async def place_of() -> AsyncIterator[PlaceOf]:
    """Start an activator with one model; settings by `settings`, the rest changes its route."""
    places: list[Place] = []

    async def make(settings: dict[str, Any] | None = None, **changes: Any) -> Place:
        values = {"listen_host": HOST, "demand_interval_seconds": 0.05} | (settings or {})
        place = Place(Route(MODEL, free_port(), **changes), ActivatorSettings(**values))
        places.append(place)
        await place.activator.start()
        assert place.activator.ready
        return place

    yield make
    for place in places:
        await place.activator.stop()


@dataclass
class Listener:
    """A pod that takes what it is sent and says nothing, or `answer` when a request's head is there."""

    address: Address
    got: list[bytearray] = field(default_factory=list)
    answer: bytes = b""


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener(Address(HOST, free_port()))

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener.got.append(got := bytearray())
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                got += data
                if listener.answer and b"\r\n\r\n" in got:
                    writer.write(listener.answer)
                    await writer.drain()
                    break
        writer.close()

    server = await asyncio.start_server(take, HOST, listener.address.port)
    yield listener
    server.close()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield session
