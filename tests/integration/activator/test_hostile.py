"""What isn't sound HTTP, or comes too slowly, or is too much: a 4xx at once, and bounded memory."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from tests.integration.activator.harness import (
    HOST,
    error_of,
    eventually,
    memory_bytes,
    raw,
    status_of,
)
from wattkeeper.core.activation import QueueLimits
from wattkeeper.core.parking_states import ParkState

POST = b"POST /digest HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
MALFORMED = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "empty target": b"GET  HTTP/1.1\r\nHost: a\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "control character in the target": b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
    "unknown method": b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: a\n\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "a null in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a target with credentials": b"GET http://u:p@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "both lengths": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths, the other way": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "the same length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": POST + b"Content-Length: +5\r\n\r\nhello",
    "an endless length": POST + b"Content-Length: 99999999999999999999\r\n\r\nhello",
    "chunked by half": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked behind a tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk's size in C": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk's size with a sign": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "a chunk's size that overflows": CHUNKED + b"FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"5\r\nhelloX\r\n0\r\n\r\n",
    "a chunk that ends with a line feed": CHUNKED + b"5\nhello\n0\n\n",
}
REFUSED = {
    "a coding that isn't known": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "HTTP/2 in cleartext": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/0.9": (505, b"GET / HTTP/0.9\r\n\r\n"),
    "a tunnel to anywhere": (405, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "TRACE": (405, b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a loop": (
        508,
        b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 x, 1.1 wattkeeper-team-a.chat\r\nConnection: close\r\n\r\n",
    ),
    "a long target": (431, b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a large header": (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 5000 + b"\r\n\r\n"),
    "many headers": (431, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 50 + b"\r\n"),
    "a header that doesn't end": (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 9000),
    "a name that doesn't end": (431, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a" * 9000),
    "empty lines without end": (431, b"\r\n" * 5000),
    "trailers without end": (431, CHUNKED + b"0\r\n" + b"X: a\r\n" * 50),
    "a large body, announced": (413, POST + b"Content-Length: 200000\r\n\r\n"),
    "a large body, in chunks": (413, CHUNKED + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 5),
}
ENDLESS = {
    "a target": b"GET /aaa",
    "a header": b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
    "a chunk's extension": CHUNKED + b"5;a=",
    "a trailer": CHUNKED + b"5\r\nhello\r\n0\r\nX: ",
}
SMALL = {"max_head_bytes": 4096, "max_header_fields": 20, "max_body_bytes": 100_000}


@pytest.mark.parametrize("state", [ParkState.AWAKE, ParkState.PARKED])
@pytest.mark.parametrize("shape", MALFORMED)
async def test_malformed_requests_get_400_at_once(shape, state, listener, place_of) -> None:
    place = await place_of(state=state, targets=(listener.address,) if state is ParkState.AWAKE else ())
    answer = await raw(place.port, MALFORMED[shape])
    assert status_of(answer) == 400, answer
    assert error_of(answer)["code"] == "malformed"
    assert answer.count(b"HTTP/1.1 ") == 1, "what follows a refused request is not another one"
    assert place.metric("rejected_requests_total", reason="malformed") == 1
    await eventually(lambda: place.standing.in_flight == 0)
    # Of a request that becomes malformed in its body the pod may see the start, and never an end.
    assert not any(got.endswith(b"0\r\n\r\n") or b"hello" in got for got in listener.got)


@pytest.mark.parametrize("pause", [0.0, 0.02])
@pytest.mark.parametrize("shape", REFUSED)
async def test_what_is_too_much_or_not_offered_is_refused(shape, pause, place_of) -> None:
    """In one piece, and in many."""
    place = await place_of(SMALL, state=ParkState.PARKED)
    status, sent = REFUSED[shape]
    size = max(1, len(sent) // 5) if pause else len(sent)
    answer = await raw(place.port, *[sent[i : i + size] for i in range(0, len(sent), size)], pause=pause)
    assert status_of(answer) == status, answer
    assert b"Connection: close" in answer
    await eventually(lambda: place.standing.held.size_bytes == 0)


@pytest.mark.parametrize("shape", ENDLESS)
async def test_what_does_not_end_is_refused_before_it_fills_the_memory(shape, place_of) -> None:
    place = await place_of(SMALL, state=ParkState.PARKED)
    answer = await raw(place.port, ENDLESS[shape], *[b"a" * 1000] * 100, pause=0.001)
    assert status_of(answer) == 431


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([b"GET / HTTP/1.1\r\n", b"Host: a\r\n", *[b"X: y\r\n"] * 30], "slow_request"),
        ([POST + b"Content-Length: 1000\r\n\r\n", *[b"x"] * 30], "slow_request"),
        ([CHUNKED, *[b"1\r\nx\r\n"] * 30], "slow_request"),
    ],
    ids=["head", "body", "chunks"],
)
@pytest.mark.parametrize("state", [ParkState.AWAKE, ParkState.PARKED])
async def test_who_drips_is_told_408(state, parts, reason, listener, place_of) -> None:
    settings = {"head_timeout_seconds": 0.5, "body_grace_seconds": 0.5}
    targets = (listener.address,) if state is ParkState.AWAKE else ()
    place = await place_of(settings, state=state, targets=targets)
    answer = await raw(place.port, *parts, pause=0.1)
    assert status_of(answer) == 408
    assert place.metric("rejected_requests_total", reason=reason) == 1
    await eventually(lambda: place.standing.in_flight == place.standing.held.requests == 0)


async def test_who_says_nothing_is_closed(place_of) -> None:
    place = await place_of({"keep_alive_seconds": 0.3}, state=ParkState.PARKED)
    assert await raw(place.port) == b""
    assert await raw(place.port, b"\r\n") == b""


async def test_who_takes_nothing_of_its_answer_is_let_go(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of({"stall_seconds": 0.5}, targets=(engine.address,))
    _, writer = await asyncio.open_connection(HOST, place.port, limit=1024)
    writer.write(b"GET /big?mib=50 HTTP/1.1\r\nHost: a\r\n\r\n")
    await eventually(lambda: place.standing.in_flight == 1)
    await eventually(lambda: place.standing.in_flight == 0)
    writer.close()


async def test_one_connection_too_many_is_told(place_of) -> None:
    place = await place_of({"max_connections": 3}, state=ParkState.PARKED)
    writers = [(await asyncio.open_connection(HOST, place.port))[1] for _ in range(3)]
    answer = await raw(place.port)
    assert status_of(answer) == 503
    assert error_of(answer)["code"] == "too_many_connections"
    for writer in writers:
        writer.close()
    registry = place.activator.metrics.registry
    await eventually(lambda: registry.get_sample_value("wattkeeper_activator_connections") == 0)
    answer = await raw(place.port, b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert status_of(answer) == 200


@pytest.mark.parametrize("behind", [b"GET /counts HTTP/1.1\r\nHost: a\r\n\r\n", b"\x00garbage", b"\r\n\r\n"])
async def test_what_comes_behind_a_whole_request_does_not_harm_it(behind, start_engine, place_of) -> None:
    """A second request is to be sent again, on another connection; it isn't begun."""
    engine = await start_engine()
    place = await place_of(targets=(engine.address,))
    answer = await raw(place.port, POST + b"Content-Length: 2\r\n\r\n{}" + behind)
    assert status_of(answer) == 200
    assert answer.count(b"HTTP/1.1 ") == 1
    assert place.standing.requests_seen == 1


