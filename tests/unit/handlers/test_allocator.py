"""Giving out GPUs: serially, in the order of creation, persisted before anything is created."""

import asyncio
import json
from typing import Any

import pytest

from tests.unit.core.placing import MEASURED, FakeForecaster, forecast
from tests.unit.handlers.world import ONE_GPU, World, node, pod
from tests.unit.kube.objects import llmd, meta
from wattkeeper.core.forecast import Refusal, RefusalReason
from wattkeeper.kube.errors import ConflictError, LeadershipLostError, TransientError
from wattkeeper.kube.manifests.record import ANNOTATION
from wattkeeper.kube.resources import CONFIG_MAPS, LLM_DEPLOYMENTS
from wattkeeper.kube.trim import Key, claim_of, pool_value


async def test_it_goes_to_the_least_watts_that_meet_the_sla() -> None:
    world = World()
    world.nodes(node("l4"), node("a30", product="NVIDIA-A30"), node("h100", product="NVIDIA-H100-NVL"))
    for name, sla in (("seventy", "70ms"), ("fifty", "50ms"), ("ten", "10ms")):
        world.create(name, sla={"interTokenLatency": sla})
    await world.settle()
    found = {name: world.status(name)["pool"] for name in ("seventy", "fifty", "ten")}
    assert found == {"seventy": "l4", "fifty": "a30", "ten": "h100-nvl"}
    assert world.reasons().count("Placed") == 3


async def test_the_pool_is_persisted_before_anything_is_created() -> None:
    world = World()
    world.nodes(node("l4"))
    world.create("llama")
    await world.settle()
    kinds = [(each.kind, each.path.rpartition("/")[2]) for each in world.api.writes()]
    assert kinds[0] == ("LLMDeployment", "status")
    assert ("Deployment", "llama") in kinds[1:]


async def test_the_last_gpu_goes_to_the_oldest_whoever_asked_first() -> None:
    world = World()
    world.nodes(node("l4"))
    world.create("young", created=9)
    world.create("old", created=3)
    await world.settle()
    assert world.status("old")["pool"] == "l4"
    assert world.status("young")["phase"] == "Unschedulable"
    assert not world.has_children("young")


async def test_freed_gpus_go_to_the_oldest_that_waits_before_a_newcomer() -> None:
    world = World()
    world.nodes(node("l4"))
    await world.place("first", "l4", created=1)
    world.create("waits", created=2)
    await world.settle()
    # At one and the same time: the GPU is freed and a newcomer asks.
    world.delete("first")
    world.no_pod("first-0")
    world.create("newcomer", created=3)
    await world.settle()
    assert world.status("waits")["pool"] == "l4"
    assert world.status("newcomer")["phase"] == "Unschedulable"


async def test_promises_count_before_pods_exist() -> None:
    world = World()
    world.nodes(node("l4", 2))
    world.create("wide", created=1, replicas=2)
    world.create("next", created=2)
    await world.settle()
    assert world.status("wide")["pool"] == "l4"
    assert world.status("next")["phase"] == "Unschedulable"


async def test_what_was_written_counts_before_a_watch_tells() -> None:
    world = World()
    world.watching = False
    world.nodes(node("l4"))
    world.create("one", created=1)
    world.create("two", created=2)
    await world.settle()
    assert [bool(world.status(name).get("pool")) for name in ("one", "two")] == [True, False]


