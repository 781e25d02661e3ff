"""The cluster at this moment, from the trimmed copies: the core's Fleet, and what belongs to each model.

`capacity_version` counts the changes that may make room: nodes, pods that hold GPUs, pools, released
promises. A placement that was refused needn't be tried again before it moves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from wattkeeper.core.fleet import Fleet, GpuNode, Pool, Reservation, WrittenPool
from wattkeeper.core.pools import build_pools
from wattkeeper.kube.cache import NewestCache
from wattkeeper.kube.reflector import Store
from wattkeeper.kube.trim import ChildRecord, Claim, Key, PodRecord, PoolRecord, ServiceRecord

R = TypeVar("R", ChildRecord, ServiceRecord)

#: Called with the key of an LLMDeployment whose claim, children or pods changed.
Touched = Callable[[Key], None]


@dataclass(slots=True)
class Snapshot:
    """All trimmed copies. The callbacks are set by whoever acts on changes."""

    touched: Touched = lambda key: None
    gone: Callable[[Claim], None] = lambda claim: None
    capacity_changed: Callable[[], None] = lambda: None
    capacity_version: int = 0
    claims: NewestCache[Claim] = field(init=False)
    pools: NewestCache[PoolRecord] = field(init=False)
    nodes: Store[GpuNode] = field(init=False)
    pods: Store[PodRecord] = field(init=False)
    children: dict[Key, ChildRecord] = field(default_factory=dict)
    services: dict[Key, ServiceRecord] = field(default_factory=dict)
    _claims_by_key: dict[Key, Claim] = field(default_factory=dict)
    _pods_by_owner: dict[Key, dict[str, PodRecord]] = field(default_factory=lambda: defaultdict(dict))
    _held: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _built: tuple[int, tuple[Pool, ...]] = (-1, ())

    def __post_init__(self) -> None:
        self.claims = NewestCache(self._claim_changed)
        self.pools = NewestCache(self._pool_changed)
        self.nodes = Store(self._node_changed)
        self.pods = Store(self._pod_changed)

    # ---- questions -------------------------------------------------------------------------------

    def fleet(self) -> Fleet:
        """The fleet with every promise that stands."""
        return Fleet(self.built_pools(), tuple(self._promises()))

    def built_pools(self) -> tuple[Pool, ...]:
        """The pools with their nodes and the GPUs that pods hold."""
        version, pools = self._built
        if version != self.capacity_version:
            nodes = [replace(node, gpus_held=self._held.get(node.name, 0)) for node in self.nodes]
            written, discovered = self._written_and_discovered()
            pools = build_pools(nodes, written, discovered)
            self._built = (self.capacity_version, pools)
        return pools

    def pool(self, name: str) -> Pool | None:
        return next((pool for pool in self.built_pools() if pool.name == name), None)

    def claim(self, key: Key) -> Claim | None:
        return self._claims_by_key.get(key)

    def pods_of(self, key: Key) -> Iterable[PodRecord]:
        return self._pods_by_owner.get(key, {}).values()

    def bound(self, key: Key) -> int:
        """Pods of an LLMDeployment that are bound to a node and haven't ended."""
        return sum(bool(pod.node) for pod in self.pods_of(key))

    def in_creation_order(self) -> list[Claim]:
        return sorted(self.claims, key=lambda claim: claim.order)

    # ---- how it comes about ----------------------------------------------------------------------

    def _promises(self) -> Iterable[Reservation]:
        for claim in self.in_creation_order():
            if claim.pool is None or claim.deleting:
                continue
            unbound = claim.replicas - self.bound(claim.key)
            if unbound > 0:
                yield Reservation(
                    claim.uid,
                    claim.pool,
                    claim.gpus_per_replica,
                    unbound,
                    claim.tolerations,
                    claim.node_selector,
                )

    def _written_and_discovered(self) -> tuple[list[WrittenPool], list[WrittenPool]]:
        parsed = [record.parsed for record in self.pools if record.parsed is not None]
        return [each.pool for each in parsed if not each.discovered], [
            each.pool for each in parsed if each.discovered
        ]

    def _claim_changed(self, before: Claim | None, after: Claim | None) -> None:
        claim = after or before
        assert claim is not None
        if after is not None:
            self._claims_by_key[claim.key] = after
        else:
            self.gone(claim)
            if self._claims_by_key.get(claim.key) is before:
                del self._claims_by_key[claim.key]
        if before is not None and before.pool is not None and _released(before, after):
            self._moved()
        self.touched(claim.key)

    def _pool_changed(self, before: PoolRecord | None, after: PoolRecord | None) -> None:
        if (before.parsed if before else None) != (after.parsed if after else None):
            self._moved()

    def _node_changed(self, _before: GpuNode | None, _after: GpuNode | None) -> None:
        self._moved()

    def _pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        for pod, sign in ((before, -1), (after, 1)):
            if pod is not None and pod.node:
                self._held[pod.node] += sign * pod.gpus
        for pod, present in ((before, False), (after, True)):
            if pod is not None and pod.owner is not None:
                self._keep_of_owner(pod, present)
        if _holds(before) != _holds(after):
            self._moved()
        owners = {pod.owner for pod in (before, after) if pod is not None and pod.owner is not None}
        for owner in owners:
            self.touched(owner)

    def _keep_of_owner(self, pod: PodRecord, present: bool) -> None:
        assert pod.owner is not None
        pods = self._pods_by_owner[pod.owner]
        if present:
            pods[pod.name] = pod
        else:
            pods.pop(pod.name, None)
            if not pods:
                self._pods_by_owner.pop(pod.owner, None)

    def child_store(self) -> Store[ChildRecord]:
        """A store of child Deployments, for one more reflector."""
        return Store(self._child_changed)

    def service_store(self) -> Store[ServiceRecord]:
        """A store of child Services, for one more reflector."""
        return Store(self._service_changed)

    def _child_changed(self, before: ChildRecord | None, after: ChildRecord | None) -> None:
        self.touched(_keep(self.children, before, after))

    def _service_changed(self, before: ServiceRecord | None, after: ServiceRecord | None) -> None:
        self.touched(_keep(self.services, before, after))

    def _moved(self) -> None:
        self.capacity_version += 1
        self.capacity_changed()


def _keep(index: dict[Key, R], before: R | None, after: R | None) -> Key:
    """Bring the index up to date; returns the key that the change is about."""
    if after is not None:
        index[after.key] = after
        return after.key
    assert before is not None
    if index.get(before.key) == before:  # not when another object has the name meanwhile
        del index[before.key]
    return before.key


def _released(before: Claim, after: Claim | None) -> bool:
    """Whether a claim gives up GPUs that it was promised."""
    if after is None or after.deleting != before.deleting:
        return True
    return after.pool != before.pool or after.replicas * after.gpus_per_replica < (
        before.replicas * before.gpus_per_replica
    )


def _holds(pod: PodRecord | None) -> tuple[str, int]:
    return (pod.node, pod.gpus) if pod is not None and pod.node else ("", 0)
