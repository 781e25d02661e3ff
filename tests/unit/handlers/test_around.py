"""Metrics, probes, logs, and how the parts are held together."""

import asyncio
import json
import logging
import urllib.request
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.handlers.world import World, node
from wattkeeper.handlers.app import Debounce, supervise
from wattkeeper.handlers.logs import JsonFormatter, configure
from wattkeeper.handlers.metrics import Metrics
from wattkeeper.handlers.probes import Health, serve

# ---- metrics ----------------------------------------------------------------------------------------


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


async def test_the_fleet_is_shown_as_it_is_when_it_is_scraped() -> None:
    world = World()
    world.metrics.watch(world.snapshot, lambda: len(world.queue))
    world.nodes(node("l4", 4))
    await world.place("llama", "l4")
    found = samples(world.metrics)
    assert found["wattkeeper_llmdeployments", ("team-a", "Ready")] == 1
    assert found["wattkeeper_pool_gpus", ("l4",)] == 4
    assert found["wattkeeper_pool_free_gpus", ("l4",)] == 3
    assert found["wattkeeper_kept_objects", ("Pod",)] == 1
    assert found["wattkeeper_workqueue_length", ()] == 0
    assert found["wattkeeper_placement_decisions_total", ("Placed",)] == 1


def test_names_are_prefixed_and_say_their_units() -> None:
    metrics = Metrics()
    metrics.observe_request("GET", "Node", 200, 0.01)
    families = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    assert all(family.name.startswith("wattkeeper_") for family in families)
    for family in families:
        if family.type == "histogram":
            assert family.name.endswith("_seconds"), family.name
        assert family.documentation.endswith("."), family.name


# ---- probes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("started", "leading", "synced", "ready"),
    [
        (False, False, False, False),
        (True, False, False, True),  # a follower stands by
        (True, True, False, False),
        (True, True, True, True),
    ],
)
def test_readiness(started: bool, leading: bool, synced: bool, ready: bool) -> None:
    health = Health()
    health.started, health.leading, health.synced = started, leading, synced
    assert health.ready is ready


async def test_the_endpoint_answers() -> None:
    health, metrics = Health(), Metrics()
    server = await serve(health, metrics.registry, "127.0.0.1", 0)

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    assert await asyncio.to_thread(get, "/healthz") == (200, "ok\n")
    assert await asyncio.to_thread(get, "/readyz") == (503, "starting\n")
    health.started = True
    assert await asyncio.to_thread(get, "/readyz") == (200, "ok\n")
    status, page = await asyncio.to_thread(get, "/metrics")
    assert status == 200
    assert "wattkeeper_leader 0.0" in page
    await server.close()


# ---- logs -------------------------------------------------------------------------------------------


def test_a_json_line_holds_everything() -> None:
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("wattkeeper.x", logging.ERROR, "f", 1, "no %s", ("way",), info)
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["logger"], line["message"]) == ("error", "wattkeeper.x", "no way")
    assert "ZeroDivisionError: oh" in line["exception"]
    assert line["time"].endswith("+00:00")


def test_libraries_speak_up_from_warnings_on(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    try:
        configure("info", "json")
        assert logging.getLogger("wattkeeper").isEnabledFor(logging.INFO)
        assert not logging.getLogger("aiohttp").isEnabledFor(logging.INFO)
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        logging.getLogger("wattkeeper").setLevel(logging.NOTSET)


# ---- parts ------------------------------------------------------------------------------------------


async def test_parts_end_together() -> None:
    ended: list[str] = []

    async def runs(name: str) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(name)

    async def ends() -> None:
        await asyncio.sleep(0.01)

    await supervise(runs("a"), ends(), runs("b"))
    assert sorted(ended) == ["a", "b"]


async def test_what_ends_one_part_ends_all_and_comes_out() -> None:
    async def breaks() -> None:
        raise KeyError("x")

    async def runs() -> None:
        await asyncio.sleep(30)

    with pytest.raises(KeyError):
        await supervise(runs(), breaks())


async def test_many_changes_settle_into_one() -> None:
    calls: list[Any] = []
    debounce = Debounce(0.02, lambda: calls.append(None))
    for _ in range(50):
        debounce.call()
    assert calls == []
    await asyncio.sleep(0.05)
    assert len(calls) == 1
    debounce.call()
    await asyncio.sleep(0.05)
    assert len(calls) == 2