async def test_a_flood_of_hostile_connections_takes_bounded_memory(start_engine, place_of) -> None:
    """Random bytes, mutated requests, drips and large bodies, a few hundred at a time, seeded."""
    engine = await start_engine()
    settings = {"head_timeout_seconds": 1.0, "body_grace_seconds": 1.0, "max_held_bytes": 4 * 1024**2}
    place = await place_of(
        settings, state=ParkState.PARKED, limits=QueueLimits(timeout_seconds=2, max_bytes=2 * 1024**2)
    )
    rng = random.Random(20)
    sound = POST + b"Content-Length: 5\r\n\r\nhello"
    shapes = [*MALFORMED.values(), *(shape for _, shape in REFUSED.values()), sound]

    def hostile() -> bytes:
        kind = rng.randrange(4)
        if kind == 0:
            return rng.randbytes(rng.randrange(1, 2000))
        if kind == 1:
            return POST + b"Content-Length: 1000000\r\n\r\n" + rng.randbytes(300_000)
        mutated = bytearray(rng.choice(shapes))
        for _ in range(rng.randrange(1, 4)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        return bytes(mutated)

    async def attack() -> None:
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(5):
                await raw(place.port, hostile())

    await asyncio.gather(*(attack() for _ in range(300)))  # what is allocated once
    before = memory_bytes()
    peak = 0
    for _ in range(6):
        attacks = asyncio.gather(*(attack() for _ in range(300)))
        while not attacks.done():
            peak = max(peak, memory_bytes())
            await asyncio.sleep(0.01)
        await attacks
    # The test's own clients hold as many bytes as they send: 300 times up to 300 kB.
    assert peak - before < 150 * 1024**2
    await eventually(lambda: place.standing.held.size_bytes == 0)
    assert place.standing.in_flight == 0
    place.change(state=ParkState.AWAKE, targets=(engine.address,))
    answer = await raw(place.port, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    assert status_of(answer) == 200, "it still serves"
