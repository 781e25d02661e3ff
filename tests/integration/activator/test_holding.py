"""What happens to requests while no pod is there: held, woken for once, forwarded; or told why not."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from tests.integration.activator.harness import HOST, MODEL, error_of, eventually, raw, status_of
from wattkeeper.core.activation import ColdStarts, Obstacle, QueueLimits
from wattkeeper.core.parking_states import ActivatorMode, ParkState

GET = b"GET /v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


async def test_200_at_once_wait_wake_the_model_once_and_are_all_answered(
    start_engine, place_of, client
) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.PARKED, epoch=7)
    wakes = 0

    def on_demand(model, epoch) -> None:
        nonlocal wakes
        assert (model, epoch) == (MODEL, 7)
        if place.route.state is ParkState.PARKED:
            wakes += 1
            place.change(state=ParkState.WAKING)

    place.leader.on_demand = on_demand
    asked = [{"id": str(i), "prompt": "x" * i * 10, "stream": i % 2 == 0, "n": 3} for i in range(200)]

    async def ask(body) -> str:
        async with client.post(f"{place.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            assert float(answer.headers["X-Wattkeeper-Cold-Start-Seconds"]) > 0
            assert answer.headers["Connection"] == "close"
            text = await answer.text()
            first = text.splitlines()[0].removeprefix("data: ")
            assert text.endswith("data: [DONE]\n\n") == body["stream"]
            return json.loads(first)["id"]

    asking = [asyncio.create_task(ask(body)) for body in asked]
    await eventually(lambda: place.standing.held.requests == 200)
    assert place.standing.in_flight == 0
    place.change(targets=(engine.address,))
    assert await asyncio.gather(*asking) == [body["id"] for body in asked]
    assert wakes == 1
    counts = await engine.counts()
    assert set(counts["begun"].values()) == {1}
    assert set(counts["finished"]) == {body["id"] for body in asked}
    assert place.standing.held.size_bytes == place.standing.held.requests == 0
    assert place.metric("cold_start_seconds_count") == 1
    assert place.metric("held_seconds_count") == 200


async def test_the_leader_is_told_at_once_and_again_until_a_pod_is_there(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.PARKED, epoch=3)
    answer = asyncio.create_task(raw(place.port, GET))
    await eventually(lambda: len(place.leader.demands) >= 3)
    place.change(epoch=4, state=ParkState.WAKING)
    await eventually(lambda: (MODEL, 4) in place.leader.demands)
    place.change(targets=(engine.address,))
    assert status_of(await answer) == 404  # the engine's own
    told = len(place.leader.demands)
    await asyncio.sleep(0.3)
    assert len(place.leader.demands) == told


async def test_a_leader_that_is_away_is_told_when_it_is_back(place_of) -> None:
    place = await place_of(state=ParkState.PARKED)
    place.leader.unreachable = True
    waiting = asyncio.create_task(raw(place.port, GET))
    await eventually(lambda: place.metric("demand_failures_total") >= 2)
    place.leader.unreachable = False
    await eventually(lambda: place.leader.demands)
    waiting.cancel()


async def test_a_request_in_any_mode_that_holds_is_demand(place_of) -> None:
    """While the operator waits for 'nothing in flight', a request must reach it as well."""
    place = await place_of(state=ParkState.CONFIRMING, epoch=2)
    waiting = asyncio.create_task(raw(place.port, GET))
    await eventually(lambda: (MODEL, 2) in place.leader.demands)
    assert place.standing.acknowledges(2), "what is held isn't in flight"
    assert place.standing.held.requests == 1
    waiting.cancel()


async def test_holding_is_acknowledged_when_the_last_request_has_ended(
    start_engine, place_of, client
) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.WITHDRAWN, epoch=5, targets=(engine.address,))
    asked = {"id": "s", "stream": True, "n": 4, "interval": 0.2}
    streaming = asyncio.create_task(client.post(f"{place.url}/v1/chat/completions", json=asked))
    await eventually(lambda: place.standing.in_flight == 1)
    place.change(state=ParkState.CONFIRMING)
    assert not place.standing.acknowledges(5)
    async with await streaming as answer:
        assert (await answer.text()).endswith("[DONE]\n\n"), "a stream was cut"
    await eventually(lambda: place.leader.reports[-1][0].acknowledges(5))
    assert place.standing.mode is ActivatorMode.HOLD


async def test_a_client_that_gives_up_frees_its_place_and_is_not_forwarded(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.PARKED)
    body = json.dumps({"id": "left", "x": "y" * 100_000}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    _, writer = await asyncio.open_connection(HOST, place.port)
    writer.write(head + body)
    await eventually(lambda: place.standing.held.requests == 1)
    assert place.standing.held.size_bytes > len(body)
    writer.close()
    await eventually(lambda: place.standing.held.requests == 0)
    assert place.standing.held.size_bytes == 0
    place.change(state=ParkState.WAKING, targets=(engine.address,))
    assert status_of(await raw(place.port, GET)) == 404
    assert (await engine.counts())["begun"] == {}
    assert place.metric("requests_total", outcome="abandoned") == 1


async def test_beyond_the_queue_s_count_there_is_an_openai_error_with_the_measured_time(place_of) -> None:
    place = await place_of(
        state=ParkState.PARKED,
        limits=QueueLimits(max_requests=2),
        cold_starts=ColdStarts((30.0, 40.0, 50.0)),
    )
    waiting = [asyncio.create_task(raw(place.port, GET)) for _ in range(2)]
    await eventually(lambda: place.standing.held.requests == 2)
    answer = await raw(place.port, GET)
    assert status_of(answer) == 503
    assert b"Retry-After: 50\r\n" in answer
    assert error_of(answer)["code"] == "queue_full"
    assert error_of(answer)["type"] == "server_error"
    assert "maxQueuedRequests" in error_of(answer)["message"]
    assert place.metric("rejected_requests_total", reason="queue_full") == 1
    for task in waiting:
        task.cancel()


async def test_what_cannot_wait_is_demand_all_the_same(start_engine, place_of) -> None:
    place = await place_of(state=ParkState.PARKED, limits=QueueLimits(max_requests=0))
    for _ in range(2):
        place.leader.demands.clear()
        assert status_of(await raw(place.port, GET)) == 503
        await eventually(lambda: place.leader.demands)


async def test_beyond_the_queue_s_bytes_too_whether_announced_or_not(place_of) -> None:
    place = await place_of(state=ParkState.PARKED, limits=QueueLimits(max_bytes=100_000))
    head = b"POST / HTTP/1.1\r\nHost: a\r\n"
    answer = await raw(place.port, head + b"Content-Length: 200000\r\n\r\n")
    assert status_of(answer) == 503
    assert error_of(answer)["code"] == "queue_bytes"
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    answer = await raw(place.port, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 5, pause=0.05)
    assert status_of(answer) == 503
    assert error_of(answer)["code"] == "queue_bytes"
    await eventually(lambda: place.standing.held.size_bytes == 0)
    assert place.metric("rejected_requests_total", reason="queue_bytes") == 2


async def test_a_body_that_is_read_while_it_waits_arrives_whole(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.PARKED)

    async def body():
        for i in range(50):
            yield bytes([i]) * 10_000
            await asyncio.sleep(0.01)

    asking = asyncio.create_task(client.post(f"{place.url}/echo", data=body()))
    await eventually(lambda: place.standing.held.size_bytes > 200_000)
    place.change(state=ParkState.WAKING, targets=(engine.address,))
    async with await asking as answer:
        assert await answer.read() == b"".join(bytes([i]) * 10_000 for i in range(50))
    assert place.standing.held.size_bytes == 0


async def test_a_wake_that_takes_too_long_is_told(place_of) -> None:
    place = await place_of(
        state=ParkState.PARKED, limits=QueueLimits(timeout_seconds=0.3), cold_starts=ColdStarts((100.0,))
    )
    answer = await raw(place.port, GET)
    assert status_of(answer) == 503
    assert error_of(answer)["code"] == "wake_timeout"
    assert b"Retry-After: 100\r\n" in answer


async def test_a_wake_that_cannot_be_placed_is_told_at_once(place_of) -> None:
    place = await place_of(state=ParkState.PARKED)
    waiting = asyncio.create_task(raw(place.port, GET))
    await eventually(lambda: place.standing.held.requests == 1)
    place.change(obstacle=Obstacle("NoFeasiblePool", "every pool is full"))
    for answer in (await waiting, await raw(place.port, GET)):
        assert status_of(answer) == 503
        assert error_of(answer)["code"] == "wake_impossible"
        assert "NoFeasiblePool: every pool is full" in error_of(answer)["message"]
        assert b"Retry-After: " in answer
    place.leader.demands.clear()
    await eventually(lambda: place.leader.demands)  # room may come


async def test_waiting_clients_are_told_when_the_model_is_deleted(place_of) -> None:
    place = await place_of(state=ParkState.PARKED)
    waiting = asyncio.create_task(raw(place.port, GET))
    await eventually(lambda: place.standing.held.requests == 1)
    place.activator.swap(type(place.activator.table).of([]))
    assert status_of(await waiting) == 404
    later = await raw(place.port, GET)
    assert status_of(later) == 404
    assert error_of(later)["code"] == "model_not_found"


async def test_a_port_is_let_go_some_time_after_its_model(place_of) -> None:
    place = await place_of({"gone_port_seconds": 0.2}, state=ParkState.PARKED)
    place.activator.swap(type(place.activator.table).of([]))
    assert status_of(await raw(place.port, GET)) == 404
    with pytest.raises(ConnectionRefusedError):
        async with asyncio.timeout(20):
            while True:
                await raw(place.port, GET)
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/health", {"status": "parked", "state": "Parked"}),
        (
            "/v1/models",
            {
                "object": "list",
                "data": [
                    {"id": "org/llm", "object": "model", "created": 1700000000, "owned_by": "wattkeeper"}
                ],
            },
        ),
        (
            "/v1/models/org%2Fllm",
            {"id": "org/llm", "object": "model", "created": 1700000000, "owned_by": "wattkeeper"},
        ),
    ],
)
async def test_probes_and_listings_are_answered_without_waking(path, expected, place_of, client) -> None:
    place = await place_of(state=ParkState.PARKED, served_models=("org/llm",), created_at=1700000000)
    async with client.get(aiohttp.client.URL(place.url + path, encoded=True)) as answer:
        assert answer.status == 200
        assert await answer.json() == expected
    async with client.head(aiohttp.client.URL(place.url + path, encoded=True)) as answer:
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) == len(json.dumps(expected))
    async with client.get(f"{place.url}/v1/models/other") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "model_not_found"
    async with client.get(f"{place.url}/metrics") as answer:
        assert "wattkeeper_model_parked 1\n" in await answer.text()
    async with client.get(f"{place.url}/anything", headers={"User-Agent": "kube-probe/1.36"}) as answer:
        assert answer.status == 200
    await asyncio.sleep(0.1)
    assert place.leader.demands == []
    assert place.standing.requests_seen == 0
    assert place.metric("requests_total", outcome="quiet") == 4


async def test_probes_of_a_model_that_is_there_are_its_own(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.WITHDRAWN, targets=(engine.address,))
    async with client.get(f"{place.url}/v1/models") as answer:
        assert (await answer.json())["data"] == [{"id": "from the engine"}]
    assert place.standing.requests_seen == 0, "a probe isn't traffic"


async def test_a_client_that_streams_can_be_kept_waiting_with_comments(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.PARKED, keep_alive_comment_seconds=0.1)
    body = json.dumps({"id": "1", "stream": True, "n": 2}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    asking = asyncio.create_task(raw(place.port, head + b"Content-Length: %d\r\n\r\n" % len(body) + body))
    await asyncio.sleep(0.35)
    place.change(state=ParkState.WAKING, targets=(engine.address,))
    answer = await asking
    assert status_of(answer) == 200
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b": waking\n\n" in answer
    assert b"data: [DONE]\n\n" in answer
    assert answer.endswith(b"0\r\n\r\n")


async def test_an_error_after_comments_is_an_event(start_engine, place_of) -> None:
    place = await place_of(
        state=ParkState.PARKED, keep_alive_comment_seconds=0.1, limits=QueueLimits(timeout_seconds=0.35)
    )
    answer = await raw(place.port, b"GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n")
    assert status_of(answer) == 200
    assert b'data: {"error": {' in answer
    assert b"wake_timeout" in answer
    assert answer.endswith(b"0\r\n\r\n")
    place.change(limits=QueueLimits())
    engine = await start_engine()
    asking = asyncio.create_task(
        raw(place.port, b"GET /nowhere HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n")
    )
    await asyncio.sleep(0.25)
    place.change(state=ParkState.WAKING, targets=(engine.address,))
    assert b'data: {"error": {"message": "404: Not Found"' in await asking


async def test_who_does_not_stream_gets_no_comments(start_engine, place_of) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.PARKED, keep_alive_comment_seconds=0.05)
    asking = asyncio.create_task(raw(place.port, GET))
    await asyncio.sleep(0.3)
    place.change(state=ParkState.WAKING, targets=(engine.address,))
    assert status_of(await asking) == 404


async def test_a_websocket_waits_too(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(state=ParkState.PARKED)
    connecting = asyncio.create_task(client.ws_connect(f"{place.url}/ws"))
    await eventually(lambda: place.standing.held.requests == 1)
    place.change(state=ParkState.WAKING, targets=(engine.address,))
    async with await connecting as socket:
        await socket.send_str("hello")
        assert await socket.receive_str(timeout=10) == "hello"


async def test_a_pod_that_is_ready_before_it_listens_costs_no_request(start_engine, place_of) -> None:
    engine = await start_engine()
    await engine.end()
    place = await place_of(state=ParkState.PARKED)
    asking = asyncio.create_task(raw(place.port, GET))
    await eventually(lambda: place.standing.held.requests == 1)
    place.change(state=ParkState.WAKING, targets=(engine.address,))
    await asyncio.sleep(0.5)
    assert place.standing.held.requests == 1
    await start_engine(engine.port)
    assert status_of(await asking) == 404


async def test_draining_goes_on_with_what_waits_and_streams(start_engine, place_of, client) -> None:
    engine = await start_engine()
    place = await place_of(
        {"propagation_seconds": 0.3, "drain_seconds": 30}, state=ParkState.WAKING, targets=(engine.address,)
    )
    asked = {"id": "s", "stream": True, "n": 20, "interval": 0.1}
    streaming = await client.post(f"{place.url}/v1/chat/completions", json=asked)
    place.change(state=ParkState.PARKED, targets=())
    waiting = asyncio.create_task(client.post(f"{place.url}/v1/chat/completions", json={"id": "w"}))
    await eventually(lambda: place.standing.held.requests == 1)
    idle_reader, idle_writer = await asyncio.open_connection(HOST, place.port)
    draining = asyncio.create_task(place.activator.drain())
    await asyncio.sleep(0)
    assert not place.activator.ready
    # A proxy that hasn't heard yet still sends; the answer ends the connection.
    late = await raw(place.port, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    assert status_of(late) == 200
    assert b"Connection: close" in late
    assert await asyncio.wait_for(idle_reader.read(), 10) == b""
    with pytest.raises(ConnectionRefusedError):
        await raw(place.port, GET)
    place.change(state=ParkState.WAKING, targets=(engine.address,))
    assert (await waiting).status == 200
    assert (await streaming.text()).endswith("[DONE]\n\n")
    await asyncio.wait_for(draining, 20)
    idle_writer.close()


async def test_who_still_waits_at_the_end_of_draining_gets_a_clean_answer(place_of) -> None:
    place = await place_of({"propagation_seconds": 0, "drain_seconds": 0.3}, state=ParkState.PARKED)
    waiting = asyncio.create_task(raw(place.port, GET))
    await eventually(lambda: place.standing.held.requests == 1)
    await place.activator.drain()
    answer = await waiting
    assert status_of(answer) == 503
    assert error_of(answer)["code"] == "shutting_down"
    assert b"Retry-After: 1\r\n" in answer
