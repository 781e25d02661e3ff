"""Bringing about what one LLMDeployment needs, and saying so."""

import asyncio
import json
from typing import Any

import pytest

from tests.unit.core.placing import FITTING, MEASURED, FakeForecaster
from tests.unit.handlers.world import World, node, pod
from tests.unit.kube.objects import meta
from wattkeeper.core.forecast import MemoryFit
from wattkeeper.kube.errors import TransientError
from wattkeeper.kube.manifests.record import ANNOTATION
from wattkeeper.kube.resources import CONFIG_MAPS, DEPLOYMENTS, SERVICES
from wattkeeper.kube.trim import Key

LLAMA = Key("team-a", "llama")


async def running(**spec: Any) -> World:
    world = World()
    world.nodes(node("l4", 4))
    await world.place("llama", "l4", **spec)
    return world


def container(world: World) -> dict[str, Any]:
    return dict(world.child("llama")["spec"]["template"]["spec"]["containers"][0])


async def test_a_placed_model_gets_its_children_and_becomes_ready() -> None:
    world = await running(replicas=2)
    status = world.status("llama")
    assert (status["phase"], status["replicas"], status["readyReplicas"]) == ("Ready", 2, 2)
    assert status["selector"] == "wattkeeper.dev/llmdeployment=llama"
    assert world.child("llama")["spec"]["replicas"] == 2
    assert world.has_children("llama")
    assert world.reasons() == ["Placed", "Ready"]


async def test_loading_is_told_until_pods_answer() -> None:
    world = World()
    world.nodes(node("l4"))
    world.create("llama")
    await world.settle()
    world.run_pods("llama", "l4", ready=False)
    await world.settle()
    assert world.status("llama")["phase"] == "Loading"
    world.run_pods("llama", "l4")
    await world.settle()
    assert world.status("llama")["phase"] == "Ready"


async def test_the_same_inputs_need_no_request() -> None:
    world = await running()
    before = len(world.api.requests)
    for _ in range(3):
        world.queue.add(LLAMA)
        await world.settle()
    assert len(world.api.requests) == before


async def test_a_recheck_reads_but_writes_nothing_that_is_the_same() -> None:
    world = await running()
    writes = len(world.api.writes())
    world.reconciler.recheck(LLAMA)
    await world.settle()
    assert len(world.api.writes()) == writes


async def test_a_new_leader_applies_once_and_changes_nothing() -> None:
    old = await running()
    new = World()
    new.api, new.now = old.api, old.now
    # The same cluster, seen with fresh eyes.
    fresh = World()
    fresh.api.objects = old.api.objects
    fresh.api._versions = old.api._versions
    fresh.nodes(node("l4", 4))
    fresh.pods(pod("llama-0", "l4", model="llama"))
    for path in (DEPLOYMENTS.path("team-a", "llama"), SERVICES.path("team-a", "llama")):
        fresh._watched(old.api.objects[path])
    before = json.dumps(old.api.objects, sort_keys=True)
    await fresh.sweep.once()
    for claim in fresh.snapshot.claims:
        fresh.queue.add(claim.key)
    await fresh.settle()
    assert json.dumps(fresh.api.objects, sort_keys=True) == before
    assert "DriftRepaired" not in fresh.reasons()


# ---- drift ------------------------------------------------------------------------------------------


async def test_a_changed_deployment_is_put_right() -> None:
    world = await running()
    deployment = world.child("llama")
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "example.test/other"
    deployment["metadata"]["generation"] += 1
    world.seen(deployment)
    await world.settle()
    assert container(world)["image"] == "vllm/vllm-openai:v0.11.0"
    assert "DriftRepaired" in world.reasons()
    assert world.metrics.repairs.labels("Deployment")._value.get() == 1


async def test_a_changed_service_is_put_right() -> None:
    world = await running()
    path = SERVICES.path("team-a", "llama")
    world.api.objects[path]["spec"]["selector"] = {"app": "other"}
    world.seen(world.api.objects[path])
    await world.settle()
    assert world.api.objects[path]["spec"]["selector"]["wattkeeper.dev/serving"] == "true"
    assert world.metrics.repairs.labels("Service")._value.get() == 1


@pytest.mark.parametrize("resource", [DEPLOYMENTS, SERVICES])
async def test_a_deleted_child_is_made_anew(resource: Any) -> None:
    world = await running()
    path = resource.path("team-a", "llama")
    gone = world.api.objects.pop(path)
    store = world._child if resource is DEPLOYMENTS else world._service
    store.apply(gone["metadata"]["uid"], None)
    await world.settle()
    assert world.api.objects[path]["metadata"]["uid"] != gone["metadata"]["uid"]


