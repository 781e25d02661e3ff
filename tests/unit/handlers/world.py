"""The operator's parts over a cluster in memory, worked by hand: no kopf, no clock but the test's."""

import asyncio
import copy
from datetime import UTC, datetime
from typing import Any, cast

from tests.unit.core.placing import MEASURED, FakeForecaster
from tests.unit.handlers.memory_api import MemoryApi
from tests.unit.kube.objects import llmd, node, pod
from wattkeeper.handlers.allocator import Allocator
from wattkeeper.handlers.children import Children
from wattkeeper.handlers.metrics import Metrics
from wattkeeper.handlers.pools import PoolKeeper
from wattkeeper.handlers.reconciler import Reconciler
from wattkeeper.handlers.reporter import Reporter
from wattkeeper.handlers.standing import Standings
from wattkeeper.handlers.sweep import Sweep
from wattkeeper.handlers.tools import Tools
from wattkeeper.handlers.workqueue import WorkQueue
from wattkeeper.kube.client import Client, Object, Request
from wattkeeper.kube.errors import DeniedError
from wattkeeper.kube.events import EventRecorder
from wattkeeper.kube.executor import Executor
from wattkeeper.kube.resources import DEPLOYMENTS, GPU_NODE_POOLS, LLM_DEPLOYMENTS, SERVICES
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import (
    Key,
    child_value,
    claim_of,
    node_value,
    pod_value,
    pool_value,
    service_value,
)

NAMESPACE = "team-a"
#: One GPU a replica, so that forecasts for other sizes needn't be told.
ONE_GPU = {"tensorParallelSize": 1}


