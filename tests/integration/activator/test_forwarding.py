"""What passes through the activator while a pod is there: everything, both ways, as it came."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from itertools import pairwise

import aiohttp
import pytest

from tests.integration.activator.harness import HOST, eventually, memory_bytes, raw, status_of
from wattkeeper.core.activation import ActivationPath, Address
from wattkeeper.core.parking_states import ParkState


async def test_a_request_and_its_answer_pass_unchanged(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    body = json.dumps({"id": "1", "prompt": "é" * 1000}).encode()
    headers = {
        "Host": "models.example.com",
        "X-Forwarded-For": "10.9.8.7",
        "X-Custom": "a",
        "Authorization": "b",
    }
    async with client.post(f"{place.url}/v1/chat/completions?x=%2F", data=body, headers=headers) as answer:
        assert answer.status == 200
        assert (await answer.json())["sha256"] == hashlib.sha256(body).hexdigest()
        assert answer.headers["Connection"] == "close"
        assert "X-Wattkeeper-Cold-Start-Seconds" not in answer.headers
    seen = {name.lower(): value for name, value in (await engine.counts())["headers"]["1"]}
    assert seen["host"] == "models.example.com"
    assert seen["x-forwarded-for"] == "10.9.8.7, 127.0.0.1"
    assert seen["x-forwarded-proto"] == "http"
    assert seen["x-forwarded-host"] == "models.example.com"
    assert seen["via"] == "1.1 wattkeeper-team-a.chat"
    assert seen["x-custom"] == "a"
    assert seen["authorization"] == "b"
    assert place.leader.demands == []
    assert place.metric("requests_total", outcome="forwarded") == 1
    assert place.standing.in_flight == 0
    assert place.standing.requests_seen == 1


async def test_in_the_path_always_clients_keep_their_connection(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,), path=ActivationPath.ALWAYS)
    request = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    reader, writer = await asyncio.open_connection(HOST, place.port)
    for _ in range(3):
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert b"Connection: close" not in head
    writer.close()
    place.change(path=ActivationPath.ON_DEMAND)
    assert b"Connection: close" in await raw(place.port, request)


@pytest.mark.parametrize("state", [ParkState.DRAINING, ParkState.WITHDRAWN])
async def test_while_draining_pods_are_forwarded_to(state, start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,), state=state, epoch=1)
    await eventually(lambda: place.leader.reports)
    reports = len(place.leader.reports)
    async with client.post(f"{place.url}/v1/chat/completions", json={"id": "1"}) as answer:
        assert answer.status == 200
    # The leader hears at once that the model isn't unused.
    await eventually(lambda: len(place.leader.reports) > reports)
    assert place.leader.reports[-1][0].requests_seen == 1


async def test_events_arrive_while_the_stream_goes_on(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    asked = {"id": "s", "stream": True, "n": 5, "interval": 0.2}
    times = []
    async with client.post(f"{place.url}/v1/chat/completions", json=asked) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        async for line in answer.content:
            if line.startswith(b"data: {"):
                times.append(asyncio.get_running_loop().time())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == 5
    assert max(gaps) > 0.1, "the events came all at once"
    assert line == b"\n"


async def test_a_body_of_unknown_length_is_streamed_both_ways_at_once(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    reader, writer = await asyncio.open_connection(HOST, place.port)
    writer.write(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
    got = await asyncio.wait_for(reader.readuntil(b"first\r\n"), 10)  # before the request has ended
    assert b"Transfer-Encoding: chunked" in got
    writer.write(b"6\r\nsecond\r\n0\r\n\r\n")
    assert await asyncio.wait_for(reader.read(), 10) == b"6\r\nsecond\r\n0\r\n\r\n"
    writer.close()


async def test_a_large_body_and_a_large_answer_arrive_whole(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    body = os.urandom(20 * 1024**2)
    async with client.post(f"{place.url}/echo", data=body) as answer:
        assert hashlib.sha256(await answer.read()).digest() == hashlib.sha256(body).digest()


async def test_a_slow_reader_holds_the_pod_back(start_engine, place_of) -> None:
    """Back-pressure: what the client doesn't take isn't gathered here."""
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    reader, writer = await asyncio.open_connection(HOST, place.port, limit=2**16)
    writer.write(b"GET /big?mib=200 HTTP/1.1\r\nHost: a\r\n\r\n")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    before = memory_bytes()
    await asyncio.sleep(1.0)
    assert memory_bytes() - before < 30 * 1024**2
    size = 0
    while chunk := await asyncio.wait_for(reader.read(2**20), 10):
        size += len(chunk)
    assert size > 200 * 1024**2
    writer.close()


async def test_a_slow_pod_holds_the_client_back(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    megabytes = 64

    async def body() -> AsyncIterator[bytes]:
        for _ in range(megabytes):
            yield b"y" * 1024**2

    before = memory_bytes()
    sending = asyncio.create_task(
        client.post(f"{place.url}/digest?bytes_per_second={100 * 1024**2}", data=body())
    )
    peak = 0
    while not sending.done():
        peak = max(peak, memory_bytes())
        await asyncio.sleep(0.01)
    answer = await sending
    assert (await answer.json())["bytes"] == megabytes * 1024**2
    assert peak - before < 30 * 1024**2


async def test_a_client_that_leaves_is_not_served_on(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    body = json.dumps({"id": "left", "stream": True, "n": 1000, "interval": 0.05}).encode()
    reader, writer = await asyncio.open_connection(HOST, place.port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    await asyncio.wait_for(reader.readuntil(b"data: "), 10)
    assert place.standing.in_flight == 1
    writer.close()
    await eventually(lambda: place.standing.in_flight == 0)
    assert (await engine.end())["cancelled"] == {"left": 1}
    assert place.metric("requests_total", outcome="abandoned") == 1


async def test_a_websocket_passes_both_ways(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    async with client.ws_connect(f"{place.url}/ws", compress=15) as socket:
        for message in ("a", "b" * 100_000, "é"):
            await socket.send_str(message)
            assert (await socket.receive_str(timeout=10)) == message
        await socket.send_bytes(b"\x00\xff" * 1000)
        assert (await socket.receive_bytes(timeout=10)) == b"\x00\xff" * 1000
        assert place.standing.in_flight == 1
    assert socket.close_code == 1000
    await eventually(lambda: place.standing.in_flight == 0)
    assert place.metric("requests_total", outcome="forwarded") == 1


async def test_a_websocket_ends_when_its_pod_dies(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    async with client.ws_connect(f"{place.url}/ws") as socket:
        await socket.send_str("a")
        await socket.receive_str(timeout=10)
        engine.kill()
        message = await socket.receive(timeout=10)
        assert message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.ERROR)
    await eventually(lambda: place.standing.in_flight == 0)


async def test_the_body_is_asked_for_when_the_client_waits_for_that(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    reader, writer = await asyncio.open_connection(HOST, place.port)
    writer.write(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert b"body" in await asyncio.wait_for(reader.read(), 10)
    writer.close()


async def test_java_clients_that_ask_for_h2c_are_served_over_http_1(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    answer = await raw(
        place.port,
        b"POST /digest HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 5\r\nHost: a\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\nUpgrade: h2c\r\n\r\nhello",
    )
    assert status_of(answer) == 200
    assert hashlib.sha256(b"hello").hexdigest().encode() in answer


async def test_http_1_0_gets_an_answer_without_chunks(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    answer = await raw(place.port, b"GET /big?mib=1 HTTP/1.0\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"x" * 1024**2


async def test_requests_are_spread_over_pods(start_engine, place_of, client) -> None:
    one, two = await start_engine(), await start_engine()
    place = await place_of(targets=(one.address, two.address))
    asked = [{"id": str(i), "seconds": 0.2} for i in range(20)]
    await asyncio.gather(*(client.post(f"{place.url}/v1/chat/completions", json=a) for a in asked))
    begun = [len((await engine.counts())["begun"]) for engine in (one, two)]
    assert begun == [10, 10]


async def test_a_pod_that_refuses_connections_costs_no_request(start_engine, place_of, client) -> None:
    engine = await start_engine()
    dead = await start_engine()
    await dead.end()
    place = await place_of(targets=(dead.address, engine.address))
    for i in range(10):
        async with client.post(f"{place.url}/v1/chat/completions", json={"id": str(i)}) as answer:
            assert answer.status == 200
    assert place.metric("connect_failures_total") >= 1
    assert set((await engine.counts())["begun"].values()) == {1}


async def test_a_pod_that_dies_before_its_answer_gives_a_clean_error(start_engine, place_of) -> None:
    engine, other = await start_engine(), await start_engine()
    place = await place_of(targets=(engine.address,))
    answer = await raw(place.port, b"POST /die HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
    assert status_of(answer) == 502
    assert b'"code": "pod_failed"' in answer
    # The request may have been begun: it isn't tried on another pod.
    assert (await other.counts())["begun"] == {}
    assert place.metric("requests_total", outcome="failed") == 1


async def test_a_pod_that_dies_in_its_answer_ends_the_client_s_without_its_last_chunk(
    start_engine, place_of, client
) -> None:
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    with pytest.raises(aiohttp.ClientPayloadError):
        async with client.get(f"{place.url}/die?begun=1") as answer:
            assert answer.status == 200
            await asyncio.wait_for(answer.read(), 10)
    assert place.metric("requests_total", outcome="failed") == 1
    assert place.standing.in_flight == 0


async def test_to_http_1_0_a_broken_answer_is_a_reset(start_engine, place_of) -> None:
    engine = await start_engine()
    await place_of(targets=(engine.address,))
    place = await place_of(targets=(engine.address,))
    reader, writer = await asyncio.open_connection(HOST, place.port)
    writer.write(b"GET /die?begun=1 HTTP/1.0\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 10)
    writer.close()


async def test_nothing_listens_at_any_pod(place_of) -> None:
    """Ready by the table, but none can be reached: held and demanded, told at the deadline."""
    place = await place_of(targets=(Address(HOST, 9),))
    place.change(limits=type(place.route.limits)(timeout_seconds=0.5))
    answer = await raw(place.port, b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert status_of(answer) == 503
    assert place.leader.demands
