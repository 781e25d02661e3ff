"""GPUNodePools: found, told about, removed when they are of no use."""

from typing import Any

import pytest

from tests.unit.handlers.world import World, node
from tests.unit.kube.objects import pool
from wattkeeper.kube.resources import GPU_NODE_POOLS
from wattkeeper.kube.trim import pool_value


def told(world: World, resource: dict[str, Any]) -> None:
    """A GPUNodePool that a user wrote or changed."""
    resource["metadata"]["resourceVersion"] = world.api.version()
    world.api.put(GPU_NODE_POOLS.path(None, resource["metadata"]["name"]), resource)
    world.snapshot.pools.observe(pool_value(resource))


def found(world: World, name: str) -> dict[str, Any]:
    resource = world.pool(name)
    assert resource is not None
    return resource


async def test_a_pool_is_found_labelled_and_told_about() -> None:
    world = World()
    world.nodes(node("a", 2), node("b", 1))
    await world.pools.keep()
    l4 = found(world, "l4")
    assert l4["spec"] == {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}
    assert l4["metadata"]["labels"]["wattkeeper.dev/discovered"] == "true"
    assert l4["metadata"]["labels"]["wattkeeper.dev/gpu"] == "l4"
    status = l4["status"]
    assert (status["gpu"], status["nodes"], status["gpus"], status["freeGPUs"]) == ("L4", 2, 3, 3)


async def test_what_is_the_same_is_not_written() -> None:
    world = World()
    world.nodes(node("a"))
    await world.pools.keep()
    writes = len(world.api.writes())
    await world.pools.keep()
    assert len(world.api.writes()) == writes
    world.nodes(node("a", 2))
    await world.pools.keep()
    assert len(world.api.writes()) == writes + 1


async def test_a_users_pool_gets_status_alone() -> None:
    world = World()
    world.nodes(node("a"), node("b"))
    mine = pool("mine", {"kubernetes.io/hostname": "a"}, tier="gold")
    told(world, mine)
    await world.pools.keep()
    kept = found(world, "mine")
    assert kept["metadata"]["labels"] == {"tier": "gold"}
    assert kept["spec"] == {"nodeSelector": {"kubernetes.io/hostname": "a"}}
    assert kept["status"]["nodes"] == 1
    assert found(world, "l4")["status"]["nodes"] == 1


async def test_labels_and_budget_that_users_add_to_a_found_pool_stay() -> None:
    world = World()
    world.nodes(node("a"))
    await world.pools.keep()
    l4 = found(world, "l4")
    l4["metadata"]["labels"]["tier"] = "gold"
    l4["spec"]["powerBudgetWatts"] = 500
    told(world, l4)
    await world.pools.keep()
    assert found(world, "l4")["spec"]["powerBudgetWatts"] == 500
    built = world.snapshot.pool("l4")
    assert built is not None
    assert (built.labels["tier"], built.power_budget_watts) == ("gold", 500)
    conditions = {each["type"]: each["reason"] for each in found(world, "l4")["status"]["conditions"]}
    assert conditions["PowerBudgetEnforced"] == "NotImplemented"


async def test_a_pool_without_nodes_is_told_so_kept_for_a_while_and_removed() -> None:
    world = World()
    world.nodes(node("a"))
    await world.pools.keep()
    world.gone("a")
    await world.pools.keep()
    assert found(world, "l4")["status"]["nodes"] == 0
    world.now += 599
    await world.pools.keep()
    assert world.pool("l4") is not None
    world.now += 2
    await world.pools.keep()
    assert world.pool("l4") is None
    assert len(world.snapshot.pools) == 0


async def test_nodes_that_come_back_find_their_pool() -> None:
    world = World()
    world.nodes(node("a"))
    await world.pools.keep()
    uid = found(world, "l4")["metadata"]["uid"]
    world.gone("a")
    await world.pools.keep()
    world.now += 599
    world.nodes(node("a"))
    await world.pools.keep()
    world.gone("a")
    await world.pools.keep()
    world.now += 599
    await world.pools.keep()
    assert found(world, "l4")["metadata"]["uid"] == uid


@pytest.mark.parametrize("why", ["used", "labelled", "budget"])
async def test_a_pool_that_somebody_cares_for_stays(why: str) -> None:
    world = World()
    world.nodes(node("a"))
    await world.pools.keep()
    if why == "used":
        world.create("llama")
        await world.settle()
    else:
        l4 = found(world, "l4")
        if why == "labelled":
            labels = {"f:labels": {"f:tier": {}}}
            l4["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:metadata": labels}}]
        else:
            l4["spec"]["powerBudgetWatts"] = 500
        told(world, l4)
    world.gone("a")
    await world.pools.keep()
    world.now += 601
    await world.pools.keep()
    assert world.pool("l4") is not None


async def test_a_users_pool_without_nodes_is_never_removed() -> None:
    world = World()
    told(world, pool("mine", {"kubernetes.io/hostname": "nowhere"}))
    await world.pools.keep()
    world.now += 10_000
    await world.pools.keep()
    conditions = {each["type"]: each["status"] for each in found(world, "mine")["status"]["conditions"]}
    assert conditions["Ready"] == "False"


async def test_a_users_pool_that_cannot_be_read_is_not_overwritten() -> None:
    world = World()
    world.nodes(node("a"))
    broken = pool("l4", {})
    told(world, broken)
    await world.pools.keep()
    assert found(world, "l4")["spec"] == {"nodeSelector": {}}
    assert "status" not in found(world, "l4")


async def test_an_unknown_gpu_has_a_pool_that_says_so() -> None:
    from dataclasses import replace  # noqa: PLC0415

    from tests.unit.core.placing import MEASURED  # noqa: PLC0415

    world = World(replace(MEASURED, unknown_gpus=frozenset({"NVIDIA-Z9"})))
    world.nodes(node("z", product="NVIDIA-Z9"))
    await world.pools.keep()
    (name,) = [record.name for record in world.snapshot.pools]
    conditions = {each["type"]: each for each in found(world, name)["status"]["conditions"]}
    assert conditions["GPUKnown"]["status"] == "False"
    assert "NVIDIA-Z9" in conditions["GPUKnown"]["message"]
