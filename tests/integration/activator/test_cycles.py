"""Park and wake, again and again, under clients that never stop: nothing lost, nothing twice, no 5xx."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.integration.activator.cluster import Cluster
from tests.integration.activator.engine import KEEP_ALIVE_SECONDS

CLIENTS = 4
_SEED = int(os.environ.get("WATTKEEPER_SEED", "20"))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster(_SEED, activators=2)
    await cluster.start()
    yield cluster
    cluster.kill()


class Client:
    """Sends bursts of requests of all kinds with pauses between, and checks every answer."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._rng = random.Random(f"{_SEED} {name}")
        self.sent: list[str] = []

    async def run(self, busy: asyncio.Event, stop: asyncio.Event) -> None:
        # An idle connection is left before its server leaves it.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS / 3)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=60)
        ) as session:
            while not stop.is_set():
                await busy.wait()
                await asyncio.sleep(self._rng.choice([0.0, 0.1]) * self._rng.random())
                burst = self._rng.choice([1, 1, 2, 8])
                await asyncio.gather(*(self._ask(session) for _ in range(burst)))

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        name = f"{self._name}-{len(self.sent)}"
        self.sent.append(name)
        stream = self._rng.random() < 0.4
        asked = {"id": name, "stream": stream, "n": self._rng.randrange(1, 30), "interval": 0.01}
        asked |= {"seconds": self._rng.choice([0, 0.01, 0.1]), "prompt": "x" * self._rng.choice([1, 200_000])}
        body = json.dumps(asked).encode()
        digest = hashlib.sha256(body).hexdigest()
        url = f"http://{self._cluster.service.route()}/v1/chat/completions"
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            text = await answer.text()
            assert answer.status == 200, f"{name}: {answer.status} {text[:300]}"
        events = text.split("\n\n") if stream else [text]
        if stream:
            assert events[-2:] == ["data: [DONE]", ""], f"{name}: its stream was cut"
            assert len(events) == asked["n"] + 2
        first = json.loads(events[0].removeprefix("data: "))
        assert (first["id"], first["sha256"]) == (name, digest)


async def pace(busy: asyncio.Event, stop: asyncio.Event) -> None:
    """Traffic, and silence of about a parking's length, so that every phase of it meets requests."""
    rng = random.Random(_SEED)
    while not stop.is_set():
        await asyncio.sleep(rng.uniform(0.0, 2.5))
        busy.set()
        await asyncio.sleep(rng.choice([0.0, 0.1, 0.5]) * rng.random())
        busy.clear()
    busy.set()


async def park_and_wake(cluster: Cluster, cycles: int) -> None:
    async with asyncio.timeout(60 + 10 * cycles):
        await _park_and_wake(cluster, cycles)


async def _park_and_wake(cluster: Cluster, cycles: int) -> None:
    busy, stop = asyncio.Event(), asyncio.Event()
    clients = [Client(cluster, f"c{i}") for i in range(CLIENTS)]
    operating = asyncio.create_task(cluster.run())
    await cluster.begin_parking()
    running = [asyncio.create_task(client.run(busy, stop)) for client in clients]
    running.append(asyncio.create_task(pace(busy, stop)))
    while cluster.parked < cycles:
        await asyncio.sleep(0.05)
        for task in (*running, operating):
            if task.done():
                task.result()
    stop.set()
    await asyncio.gather(*running)
    operating.cancel()
    await asyncio.gather(operating, return_exceptions=True)
    await cluster.end()

    sent = [name for client in clients for name in client.sent]
    print(f"seed {_SEED}: {len(sent)} requests, {cluster.parked} parked, {dict(cluster.reasons)}")
    assert set(cluster.begun) == set(sent), "lost, or never sent"
    assert set(cluster.begun.values()) == {1}, "begun twice"
    assert cluster.finished == cluster.begun, "begun and not finished"
    assert cluster.scale_ups <= cluster.parked + 1, "more than one wake for a parking"


@pytest.mark.timeout(400)
async def test_25_cycles_of_parking_lose_nothing(cluster) -> None:
    await park_and_wake(cluster, cycles=25)


@pytest.mark.full
@pytest.mark.timeout(5400)
async def test_500_cycles_of_parking_lose_nothing(cluster) -> None:
    await park_and_wake(cluster, cycles=500)


async def test_a_stream_is_never_cut_however_often_parking_is_tried(cluster) -> None:
    """One stream of many times the time after which an idle model is parked."""
    operating = asyncio.create_task(cluster.run())
    await cluster.begin_parking()
    asked = {"id": "long", "stream": True, "n": 400, "interval": 0.02}
    async with aiohttp.ClientSession() as session:
        url = f"http://{cluster.service.route()}/v1/chat/completions"
        async with session.post(url, json=asked) as answer:
            text = await answer.text()
    assert text.count("data: {") == 400
    assert text.endswith("data: [DONE]\n\n")
    assert cluster.parked == 0
    operating.cancel()
    await asyncio.gather(operating, return_exceptions=True)
    await cluster.end()
