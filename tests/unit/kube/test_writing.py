"""What the executor sends, and what Events say."""

from typing import Any

import pytest

from tests.unit.kube.objects import llmd
from tests.unit.kube.rendering import OWNER, parsed, placed
from tests.unit.kube.scripted_api import refusal, scripted
from wattkeeper.kube.errors import ConflictError, DeniedError
from wattkeeper.kube.events import EventRecorder
from wattkeeper.kube.executor import Executor
from wattkeeper.kube.manifests.deployment import deployment
from wattkeeper.kube.manifests.service import service
from wattkeeper.kube.resources import LLM_DEPLOYMENTS
from wattkeeper.kube.trim import Key

NAMESPACE = "/apis/apps/v1/namespaces/team-a/deployments"
DEPLOYMENT = f"{NAMESPACE}/llama"
SERVICE = "/api/v1/namespaces/team-a/services/llama"
PODS = "/api/v1/namespaces/team-a/pods"
STATUS = "/apis/wattkeeper.dev/v1alpha1/namespaces/team-a/llmdeployments/llama/status"
KEY = Key("team-a", "llama")


def manifests() -> list[dict[str, Any]]:
    spec = parsed().spec
    return [
        deployment(OWNER, spec, placed(), propagation_seconds=10, surge=False),
        service(OWNER, spec),
    ]


async def test_a_deployment_is_made_paused_scaled_and_let_go() -> None:
    async with scripted() as (api, client):
        api.on("PATCH", DEPLOYMENT, {})
        api.on("PATCH", f"{DEPLOYMENT}/scale", {})
        await Executor(client).create_deployment(manifests()[0], 0)
        said = [
            (path.removeprefix(DEPLOYMENT), body["spec"].get("paused")) for _, path, _, body in api.requests
        ]
        assert said == [("", True), ("/scale", None), ("", False)]
        scale = api.requests[1]
        assert scale[3]["spec"] == {"replicas": 0}
        assert all("replicas" not in body["spec"] for _, path, _, body in api.requests if "scale" not in path)
        assert {query["fieldManager"] for _, _, query, _ in api.requests} == {"wattkeeper-operator"}
        assert {query["force"] for _, _, query, _ in api.requests} == {"true"}


async def test_a_dry_run_judges_everything_and_one_more_pod() -> None:
    async with scripted() as (api, client):
        for path in (DEPLOYMENT, SERVICE):
            api.on("PATCH", path, {})
        api.on("POST", PODS, {})
        await Executor(client).dry_run(manifests(), with_pods=True)
        assert sorted(path for _, path, _, _ in api.requests) == sorted([DEPLOYMENT, PODS, SERVICE])
        assert {query["dryRun"] for _, _, query, _ in api.requests} == {"All"}


async def test_pods_are_left_out_where_that_is_wished_or_not_allowed() -> None:
    forbidden = 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace'
    async with scripted() as (api, client):
        for path in (DEPLOYMENT, SERVICE):
            api.on("PATCH", path, {})
        api.on("POST", PODS, refusal(403, "Forbidden", forbidden))
        await Executor(client).dry_run(manifests(), with_pods=False)
        await Executor(client, validate_pods=False).dry_run(manifests(), with_pods=True)
        executor = Executor(client)
        await executor.dry_run(manifests(), with_pods=True)
        await executor.dry_run(manifests(), with_pods=True)
        assert [path for _, path, _, _ in api.requests].count(PODS) == 1


async def test_a_quota_speaks_up_in_the_dry_run() -> None:
    async with scripted() as (api, client):
        for path in (DEPLOYMENT, SERVICE):
            api.on("PATCH", path, {})
        api.on("POST", PODS, refusal(403, "Forbidden", "exceeded quota: gpus"))
        with pytest.raises(DeniedError, match="exceeded quota"):
            await Executor(client).dry_run(manifests(), with_pods=True)


async def test_status_is_written_against_the_version_that_was_read() -> None:
    read = llmd("llama")
    async with scripted() as (api, client):
        api.on("PATCH", STATUS, {"written": True}, refusal(409, "Conflict", "changed"))
        executor = Executor(client)
        assert await executor.write_status(LLM_DEPLOYMENTS, read, {"phase": "Ready"}) == {"written": True}
        with pytest.raises(ConflictError):
            await executor.write_status(LLM_DEPLOYMENTS, read, {"phase": "Ready"})
        body = api.requests[0][3]
        assert body["metadata"]["resourceVersion"] == read["metadata"]["resourceVersion"]
        assert body["metadata"]["uid"] == "uid-llama"
        assert body["status"] == {"phase": "Ready"}


async def test_what_is_not_there_reads_as_none() -> None:
    base = "/api/v1/namespaces/team-a/configmaps"
    async with scripted() as (api, client):
        api.on("GET", STATUS.removesuffix("/status"), refusal(404, "NotFound", "no"))
        api.on("GET", f"{base}/none", refusal(404, "NotFound", "no"))
        api.on("GET", f"{base}/some", {"data": {"config.json": "{}"}}, {"binaryData": {}})
        executor = Executor(client)
        assert await executor.read(KEY) is None
        assert await executor.read_config("team-a", "none", "config.json") is None
        assert await executor.read_config("team-a", "some", "config.json") == "{}"
        assert await executor.read_config("team-a", "some", "config.json") is None


async def test_a_pool_is_deleted_only_as_it_was_seen() -> None:
    path = "/apis/wattkeeper.dev/v1alpha1/gpunodepools/l4"
    async with scripted() as (api, client):
        api.on("DELETE", path, {})
        await Executor(client).delete_pool("l4", "uid-l4", "7")
        assert api.requests[0][3] == {"preconditions": {"uid": "uid-l4", "resourceVersion": "7"}}


# ---- Events ---------------------------------------------------------------------------------------

EVENTS = "/apis/events.k8s.io/v1/namespaces/team-a/events"


async def test_an_event_says_who_what_and_about_what() -> None:
    async with scripted() as (api, client):
        api.on("POST", EVENTS, {})
        recorder = EventRecorder(client, "operator-0", lambda: 0.0)
        recorder.record(llmd("llama"), "Warning", "Unschedulable", "Place", "x" * 2000)
        assert api.requests == []  # nobody waits for it
        await recorder.flush()
        (event,) = [body for _, _, _, body in api.requests]
        assert event["regarding"]["kind"] == "LLMDeployment"
        assert event["regarding"]["uid"] == "uid-llama"
        assert (event["type"], event["reason"], event["action"]) == ("Warning", "Unschedulable", "Place")
        assert len(event["note"]) == 1024
        assert event["reportingController"] == "wattkeeper.dev/operator"


async def test_the_same_is_said_once_in_a_while() -> None:
    now = [0.0]
    async with scripted() as (api, client):
        api.on("POST", EVENTS, {})
        recorder = EventRecorder(client, "o", lambda: now[0])

        async def say(note: str) -> int:
            recorder.record(llmd("llama"), "Normal", "Placed", "Place", note)
            await recorder.flush()
            return len(api.requests)

        assert [await say("a"), await say("a"), await say("b")] == [1, 1, 2]
        now[0] = 599.0
        assert await say("a") == 2
        now[0] = 600.0
        assert await say("a") == 3


async def test_a_lost_event_holds_nothing_up() -> None:
    async with scripted() as (api, client):
        api.on("POST", EVENTS, refusal(403, "Forbidden", "namespace is being terminated"))
        recorder = EventRecorder(client, "o", lambda: 0.0)
        recorder.record(llmd("llama"), "Normal", "A", "B", "c")
        await recorder.flush()
