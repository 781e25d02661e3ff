"""Reflectors: what they know is what the cluster has, whatever happens to the watch."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.kube.scripted_api import ScriptedApi, refusal, scripted, stream
from wattkeeper.kube.client import Client
from wattkeeper.kube.reflector import Reflector, Scope, Store
from wattkeeper.kube.resources import NODES, SERVICES

PATH = "/api/v1/nodes"


def item(name: str, value: Any, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, "value": value}


def listing(*items: dict[str, Any], version: int = 10) -> dict[str, Any]:
    return {"items": list(items), "metadata": {"resourceVersion": str(version)}}


def event(kind: str, thing: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": thing}


async def forever() -> None:
    await asyncio.sleep(30)


def trim(thing: Any) -> str | None:
    return None if thing["value"] is None else f"{thing['metadata']['name']}={thing['value']}"


class Running:
    def __init__(self, client: Client, scope: Scope | None = None) -> None:
        self.changes: list[tuple[str | None, str | None]] = []
        self.store: Store[str] = Store(lambda before, after: self.changes.append((before, after)))
        scope = scope or Scope()
        resource = SERVICES if scope.namespace else NODES
        self.reflector = Reflector(client, resource, trim, self.store, scope)

    async def until(self, *expected: str) -> None:
        async with asyncio.timeout(10):
            await self.reflector.synced.wait()
            while sorted(self.store) != sorted(expected):  # noqa: ASYNC110 - the store has no waiters
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(scope: Scope | None = None) -> AsyncIterator[tuple[ScriptedApi, Running]]:
    async with scripted() as (api, client):
        made = Running(client, scope)
        task = asyncio.create_task(made.reflector.run())
        await asyncio.sleep(0)
        try:
            yield api, made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_it_lists_watches_and_keeps_what_matters() -> None:
    async with running() as (api, seen):
        api.on("GET", PATH, listing(item("a", 1), item("b", None)))
        api.on(
            "watch GET",
            PATH,
            stream(
                event("MODIFIED", item("a", 2, 11)),
                event("ADDED", item("c", 3, 12)),
                event("BOOKMARK", item("", None, 13)),
                event("MODIFIED", item("b", 5, 14)),  # it matters now
                event("DELETED", item("c", 3, 15)),
                then=forever,
            ),
        )
        await seen.until("a=2", "b=5")
        assert seen.changes == [(None, "a=1"), ("a=1", "a=2"), (None, "c=3"), (None, "b=5"), ("c=3", None)]
        (_, _, query, _) = api.requests[1]
        assert query["resourceVersion"] == "10"
        assert query["allowWatchBookmarks"] == "true"


async def test_an_object_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Anybody may write an object that we look at: it must not take the others' place, or end us."""
    broken = {"metadata": item("broken", 0)["metadata"]}
    async with running() as (api, seen):
        api.on("GET", PATH, listing(broken, item("a", 1)))
        api.on(
            "watch GET", PATH, stream(event("ADDED", broken), event("ADDED", item("b", 2, 12)), then=forever)
        )
        await seen.until("a=1", "b=2")
    assert "can't be read" in caplog.text


async def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    async with running() as (api, seen):
        api.on("GET", PATH, listing(item("a", 1)))
        api.on(
            "watch GET",
            PATH,
            stream(event("BOOKMARK", item("", None, 42))),
            stream(event("MODIFIED", item("a", 2, 43)), then=forever),
        )
        await seen.until("a=2")
        versions = [query["resourceVersion"] for method, _, query, _ in api.requests if "watch" in method]
        assert versions == ["10", "42"]
        assert [method for method, *_ in api.requests].count("GET") == 1


async def test_after_too_long_it_lists_anew_and_forgets_what_is_gone() -> None:
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    async with running() as (api, seen):
        api.on("GET", PATH, listing(item("a", 1), item("ghost", 1)), listing(item("a", 1), version=99))
        api.on("watch GET", PATH, stream(gone), stream(then=forever))
        await seen.until("a=1")
        assert ("ghost=1", None) in seen.changes
        # What stayed the same is no change.
        assert seen.changes.count((None, "a=1")) == 1


async def test_errors_are_waited_out() -> None:
    broken = {"type": "ERROR", "object": {"code": 500, "reason": "Internal", "message": "etcd"}}
    async with running() as (api, seen):
        api.on("GET", PATH, refusal(403, "Forbidden", "not yet"), listing(item("a", 1)))
        api.on("watch GET", PATH, stream(broken), stream(then=forever))
        await seen.until("a=1")


async def test_a_line_that_is_no_json_ends_the_watch_and_not_the_reflector() -> None:
    async def garbled(request: Any) -> Any:
        from aiohttp import web  # noqa: PLC0415

        return web.Response(body=b"{half a li\n")

    async with running() as (api, seen):
        api.on("GET", PATH, listing(item("a", 1)), listing(item("b", 1)))
        api.on("watch GET", PATH, garbled, stream(then=forever))
        await seen.until("b=1")


async def test_a_scope_is_asked_of_the_server() -> None:
    path = "/api/v1/namespaces/team-a/services"
    async with running(Scope("team-a", "x=y")) as (api, seen):
        api.on("GET", path, listing(item("a", 1)))
        api.on("watch GET", path, stream(then=forever))
        await seen.until("a=1")
        assert {query["labelSelector"] for _, _, query, _ in api.requests} == {"x=y"}