class World:
    """Everything that the leader has. `settle` lets it work until nothing is left to do."""

    def __init__(self, forecaster: FakeForecaster = MEASURED) -> None:
        self.api = MemoryApi()
        self.api.on_write = self._watched
        self.now = 1000.0
        self.snapshot = Snapshot()
        self.queue: WorkQueue[Key] = WorkQueue(jitter=lambda: 1.0)
        client = cast(Client, self.api)
        executor = Executor(client)
        self.events = EventRecorder(client, "test", self._clock)
        self.children = Children(executor, self.snapshot, forecaster, 10)
        reporter = Reporter(executor, self.events, self.snapshot, self._date)
        self.metrics = Metrics()
        tools = Tools(executor, self.snapshot, self.children, reporter, self.metrics, self._clock)
        self.standings = Standings(self.snapshot, self.children, self._clock, 30)
        self.allocator = Allocator(tools, self.standings, forecaster, settling_seconds=30)
        self.reconciler = Reconciler(
            tools, self.standings, self.allocator, self.queue, conflict_hold_seconds=60
        )
        self.allocator.answered = self.reconciler.recheck
        self.pools = PoolKeeper(tools, forecaster, self._date)
        self.sweep = Sweep(client, tools, self.reconciler, self.allocator, self.pools)
        self.snapshot.touched = self.queue.add
        self.snapshot.capacity_changed = self.allocator.capacity_settled
        self.snapshot.gone = self._forget
        self.watching = True

    def _clock(self) -> float:
        return self.now

    def _date(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def _forget(self, claim: Any) -> None:
        self.allocator.forget(claim.uid)
        self.children.forget(claim.uid)
        self.standings.forget(claim.uid)

    # ---- the cluster -----------------------------------------------------------------------------

    def nodes(self, *things: Object) -> None:
        for thing in things:
            self.snapshot.nodes.apply(thing["metadata"]["uid"], node_value(thing))

    def gone(self, *names: str) -> None:
        for name in names:
            self.snapshot.nodes.apply(f"uid-{name}", None)

    def pods(self, *things: Object) -> None:
        for thing in things:
            self.snapshot.pods.apply(thing["metadata"]["uid"], pod_value(thing))

    def no_pod(self, *names: str) -> None:
        for name in names:
            self.snapshot.pods.apply(f"uid-{name}", None)

    def create(self, name: str, created: int = 0, **spec: Any) -> Object:
        """An LLMDeployment that kopf has told of."""
        resource = llmd(name, created=created, **({"placement": ONE_GPU} | spec))
        return self.told(resource)

    def told(self, resource: Object) -> Object:
        metadata = resource["metadata"]
        self.api.put(LLM_DEPLOYMENTS.path(metadata["namespace"], metadata["name"]), resource)
        self.snapshot.claims.observe(claim_of(resource))
        return resource

    def edit(self, name: str, **spec: Any) -> None:
        """A user changes the spec."""
        resource = self.resource(name)
        resource["spec"] |= spec
        resource["metadata"]["generation"] += 1
        resource["metadata"]["resourceVersion"] = self.api.version()
        self.snapshot.claims.observe(claim_of(resource))

    def delete(self, name: str) -> None:
        resource = self.api.objects.pop(LLM_DEPLOYMENTS.path(NAMESPACE, name))
        self.snapshot.claims.forget(resource["metadata"]["uid"])

    def _watched(self, thing: Object) -> None:
        """What a watch would tell of what was stored."""
        if not self.watching:
            return
        uid = thing["metadata"]["uid"]
        match thing["kind"]:
            case "Deployment":
                self._child.apply(uid, child_value(thing))
            case "Service":
                self._service.apply(uid, service_value(thing))
            case "LLMDeployment":
                self.snapshot.claims.observe(claim_of(thing))
            case "GPUNodePool":
                self.snapshot.pools.observe(pool_value(thing))

    @property
    def _child(self) -> Any:
        if not hasattr(self, "_child_store"):
            self._child_store = self.snapshot.child_store()
        return self._child_store

    @property
    def _service(self) -> Any:
        if not hasattr(self, "_service_store"):
            self._service_store = self.snapshot.service_store()
        return self._service_store

    def run_pods(self, name: str, node_name: str, ready: bool = True) -> None:
        """The Deployment controller, the scheduler and the kubelet do their work for a model."""
        deployment = self.child(name)
        wanted = deployment["spec"]["replicas"]
        self.pods(*(pod(f"{name}-{i}", node_name, model=name) for i in range(wanted)))
        deployment["status"] = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": wanted,
            "updatedReplicas": wanted,
            "readyReplicas": wanted if ready else 0,
        }
        self.seen(deployment)

    def run_one(self, pod_name: str, node_name: str, model: str) -> None:
        """One pod of a model is bound and answers."""
        self.pods(pod(pod_name, node_name, model=model))
        deployment = self.child(model)
        count = sum(bool(each.node) for each in self.snapshot.pods_of(Key(NAMESPACE, model)))
        deployment["status"] = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": count,
            "updatedReplicas": count,
            "readyReplicas": count,
        }
        self.seen(deployment)

    def seen(self, thing: Object) -> None:
        """A watch tells of a changed child."""
        thing["metadata"]["resourceVersion"] = self.api.version()
        self._watched(copy.deepcopy(thing))

    # ---- the operator ----------------------------------------------------------------------------

    async def settle(self) -> None:
        """Work until nothing is left to do; what waits for time goes on waiting."""
        working = [
            asyncio.create_task(self.allocator.work()),
            asyncio.create_task(self.reconciler.work()),
        ]
        try:
            async with asyncio.timeout(20):
                quiet = 0
                while quiet < 20:
                    await asyncio.sleep(0.002)
                    done = [task for task in working if task.done()]
                    if done:
                        await done[0]
                    busy = not self.queue.idle or self.allocator.busy
                    quiet = 0 if busy else quiet + 1
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
        await self.events.flush()

    async def place(self, name: str, node_name: str, **spec: Any) -> None:
        """A model that runs."""
        self.create(name, **spec)
        await self.settle()
        self.run_pods(name, node_name)
        await self.settle()

    # ---- what became of it -----------------------------------------------------------------------

    def resource(self, name: str) -> Object:
        return self.api.objects[LLM_DEPLOYMENTS.path(NAMESPACE, name)]

    def status(self, name: str) -> Object:
        return dict(self.resource(name).get("status") or {})

    def condition(self, name: str, kind: str) -> Object:
        conditions = self.status(name).get("conditions") or []
        return next((each for each in conditions if each["type"] == kind), {})

    def child(self, name: str) -> Object:
        return self.api.objects[DEPLOYMENTS.path(NAMESPACE, name)]

    def has_children(self, name: str) -> bool:
        paths = (DEPLOYMENTS.path(NAMESPACE, name), SERVICES.path(NAMESPACE, name))
        return any(path in self.api.objects for path in paths)

    def pool(self, name: str) -> Object | None:
        return self.api.objects.get(GPU_NODE_POOLS.path(None, name))

    def reasons(self) -> list[str]:
        """The reasons of the Events that were written."""
        return [event["reason"] for event in self.api.events]

    def deny(self, kind: str, message: str, status: int = 403) -> None:
        """The API server refuses this kind of object, in dry runs too."""
        error = DeniedError(f"PATCH {kind}", status, "Forbidden", message)

        def is_kind(request: Request) -> bool:
            return request.kind == kind and request.method in ("PATCH", "POST")

        self.api.refuse(is_kind, error)


__all__ = ["NAMESPACE", "World", "node", "pod"]
