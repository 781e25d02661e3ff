"""Whatever happens, in whatever order: promises fit, what runs stays, and the end is quiet."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.handlers.world import NAMESPACE, ONE_GPU, World, node
from wattkeeper.kube.resources import DEPLOYMENTS, LLM_DEPLOYMENTS, SERVICES
from wattkeeper.kube.trim import Key

NAMES = ("a", "b", "c", "d")
NODES = {"l4-0": "NVIDIA-L4", "l4-1": "NVIDIA-L4", "a30-0": "NVIDIA-A30"}

STEPS = (
    "create", "delete", "scale", "sla", "args", "node", "no node", "bind", "drift", "lose", "sweep", "time",
)  # fmt: skip

steps = st.lists(
    st.tuples(
        st.sampled_from(STEPS),
        st.sampled_from(NAMES),
        st.integers(0, 3),
    ),
    min_size=3,
    max_size=14,
)


class History:
    """Steps that users and the cluster take, over one operator."""

    def __init__(self) -> None:
        self.world = World()
        self.created = 0

    def exists(self, name: str) -> bool:
        return LLM_DEPLOYMENTS.path(NAMESPACE, name) in self.world.api.objects

    def has_child(self, name: str) -> bool:
        return DEPLOYMENTS.path(NAMESPACE, name) in self.world.api.objects

    async def step(self, what: str, name: str, number: int) -> None:
        world, node_name = self.world, list(NODES)[number % len(NODES)]
        if what == "create" and not self.exists(name):
            self.created += 1
            self.fresh(name, replicas=number % 3)
        elif what == "node":
            world.nodes(node(node_name, 1 + number % 3, product=NODES[node_name]))
        elif what == "no node":
            self.lose_node(node_name)
        elif what == "sweep":
            await world.sweep.once()
        elif what == "time":
            world.now += 40
            await world.sweep.once()
        elif self.exists(name):
            self.to(what, name, number)

    def fresh(self, name: str, replicas: int) -> None:
        resource = self.world.create(name, created=self.created, replicas=replicas, placement=ONE_GPU)
        resource["metadata"]["uid"] = f"uid-{name}-{self.created}"
        self.world.snapshot.claims.forget(f"uid-{name}")
        self.world.told(resource)

    def to(self, what: str, name: str, number: int) -> None:
        world = self.world
        match what:
            case "delete":
                world.delete(name)
                self.lose_children(name)
            case "scale":
                world.edit(name, replicas=number)
            case "sla":
                world.edit(name, sla={"interTokenLatency": ("10ms", "30ms", "50ms", "70ms")[number]})
            case "args":
                world.edit(name, server={"args": ["--max-num-seqs", str(number + 1)]})
            case "bind":
                self.bind(name)
            case "drift" if self.has_child(name):
                child = world.child(name)
                child["spec"]["template"]["spec"]["containers"][0]["image"] = "example.test/drift"
                child["metadata"]["generation"] += 1
                world.seen(child)
            case "lose":
                self.lose_children(name, pods=False)

    def bind(self, name: str) -> None:
        """The scheduler binds what it can: by the pool's label, and never more than a node has."""
        world = self.world
        if not self.has_child(name):
            return
        child = world.child(name)
        pool = child["metadata"]["labels"]["wattkeeper.dev/pool"]
        free = [
            each.name
            for found in world.snapshot.built_pools()
            if found.name == pool
            for each in found.nodes
            for _ in range(each.gpus_free)
        ]
        held = {pod.name: pod.node for pod in world.snapshot.pods_of(Key(NAMESPACE, name))}
        for number in range(child["spec"]["replicas"]):
            pod_name = f"{name}-{number}"
            if pod_name not in held and free:
                world.run_one(pod_name, free.pop(), name)
        for pod_name in list(held):
            if int(pod_name.rpartition("-")[2]) >= child["spec"]["replicas"]:
                world.no_pod(pod_name)

    def lose_node(self, node_name: str) -> None:
        world = self.world
        world.gone(node_name)
        for pod in list(world.snapshot.pods):
            if pod.node == node_name:
                world.no_pod(pod.name)

    def lose_children(self, name: str, *, pods: bool = True) -> None:
        world = self.world
        for resource, store in ((DEPLOYMENTS, world._child), (SERVICES, world._service)):
            gone = world.api.objects.pop(resource.path(NAMESPACE, name), None)
            if gone is not None:
                store.apply(gone["metadata"]["uid"], None)
        for pod in list(world.snapshot.pods_of(Key(NAMESPACE, name))) if pods else []:
            world.no_pod(pod.name)

    # ---- what must hold --------------------------------------------------------------------------

    def running(self) -> dict[str, str]:
        """Nodes by pod."""
        return {pod.name: pod.node for pod in self.world.snapshot.pods if pod.node}

    def check(self) -> None:
        for name in NAMES:
            if not self.exists(name):
                continue
            status = self.world.status(name)
            assert status.get("phase"), name
            if status.get("pool"):
                assert self.has_child(name), f"{name} is placed and has no child"
                child = self.world.child(name)
                replicas = self.world.resource(name)["spec"]["replicas"]
                assert child["spec"]["replicas"] == replicas
                assert child["metadata"]["labels"]["wattkeeper.dev/pool"] == status["pool"]
                image = child["spec"]["template"]["spec"]["containers"][0]["image"]
                assert image != "example.test/drift"
            else:
                assert not self.has_child(name), f"{name} isn't placed and has a child"


