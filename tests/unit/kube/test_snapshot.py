"""The fleet as the trimmed copies tell it, and when it is worth deciding again."""

from typing import Any

from tests.unit.kube.objects import llmd, node, pod, pool
from wattkeeper.core.fleet import Reservation
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import Key, claim_of, node_value, pod_value, pool_value

LLAMA = Key("team-a", "llama")


class World:
    """A snapshot that is told of objects, as the reflectors and kopf tell it."""

    def __init__(self) -> None:
        self.touched: list[Key] = []
        self.gone: list[str] = []
        self.snapshot = Snapshot(
            touched=self.touched.append, gone=lambda claim: self.gone.append(claim.key.name)
        )

    def put(self, *things: dict[str, Any]) -> None:
        for thing in things:
            uid = thing["metadata"]["uid"]
            if thing.get("kind") == "LLMDeployment":
                self.snapshot.claims.observe(claim_of(thing))
            elif thing.get("kind") == "GPUNodePool":
                self.snapshot.pools.observe(pool_value(thing))
            elif "allocatable" in thing["status"]:
                self.snapshot.nodes.apply(uid, node_value(thing))
            else:
                self.snapshot.pods.apply(uid, pod_value(thing))

    def moved(self, *things: dict[str, Any]) -> bool:
        """Whether these news make room for somebody, perhaps."""
        before = self.snapshot.capacity_version
        self.put(*things)
        return self.snapshot.capacity_version != before

    def free(self) -> dict[str, int]:
        pools = self.snapshot.fleet().pools
        return {each.name: sum(node.gpus_free for node in each.nodes) for each in pools}

    def promises(self) -> list[Reservation]:
        return list(self.snapshot.fleet().reservations)


def placed(replicas: int = 1, **more: Any) -> dict[str, Any]:
    return llmd("llama", {"pool": "l4", "gpusPerReplica": 1, **more}, replicas=replicas)


def test_gpus_are_counted_per_node() -> None:
    world = World()
    world.put(node("a", 4), node("b", 2), pod("p", "a", 3), pod("q", "b", 2), pod("waiting", "", 8))
    assert world.free() == {"l4": 1}
    (l4,) = world.snapshot.fleet().pools
    assert {each.name: each.gpus_held for each in l4.nodes} == {"a": 3, "b": 2}
    world.snapshot.pods.apply("uid-p", None)
    assert world.free() == {"l4": 4}


def test_promises_are_rebuilt_from_status_and_bound_pods() -> None:
    world = World()
    world.put(node("a", 8), placed(replicas=3))
    (promise,) = world.promises()
    assert (promise.owner_uid, promise.pool, promise.replicas) == ("uid-llama", "l4", 3)
    world.put(pod("p-0", "a", model="llama"), pod("p-1", "", model="llama"))
    (promise,) = world.promises()
    assert promise.replicas == 2  # one is bound, one waits, one doesn't exist yet
    world.put(pod("p-1", "a", model="llama"), pod("p-2", "a", model="llama"))
    assert world.promises() == []


def test_neither_unplaced_nor_deleted_ones_hold_promises() -> None:
    world = World()
    deleting = placed()
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(node("a"), llmd("other"), deleting)
    assert world.promises() == []


def test_what_may_make_room_moves_the_version() -> None:
    world = World()
    assert world.moved(node("a", 2))
    assert not world.moved(node("a", 2))  # a heartbeat
    assert world.moved(node("a", 3))
    assert world.moved(pool("mine", {"kubernetes.io/hostname": "a"}))
    assert not world.moved(pool("mine", {"kubernetes.io/hostname": "a"}))  # its status was written
    assert not world.moved(pod("p", "", 1))  # takes nothing yet
    assert world.moved(pod("p", "a", 1))
    assert not world.moved(placed(replicas=2))  # a new promise makes no room
    assert world.moved(placed(replicas=1))  # a smaller one does
    before = world.snapshot.capacity_version
    world.snapshot.claims.forget("uid-llama")
    assert world.snapshot.capacity_version > before


def test_the_models_concerned_are_touched() -> None:
    world = World()
    world.put(placed())
    world.put(pod("p", "a", model="llama"), pod("other", "a"))
    assert set(world.touched) == {LLAMA}
    assert [each.name for each in world.snapshot.pods_of(LLAMA)] == ["p"]
    world.snapshot.pods.replace({})
    assert list(world.snapshot.pods_of(LLAMA)) == []
    assert world.snapshot.bound(LLAMA) == 0


def test_the_youngest_of_a_name_is_the_one() -> None:
    world = World()
    old, new = placed(), llmd("llama")
    new["metadata"]["uid"] = "uid-new"
    world.put(old, new)
    world.snapshot.claims.forget("uid-llama")
    claim = world.snapshot.claim(LLAMA)
    assert claim is not None
    assert claim.uid == "uid-new"
    assert world.gone == ["llama"]
    world.snapshot.claims.forget("uid-new")
    assert world.snapshot.claim(LLAMA) is None


def test_creation_order() -> None:
    world = World()
    world.put(llmd("c", created=3), llmd("a", created=5), llmd("b", created=3))
    assert [claim.key.name for claim in world.snapshot.in_creation_order()] == ["b", "c", "a"]


def test_pools_are_built_once_for_each_state() -> None:
    world = World()
    world.put(node("a"))
    first = world.snapshot.built_pools()
    assert world.snapshot.built_pools() is first
    world.put(llmd("llama"))
    assert world.snapshot.built_pools() is first
    world.put(node("b"))
    assert world.snapshot.built_pools() is not first
    assert world.snapshot.pool("l4") is not None
    assert world.snapshot.pool("nowhere") is None