async def test_a_tampered_record_is_put_right_and_not_believed() -> None:
    world = await running()
    deployment = world.child("llama")
    good = deployment["metadata"]["annotations"][ANNOTATION]
    deployment["metadata"]["annotations"][ANNOTATION] = good.replace("NVIDIA-L4", "NVIDIA-H100-NVL").replace(
        '"pool":"l4"', '"pool":"h100-nvl"'
    )
    world.seen(deployment)
    await world.settle()
    assert world.child("llama")["metadata"]["annotations"][ANNOTATION] == good
    assert "NVIDIA-L4" in str(world.child("llama")["spec"]["template"]["spec"]["affinity"])


# ---- what an upgrade must not restart --------------------------------------------------------------


async def test_other_figures_of_the_predictor_restart_no_model() -> None:
    old = await running()
    heavier = MemoryFit(
        **{field: getattr(FITTING, field) for field in FITTING.__slots__} | {"weight_bytes": 99_000_000_000}
    )
    new = World(FakeForecaster(MEASURED.forecasts, memories={("NVIDIA-L4", 1): heavier}))
    new.api.objects, new.api._versions = old.api.objects, old.api._versions
    # Another node joined the pool under a label of its own.
    new.nodes(node("l4", 4), node("new", 1, **{"cloud.google.com/gke-nodepool": "spot"}))
    new.pods(pod("llama-0", "l4", model="llama"))
    for path in (DEPLOYMENTS.path("team-a", "llama"), SERVICES.path("team-a", "llama")):
        new._watched(old.api.objects[path])
    generation = old.child("llama")["metadata"]["generation"]
    await new.sweep.once()
    for claim in new.snapshot.claims:
        new.queue.add(claim.key)
    await new.settle()
    assert new.child("llama")["metadata"]["generation"] == generation


async def test_a_change_of_the_spec_computes_them_anew() -> None:
    world = await running()
    before = world.child("llama")["metadata"]["annotations"][ANNOTATION]
    world.edit("llama", server={"args": ["--max-num-seqs", "8"]})
    await world.settle()
    assert world.child("llama")["metadata"]["annotations"][ANNOTATION] != before
    assert container(world)["args"][-2:] == ["--max-num-seqs", "8"]
    assert world.child("llama")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 1


async def test_without_a_spare_gpu_a_rollout_has_no_surge() -> None:
    world = await running(replicas=4)
    world.edit("llama", server={"args": ["--max-num-seqs", "8"]})
    await world.settle()
    assert world.child("llama")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


async def test_a_gpu_that_its_pods_cannot_use_is_no_spare_one() -> None:
    """With maxSurge 1 and no node for the new pod the rollout would wait for ever."""
    world = await running(replicas=4)
    closed = node("closed", 4)
    closed["spec"] = {"taints": [{"key": "team", "value": "b", "effect": "NoSchedule"}]}
    world.nodes(closed)
    world.edit("llama", server={"args": ["--max-num-seqs", "8"]})
    await world.settle()
    assert world.child("llama")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0


# ---- replicas ---------------------------------------------------------------------------------------


async def test_scaling_the_llmdeployment_scales_the_child() -> None:
    world = await running()
    world.edit("llama", replicas=3)
    await world.settle()
    assert world.child("llama")["spec"]["replicas"] == 3
    world.edit("llama", replicas=0)
    await world.settle()
    world.no_pod("llama-0")
    world.run_pods("llama", "l4")
    await world.settle()
    assert world.child("llama")["spec"]["replicas"] == 0
    assert world.status("llama")["phase"] == "Off"