async def test_refused_ones_are_tried_again_when_capacity_changes_and_not_before() -> None:
    world = World()
    world.nodes(node("t4", product="NVIDIA-H100-NVL"))
    world.create("llama", placement={**ONE_GPU, "poolSelector": {"matchLabels": {"tier": "gold"}}})
    await world.settle()
    assert [row["reason"] for row in world.status("llama")["candidates"]] == ["PoolSelectorMismatch"]
    before = len(world.api.requests)
    await world.settle()
    assert len(world.api.requests) == before
    world.snapshot.pools.observe(
        pool_value(
            {
                "apiVersion": "wattkeeper.dev/v1alpha1",
                "kind": "GPUNodePool",
                "metadata": {
                    "name": "gold", "uid": "uid-gold", "resourceVersion": "5", "labels": {"tier": "gold"},
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": {"nodeSelector": {"kubernetes.io/hostname": "t4"}},
            }
        )
    )  # fmt: skip
    await world.settle()
    assert world.status("llama")["pool"] == "gold"


async def test_a_decision_that_only_differs_in_figures_is_not_written_again() -> None:
    world = World()
    world.nodes(node("l4", 4))
    world.pods(pod("other", "l4", 4))
    world.create("llama")
    await world.settle()
    version = world.resource("llama")["metadata"]["resourceVersion"]
    world.create("wide", replicas=4, created=1)
    world.nodes(node("l4", 3))  # one GPU less: still full
    await world.settle()
    assert world.resource("llama")["metadata"]["resourceVersion"] == version
    assert world.reasons().count("Unschedulable") == 2


#: Also two GPUs a replica, on L4s and A30s.
PAIRS = FakeForecaster(
    {**MEASURED.forecasts, ("NVIDIA-L4", 2): forecast(75, 40), ("NVIDIA-A30", 2): forecast(150, 15)}
)


async def waiting_for_a_binding() -> World:
    """`single` was promised one of three L4s, and may land on either node; `double` needs two on one."""
    world = World(PAIRS)
    world.nodes(node("l4-0", 2), node("l4-1", 1), node("a30", 2, product="NVIDIA-A30"))
    world.create("single", created=1)
    await world.settle()
    world.create("double", created=2, placement={"tensorParallelSize": 2})
    await world.settle()
    return world


async def test_one_that_waits_for_pods_to_bind_keeps_its_claim_against_younger_ones() -> None:
    world = await waiting_for_a_binding()
    assert world.condition("double", "Placed")["reason"] == "CapacitySettling"
    assert world.status("double")["phase"] == "Pending"
    assert not world.has_children("double")
    world.create("young", created=3)
    await world.settle()
    assert world.status("young")["pool"] == "a30"


async def test_settling_ends_with_the_best_of_what_is_free() -> None:
    world = await waiting_for_a_binding()
    world.now += 31
    claim = world.snapshot.claim(Key("team-a", "double"))
    assert claim is not None
    world.allocator.request(claim)
    await world.settle()
    assert world.status("double")["pool"] == "a30"
    assert "after 31 s of waiting" in world.condition("double", "Placed")["message"]


async def test_a_bound_pod_ends_the_waiting() -> None:
    world = await waiting_for_a_binding()
    world.run_pods("single", "l4-1")
    await world.settle()
    assert world.status("double")["pool"] == "l4"


# ---- placed ones ------------------------------------------------------------------------------------


async def test_a_running_one_is_reviewed_and_stays() -> None:
    world = World()
    world.nodes(node("l4"), node("a30", product="NVIDIA-A30"))
    await world.place("llama", "l4")
    world.edit("llama", sla={"interTokenLatency": "30ms"})
    await world.settle()
    status = world.status("llama")
    assert (status["pool"], status["observedGeneration"]) == ("l4", 2)
    assert "stays on l4" in world.condition("llama", "Placed")["message"]
    row = next(row for row in status["candidates"] if row["pool"] == "l4")
    assert row["reason"] == "SLAMissed"


async def test_one_without_bound_pods_is_placed_anew_after_a_change() -> None:
    world = World()
    world.nodes(node("l4"), node("a30", product="NVIDIA-A30"))
    world.create("llama", replicas=0)
    await world.settle()
    assert (world.status("llama")["pool"], world.status("llama")["phase"]) == ("l4", "Off")
    world.edit("llama", sla={"interTokenLatency": "30ms"})
    await world.settle()
    assert world.status("llama")["pool"] == "a30"
    affinity = str(world.child("llama")["spec"]["template"]["spec"]["affinity"])
    assert "NVIDIA-A30" in affinity


async def test_one_whose_pool_vanished_goes_elsewhere_after_a_while() -> None:
    world = World()
    world.nodes(node("l4"), node("a30", product="NVIDIA-A30"))
    await world.place("llama", "l4")
    world.gone("l4")
    world.no_pod("llama-0")
    await world.settle()
    assert world.status("llama")["pool"] == "l4"  # it may come back
    world.now += 31
    world.reconciler.recheck(Key("team-a", "llama"))
    await world.settle()
    assert world.status("llama")["pool"] == "a30"


async def test_without_anywhere_else_it_stays_where_it_waits() -> None:
    world = World()
    world.nodes(node("l4"))
    await world.place("llama", "l4")
    world.gone("l4")
    world.no_pod("llama-0")
    await world.settle()
    world.now += 31
    world.reconciler.recheck(Key("team-a", "llama"))
    await world.settle()
    assert world.status("llama")["pool"] == "l4"
    assert world.condition("llama", "Placed")["reason"] == "PoolGone"


@pytest.mark.parametrize(("gpus", "applied"), [(4, 2), (2, 1)])
async def test_another_parallel_size_is_applied_where_there_is_room(gpus: int, applied: int) -> None:
    both = FakeForecaster({**MEASURED.forecasts, ("NVIDIA-L4", 2): forecast(120, 35)})
    world = World(both)
    world.nodes(node("l4", gpus))
    await world.place("llama", "l4")
    world.edit("llama", placement={"tensorParallelSize": 2})
    await world.settle()
    assert world.status("llama")["gpusPerReplica"] == applied
    limits = world.child("llama")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": str(applied)}
    told = "isn't applied" in world.condition("llama", "Placed")["message"]
    assert told is (applied == 1)


async def test_half_a_record_is_completed() -> None:
    """A successor finds a pool in status, and nothing else: the promise stands, the rest is made anew."""
    world = World()
    world.nodes(node("l4"))
    world.told(llmd("llama", {"pool": "l4", "gpusPerReplica": 1}, placement=ONE_GPU))
    await world.settle()
    assert world.condition("llama", "Placed")["status"] == "True"
    assert world.has_children("llama")


async def test_one_that_is_stranded_still_gets_its_children_repaired() -> None:
    world = World()
    world.nodes(node("l4"))
    await world.place("llama", "l4")
    world.gone("l4")
    world.no_pod("llama-0")
    await world.settle()
    world.now += 31
    deployment = world.child("llama")
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "example.test/other"
    deployment["metadata"]["generation"] += 1
    world.seen(deployment)
    await world.settle()
    image = world.child("llama")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == "vllm/vllm-openai:v0.11.0"


async def test_an_answer_that_changes_no_status_still_brings_the_children_about() -> None:
    """The same figures for other pods: nothing to write, and yet something to do."""
    world = World()
    world.nodes(node("l4"))
    world.api.put(CONFIG_MAPS.path("team-a", "m"), config_map(32))
    await world.place("llama", "l4", model={"id": "acme/llm", "configMapRef": {"name": "m"}})
    version = world.resource("llama")["metadata"]["resourceVersion"]
    before = world.child("llama")["metadata"]["annotations"][ANNOTATION]
    world.api.put(CONFIG_MAPS.path("team-a", "m"), config_map(33))
    world.reconciler.recheck(Key("team-a", "llama"))
    await world.settle()
    assert world.child("llama")["metadata"]["annotations"][ANNOTATION] != before
    assert world.condition("llama", "Placed")["status"] == "True"
    assert int(world.resource("llama")["metadata"]["resourceVersion"]) >= int(version)


def config_map(layers: int) -> dict[str, Any]:
    text = json.dumps({"model_type": "llama", "num_hidden_layers": layers})
    return {"kind": "ConfigMap", "metadata": meta("m"), "data": {"config.json": text}}


async def test_a_status_that_was_lost_moves_no_running_replica() -> None:
    world = World()
    world.nodes(node("a30", product="NVIDIA-A30"))
    await world.place("llama", "a30")
    world.nodes(node("l4"))  # where it would go today
    resource = world.resource("llama")
    del resource["status"]
    resource["metadata"]["resourceVersion"] = world.api.version()
    world.snapshot.claims.observe(claim_of(resource))
    await world.settle()
    status = world.status("llama")
    assert (status["pool"], status["gpu"], status["phase"]) == ("a30", "A30", "Ready")
    assert "stays on a30" in world.condition("llama", "Placed")["message"]


async def test_those_that_wait_are_not_read_again_at_every_change() -> None:
    world = World()
    world.nodes(node("h100", product="NVIDIA-H100-NVL"))
    world.pods(pod("other", "h100"))
    world.create("llama")
    await world.settle()
    reads = [each.method for each in world.api.requests].count("GET")
    for gpus in (2, 3, 4):
        world.pods(pod(f"other-{gpus}", "h100", gpus))
        world.nodes(node("h100", gpus, product="NVIDIA-H100-NVL"))
        await world.settle()
    assert [each.method for each in world.api.requests].count("GET") <= reads + 1


# ---- what is refused, and what goes wrong --------------------------------------------------------


async def test_nothing_is_promised_where_the_server_refuses_the_children() -> None:
    world = World()
    world.nodes(node("l4"))
    world.deny("Pod", "exceeded quota: gpus")
    world.create("llama")
    await world.settle()
    assert "pool" not in world.status("llama")
    assert world.condition("llama", "Accepted")["reason"] == "QuotaExceeded"
    assert not world.has_children("llama")
    world.api.allow()
    await world.sweep.once()
    await world.settle()
    assert world.status("llama")["pool"] == "l4"


@pytest.mark.parametrize(
    ("message", "status", "reason"),
    [
        ("spec.template: Invalid value", 422, "InvalidTemplate"),
        ("violates PodSecurity", 403, "DeniedByPolicy"),
        (
            'deployments.apps is forbidden: User "u" cannot patch resource "deployments" in API group "apps"',
            403,
            "OperatorLacksRights",
        ),
    ],
)
async def test_refusals_have_their_reasons(message: str, status: int, reason: str) -> None:
    world = World()
    world.nodes(node("l4"))
    world.deny("Deployment", message, status)
    world.create("llama")
    await world.settle()
    assert world.condition("llama", "Accepted")["reason"] == reason
    assert message in world.condition("llama", "Accepted")["message"]


async def test_a_refused_model_is_named() -> None:
    refusal = Refusal(RefusalReason.UNKNOWN_MODEL, "spec.model.id", "isn't known: give its architecture")
    world = World(FakeForecaster({}, refuses_model=refusal))
    world.nodes(node("l4"))
    world.create("llama")
    await world.settle()
    assert world.condition("llama", "Placed")["reason"] == "UnknownModel"
    assert "spec.model.id" in world.condition("llama", "Placed")["message"]


async def test_an_invalid_spec_is_told_and_recovers() -> None:
    world = World()
    world.nodes(node("l4"))
    world.create("llama", sla={"interTokenLatency": "soon"})
    await world.settle()
    assert world.status("llama")["phase"] == "Invalid"
    assert "spec.sla.interTokenLatency" in world.condition("llama", "Accepted")["message"]
    world.edit("llama", sla={"interTokenLatency": "70ms"})
    await world.settle()
    assert world.status("llama")["pool"] == "l4"


async def test_a_change_in_between_is_decided_again() -> None:
    world = World()
    world.nodes(node("l4"))
    stale = iter([True])

    def once(request: object) -> bool:
        return str(request).endswith("/status") and next(stale, False)

    world.api.refuse(once, ConflictError("PATCH", 409, "Conflict", "modified"))
    world.allocator.retry_seconds = 0.01
    world.create("llama")
    await world.settle()
    await asyncio.sleep(0.05)
    await world.settle()
    assert world.status("llama")["pool"] == "l4"


async def test_a_decision_that_was_overtaken_is_made_anew() -> None:
    """While the children are tried on the server, somebody else's pod takes the GPU."""
    world = World()
    world.nodes(node("l4"))
    world.nodes(node("a30", product="NVIDIA-A30"))
    judge = world.children.judge_new
    overtaken = iter([True])

    async def slowly(*arguments: Any) -> None:
        await judge(*arguments)
        if next(overtaken, False):
            world.pods(pod("foreign", "l4"))

    world.children.judge_new = slowly  # type: ignore[method-assign]
    world.create("llama")
    await world.settle()
    assert world.status("llama")["pool"] == "a30"


async def test_one_that_is_gone_or_broken_keeps_no_claim_against_others() -> None:
    world = await waiting_for_a_binding()
    world.edit("double", model={"id": "nobody/knows-it", "configMapRef": {"name": "none"}})
    await world.settle()
    assert not world.allocator._waiting
    world = await waiting_for_a_binding()
    world.delete("double")
    await world.settle()
    assert not world.allocator._waiting


async def test_a_broken_one_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.nodes(node("l4"))
    broken = world.create("broken", created=1)
    world.api.refuse(
        lambda request: request.path.endswith("/broken"), TransientError("GET", 500, "E", "etcd")
    )
    world.create("fine", created=2)
    await world.settle()
    assert world.status("fine")["pool"] == "l4"
    assert "etcd" in caplog.text
    assert claim_of(broken).pool is None


async def test_unexpected_errors_are_logged_and_stop_nobody(caplog: pytest.LogCaptureFixture) -> None:
    world = World(FakeForecaster({("NVIDIA-L4", 1): forecast(71, 62)}))
    world.nodes(node("l4"))
    world.create("surprise", created=1, placement={"tensorParallelSize": 8})
    world.create("fine", created=2)
    world.nodes(node("big", 8))
    await world.settle()
    assert world.status("fine")["pool"] == "l4"
    assert "unexpected" in caplog.text


async def test_a_lost_lease_ends_the_allocator() -> None:
    world = World()
    world.nodes(node("l4"))
    world.create("llama")
    world.api.refuse(lambda request: request.writes, LeadershipLostError("gone"))  # type: ignore[arg-type]
    with pytest.raises(LeadershipLostError):
        await world.settle()


async def test_a_deleted_one_leaves_nothing_behind() -> None:
    world = World()
    world.nodes(node("l4"))
    world.create("ghost")
    world.api.objects.pop(LLM_DEPLOYMENTS.path("team-a", "ghost"))  # deleted, and no watch has told yet
    await world.settle()
    assert len(world.snapshot.claims) == 0
    deleting = llmd("deleting", placement=ONE_GPU)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.told(deleting)
    await world.settle()
    assert "status" not in world.resource("deleting")