async def play(history: History, taken: list[tuple[str, str, int]]) -> None:
    for what, name, number in taken:
        before = {
            claim.key.name: claim.pool
            for claim in history.world.snapshot.claims
            if history.world.snapshot.bound(claim.key)
        }
        await history.step(what, name, number)
        await history.world.settle()
        history.check()
        for claim in history.world.snapshot.claims:
            still_runs = history.world.snapshot.bound(claim.key) > 0
            if still_runs and claim.key.name in before and what not in ("delete", "create"):
                assert claim.pool == before[claim.key.name], f"{claim.key} was moved while it ran"


async def newcomers_fit(history: History) -> None:
    """Two that ask for what one can have: exactly as many are placed as there are GPUs."""
    world = history.world
    for name in NAMES:
        if history.exists(name):
            history.to("delete", name, 0)
    for node_name in NODES:
        history.lose_node(node_name)
    world.nodes(node("l4-0", 2))
    await world.settle()
    for name in NAMES:
        history.created += 1
        history.fresh(name, replicas=1)
    await world.settle()
    placed = Counter(bool(world.status(name).get("pool")) for name in NAMES)
    assert placed == {True: 2, False: 2}


async def the_end_is_quiet(history: History) -> None:
    world = history.world
    world.now += 1000
    for _ in range(3):
        await world.sweep.once()
        await world.settle()
    writes = len(world.api.writes())
    await world.sweep.once()
    await world.settle()
    assert [str(each) for each in world.api.writes()[writes:]] == []


def run(play_it: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(play_it())


#: Every history begins with a model that runs and room elsewhere: otherwise few would ever get so far.
BEGINNING = [("node", "a", 0), ("node", "a", 1), ("node", "a", 2), ("create", "a", 1), ("bind", "a", 1)]


@settings(max_examples=40, deadline=None)
@given(steps)
@example([("sla", "a", 1), ("sla", "a", 3)])  # it would go elsewhere today, and mustn't while it runs
@example([("drift", "a", 0), ("lose", "a", 0)])
def test_any_history(taken: list[tuple[str, str, int]]) -> None:
    async def whole() -> None:
        history = History()
        await play(history, [*BEGINNING, *taken])
        await the_end_is_quiet(history)
        await newcomers_fit(history)

    run(whole)