def written_by(world: World, manager: str, replicas: int) -> None:
    deployment = world.child("llama")
    deployment["spec"]["replicas"] = replicas
    deployment["metadata"]["generation"] += 1
    deployment["metadata"]["managedFields"] = [
        {"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    ]
    world.seen(deployment)


async def test_another_writer_is_named_corrected_and_forgotten_after_a_while() -> None:
    world = await running()
    written_by(world, "hpa", 5)
    await world.settle()
    assert world.child("llama")["spec"]["replicas"] == 1
    condition = world.condition("llama", "ReplicasConflict")
    assert (condition["status"], condition["reason"]) == ("True", "AnotherWriter")
    assert "hpa" in condition["message"]
    assert "ReplicasConflict" in world.reasons()
    world.now += 61
    world.reconciler.recheck(LLAMA)
    await world.settle()
    assert world.condition("llama", "ReplicasConflict")["status"] == "False"


async def test_a_writer_that_answers_at_once_is_not_answered_at_once_for_ever() -> None:
    world = await running()
    written_by(world, "hpa", 5)
    await world.settle()
    written_by(world, "hpa", 5)
    await world.settle()
    assert world.child("llama")["spec"]["replicas"] == 5  # not yet
    world.now += 11
    world.reconciler.recheck(LLAMA)
    await world.settle()
    assert world.child("llama")["spec"]["replicas"] == 1


# ---- trouble ----------------------------------------------------------------------------------------


async def test_pods_that_cannot_run_are_told_with_their_reason() -> None:
    world = World()
    world.nodes(node("l4"))
    world.create("llama")
    await world.settle()
    world.run_pods("llama", "l4", ready=False)
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    statuses = [{"name": "server", "state": waiting}]
    world.pods(pod("llama-0", "l4", model="llama", containerStatuses=statuses))
    await world.settle()
    assert world.status("llama")["phase"] == "Failed"
    assert "CrashLoopBackOff" in world.condition("llama", "Ready")["message"]
    assert "Failed" in world.reasons()


async def test_an_edit_that_the_server_refuses_leaves_what_runs() -> None:
    world = await running()
    image = container(world)["image"]
    world.deny("Deployment", "spec.template.spec: Invalid value", 422)
    world.edit("llama", server={"image": "example.test/new"})
    await world.settle()
    assert world.condition("llama", "Accepted")["reason"] == "InvalidTemplate"
    assert container(world)["image"] == image
    assert world.status("llama")["pool"] == "l4"
    writes = len(world.api.writes())
    await world.settle()
    assert len(world.api.writes()) == writes  # it doesn't flap
    world.api.allow()
    await world.sweep.once()
    await world.settle()
    assert container(world)["image"] == "example.test/new"
    assert world.condition("llama", "Accepted")["status"] == "True"


async def test_an_invalid_edit_leaves_what_runs() -> None:
    world = await running()
    image = container(world)["image"]
    world.edit("llama", server={"image": "not an image"})
    await world.settle()
    assert "spec.server.image" in world.condition("llama", "Accepted")["message"]
    assert container(world)["image"] == image
    assert world.status("llama")["phase"] == "Ready"


@pytest.mark.parametrize("resource", [DEPLOYMENTS, SERVICES])
async def test_a_foreign_object_of_the_name_is_left_alone(resource: Any) -> None:
    world = World()
    world.nodes(node("l4"))
    theirs = {"apiVersion": "x", "kind": resource.kind, "metadata": meta("llama"), "spec": {"theirs": True}}
    world.api.put(resource.path("team-a", "llama"), theirs)
    world.create("llama")
    await world.settle()
    assert world.condition("llama", "Accepted")["reason"] == "NameTaken"
    assert "pool" not in world.status("llama")
    assert world.api.objects[resource.path("team-a", "llama")]["spec"] == {"theirs": True}


async def test_a_failed_request_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = await running()
    once = iter([True])
    world.api.refuse(
        lambda request: request.path.endswith("/llama") and next(once, False),
        TransientError("GET", 503, "Unavailable", "starting"),
    )
    world.reconciler.recheck(LLAMA)
    await world.settle()
    assert "starting" in caplog.text
    await asyncio.sleep(0.3)
    await world.settle()
    assert len(world.queue) == 0


# ---- ConfigMaps -------------------------------------------------------------------------------------


async def test_a_config_map_is_awaited_and_its_changes_are_seen_by_the_sweep() -> None:
    world = World()
    world.nodes(node("l4"))
    path = CONFIG_MAPS.path("team-a", "secret-llm")
    world.create("llama", model={"id": "acme/llm", "configMapRef": {"name": "secret-llm"}})
    await world.settle()
    assert world.condition("llama", "Accepted")["reason"] == "ConfigMapNotFound"

    def config(layers: int) -> dict[str, Any]:
        text = json.dumps({"model_type": "llama", "num_hidden_layers": layers})
        return {"kind": "ConfigMap", "metadata": meta("secret-llm"), "data": {"config.json": text}}

    world.api.put(path, config(32))
    await world.sweep.once()
    await world.settle()
    assert world.status("llama")["pool"] == "l4"
    world.run_pods("llama", "l4")
    await world.settle()
    before = world.child("llama")["metadata"]["annotations"][ANNOTATION]
    world.api.put(path, config(33))
    await world.sweep.once()
    await world.settle()
    assert world.child("llama")["metadata"]["annotations"][ANNOTATION] != before
    version = world.resource("llama")["metadata"]["resourceVersion"]
    await world.sweep.once()
    await world.settle()
    assert world.resource("llama")["metadata"]["resourceVersion"] == version
