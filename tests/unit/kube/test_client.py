"""Requests, and what goes wrong with them, against a real HTTP server."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.kube.scripted_api import refusal, scripted
from wattkeeper.kube.client import (
    APPLY,
    KubeConfigError,
    Request,
    connection_of,
    describe,
    load_configuration,
    serves,
)
from wattkeeper.kube.errors import (
    ApiError,
    ConflictError,
    DeniedError,
    LeadershipLostError,
    NotFoundError,
    TransientError,
    error_of,
)
from wattkeeper.kube.resources import DEPLOYMENTS, GPU_NODE_POOLS, LLM_DEPLOYMENTS, NODES, resource_of

NODE = "/api/v1/nodes/n"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (404, "not found", NotFoundError),
        (410, "gone", NotFoundError),
        (409, "the object has been modified", ConflictError),
        (400, "bad", DeniedError),
        (403, "exceeded quota", DeniedError),
        (422, "invalid", DeniedError),
        (401, "token expired", TransientError),
        (429, "slow down", TransientError),
        (500, "etcd", TransientError),
        (503, "starting", TransientError),
        # Server-side apply says so of a field that the schema lacks: repeating it is no use.
        (
            500,
            "failed to create typed patch object (a/b; apps/v1): .spec.foo: field not declared",
            DeniedError,
        ),
    ],
)
def test_errors_are_sorted_by_what_to_do(status: int, message: str, kind: type[ApiError]) -> None:
    body = f'{{"kind":"Status","reason":"R","message":"{message}"}}'.encode()
    error = error_of("GET /x", status, body, {})
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (status, "R", message)


def test_a_body_that_is_no_status_is_told_as_it_is() -> None:
    error = error_of("GET /x", 502, b"<html>Bad Gateway</html>", {"Retry-After": "7"})
    assert "Bad Gateway" in str(error)
    assert (error.reason, error.retry_after_seconds) == ("HTTP502", 7)
    assert error_of("GET /x", 503, b"", {"Retry-After": "Wed, 21 Oct"}).retry_after_seconds is None


def test_missing_rights_are_told_from_admission() -> None:
    rbac = 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "a"'
    assert DeniedError("POST", 403, "Forbidden", rbac).lacks_rights
    assert not DeniedError("POST", 403, "Forbidden", "pods is forbidden: exceeded quota").lacks_rights


def test_messages_are_one_line() -> None:
    assert describe(DeniedError("PATCH", 422, "Invalid", "a\n  b")) == "a b"


def test_paths() -> None:
    assert NODES.path("ignored", "n") == "/api/v1/nodes/n"
    assert DEPLOYMENTS.path("a", "d", "scale") == "/apis/apps/v1/namespaces/a/deployments/d/scale"
    assert LLM_DEPLOYMENTS.collection() == "/apis/wattkeeper.dev/v1alpha1/llmdeployments"
    assert GPU_NODE_POOLS.path(None, "a/b") == "/apis/wattkeeper.dev/v1alpha1/gpunodepools/a%2Fb"
    assert resource_of({"apiVersion": "apps/v1", "kind": "Deployment"}) is DEPLOYMENTS
    with pytest.raises(KeyError):
        resource_of({"apiVersion": "v1", "kind": "Secret"})


async def test_an_object_is_read_and_counted() -> None:
    seen: list[tuple[str, str, int]] = []
    async with scripted(observe=lambda *what: seen.append(what[:3])) as (api, client):
        api.on("GET", NODE, {"metadata": {"name": "n"}})
        assert await client.get(NODES, None, "n") == {"metadata": {"name": "n"}}
    assert seen == [("GET", "Node", 200)]


async def test_lists_are_read_page_by_page() -> None:
    async with scripted() as (api, client):
        api.on(
            "GET",
            "/api/v1/nodes",
            {"items": [1], "metadata": {"resourceVersion": "7", "continue": "next"}},
            {"items": [2], "metadata": {"resourceVersion": "7"}},
        )
        pages = [page async for page in client.pages(NODES, label_selector="a=b")]
        assert pages == [([1], "7"), ([2], "7")]
        assert [query.get("continue") for _, _, query, _ in api.requests] == [None, "next"]
        assert {query["labelSelector"] for _, _, query, _ in api.requests} == {"a=b"}


async def test_transient_errors_are_repeated_and_others_are_not() -> None:
    async with scripted() as (api, client):
        api.on("GET", NODE, refusal(503, "Unavailable", "starting"), {"ok": True})
        assert await client.get(NODES, None, "n") == {"ok": True}
        api.on("GET", "/api/v1/nodes/m", refusal(404, "NotFound", "no"))
        with pytest.raises(NotFoundError):
            await client.get(NODES, None, "m")
        assert len([path for _, path, _, _ in api.requests if path.endswith("/m")]) == 1


async def test_it_gives_up_after_a_few_tries_and_says_when_to_come_back() -> None:
    async with scripted() as (api, client):
        api.on("GET", NODE, refusal(429, "TooManyRequests", "slow", **{"Retry-After": "0"}))
        with pytest.raises(TransientError) as refused:
            await client.get(NODES, None, "n")
        assert refused.value.retry_after_seconds == 0
        assert len(api.requests) == 3


async def test_a_post_is_never_repeated() -> None:
    async with scripted() as (api, client):
        api.on("POST", "/api/v1/nodes", refusal(503, "Unavailable", "starting"))
        with pytest.raises(TransientError):
            await client.send(Request("POST", "/api/v1/nodes", "Node", {}, {}))
        assert len(api.requests) == 1


async def test_a_hanging_server_is_given_up_on() -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with scripted(request_timeout_seconds=0.1) as (api, client):
        api.on("POST", "/api/v1/nodes", hang)
        with pytest.raises(TransientError, match=r"no answer in 0\.1 s"):
            await client.send(Request("POST", "/api/v1/nodes", "Node", {}, {}))


async def test_no_connection_is_transient() -> None:
    async with scripted() as (_, client):
        client.configuration.host = "http://127.0.0.1:1"
        with pytest.raises(TransientError) as refused:
            await client.get(NODES, None, "n")
        assert refused.value.status == 0


async def test_the_fence_stops_writes_but_neither_reads_nor_dry_runs() -> None:
    def closed() -> None:
        raise LeadershipLostError("not ours")

    async with scripted(fence=closed) as (api, client):
        for method in ("GET", "PATCH"):
            api.on(method, NODE, {})
        await client.get(NODES, None, "n")
        await client.send(Request("PATCH", NODE, "Node", {"dryRun": "All"}, {}, APPLY))
        with pytest.raises(LeadershipLostError):
            await client.send(Request("PATCH", NODE, "Node", {}, {}, APPLY))
        with pytest.raises(LeadershipLostError):
            await client.send(Request("DELETE", NODE, "Node"))
        assert [method for method, *_ in api.requests] == ["GET", "PATCH"]


async def test_the_fence_is_asked_again_before_a_repetition() -> None:
    answers = iter([True, False])

    def fence() -> None:
        if not next(answers):
            raise LeadershipLostError("lost meanwhile")

    async with scripted(fence=fence) as (api, client):
        api.on("PATCH", NODE, refusal(503, "Unavailable", "starting"))
        with pytest.raises(LeadershipLostError):
            await client.send(Request("PATCH", NODE, "Node", {}, {}, APPLY))
        assert len(api.requests) == 1


async def test_whether_a_kind_is_served() -> None:
    root = "/apis/wattkeeper.dev/v1alpha1"
    async with scripted() as (api, client):
        api.on("GET", root, refusal(404, "NotFound", "no"), {"resources": [{"name": "llmdeployments"}]})
        assert not await serves(client, LLM_DEPLOYMENTS)
        assert await serves(client, LLM_DEPLOYMENTS)
        assert not await serves(client, GPU_NODE_POOLS)


async def test_the_connection_for_kopf_is_the_clients_own() -> None:
    async with scripted() as (_, client):
        client.configuration.api_key["BearerToken"] = "Bearer abc"
        connection = await connection_of(client.configuration)
        assert (connection.scheme, connection.token) == ("Bearer", "abc")
        assert connection.server == client.configuration.host
        client.configuration.api_key.clear()
        assert (await connection_of(client.configuration)).token is None


async def test_without_a_way_to_the_api_server_the_place_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "kubeconfig"
    with pytest.raises(KubeConfigError, match=str(missing)):
        await load_configuration(missing, None)
    missing.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(KubeConfigError, match="--kubeconfig FILE"):
        await load_configuration(missing, None)
