"""Free GPUs, counted per node, so that two LLMDeployments never both get the last one.

A pod's GPUs must be on one node: a pool takes Σ floor(free_n ÷ g) pods of g GPUs, not floor(Σ free_n ÷ g).
Pods of LLMDeployments that are placed but not bound yet may land on any of the pool's nodes, wherever
kube-scheduler likes. What is left for certain after promises r is

    slots(g) − Σ_r replicas_r · ceil(h_r ÷ g)

since a pod of h GPUs takes at most ceil(h ÷ g) slots of g from the node that it lands on. A newcomer is
admitted if that leaves room for its replicas, and if, with the newcomer among the promises, the same holds
for every earlier promise. Each binding keeps these inequalities true (it takes at most ceil(h ÷ g) slots from
one side and as much from the other), so no order of bindings and no choice of nodes can strand a replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from wattkeeper.core.demand import Demand, Toleration
from wattkeeper.core.fleet import Fleet, GpuNode, Pool, Reservation, Taint
from wattkeeper.core.selectors import label_equals, matches
from wattkeeper.core.taints import first_untolerated


class Room(StrEnum):
    """Whether a pool has room for a newcomer's replicas."""

    ENOUGH = "Enough"  # for certain
    SETTLING = "Settling"  # if the pods that aren't bound yet land well
    FULL = "Full"


@dataclass(frozen=True, slots=True)
class Eligibility:
    """A pool's nodes that take a pod; without any, what kept off the last of them.

    `taint` and `unschedulable` are set only where `nodes` is empty and they are the reason.
    """

    nodes: tuple[GpuNode, ...]
    taint: Taint | None = None
    unschedulable: int = 0


def eligible_nodes(pool: Pool, demand: Demand) -> Eligibility:
    """The pool's nodes that the demand's pods may be bound to."""
    selected = _selected(pool.nodes, demand)
    tolerated = [node for node in selected if first_untolerated(node.taints, demand.tolerations) is None]
    if selected and not tolerated:
        return Eligibility((), taint=first_untolerated(selected[0].taints, demand.tolerations))
    schedulable = tuple(node for node in tolerated if node.schedulable)
    return Eligibility(schedulable, unschedulable=0 if schedulable else len(tolerated))


def _selected(nodes: Iterable[GpuNode], pods: Demand | Reservation) -> list[GpuNode]:
    wanted = label_equals(pods.node_selector)
    return [node for node in nodes if matches(wanted, node.labels)]


def _takes(node: GpuNode, tolerations: Sequence[Toleration]) -> bool:
    return node.schedulable and first_untolerated(node.taints, tolerations) is None


def slots(nodes: Iterable[GpuNode], gpus: int) -> int:
    """How many pods of `gpus` GPUs fit on the nodes now."""
    return sum(node.gpus_free // gpus for node in nodes)


def promises_to_others(fleet: Fleet, pool: Pool, uid: str) -> list[Reservation]:
    """The pool's promises to LLMDeployments other than `uid`, the largest pods first."""
    others = [
        each
        for each in fleet.reservations
        if each.pool == pool.name and each.owner_uid != uid and each.replicas > 0
    ]
    return sorted(others, key=lambda each: (-each.gpus_per_replica, each.owner_uid))


def gpus_unpromised(nodes: Iterable[GpuNode], promises: Iterable[Reservation]) -> int:
    """GPUs that no pod has and nobody was promised."""
    free = sum(node.gpus_free for node in nodes)
    return max(0, free - sum(each.replicas * each.gpus_per_replica for each in promises))


def room_for(pool: Pool, newcomer: Reservation, promises: Sequence[Reservation]) -> Room:
    """Whether the pool takes the newcomer's replicas beside all promises, wherever those get bound."""
    if newcomer.replicas <= 0:
        return Room.ENOUGH
    promises = _by_shape(promises)
    if _certain(pool, newcomer, promises) >= newcomer.replicas and all(
        _keeps_its_promise(pool, promise, newcomer, promises) for promise in promises
    ):
        return Room.ENOUGH
    return Room.SETTLING if _best_fit_holds(pool, [*promises, newcomer]) else Room.FULL


def replicas_left(pool: Pool, newcomer: Reservation, promises: Iterable[Reservation]) -> int:
    """How many of the newcomer's replicas fit for certain beside all promises."""
    return max(0, _certain(pool, newcomer, promises))


def _by_shape(promises: Iterable[Reservation]) -> list[Reservation]:
    """Promises of one shape as one: what they may take together is the same, and there are few shapes."""
    shapes: dict[tuple[int, object, object], Reservation] = {}
    for each in promises:
        key = (each.gpus_per_replica, each.tolerations, tuple(sorted(each.node_selector.items())))
        known = shapes.get(key)
        shapes[key] = each if known is None else replace(known, replicas=known.replicas + each.replicas)
    return list(shapes.values())


def _certain(pool: Pool, pods: Reservation, others: Iterable[Reservation]) -> int:
    """Replicas of `pods` that fit for certain, wherever the pods of `others` get bound."""
    gpus = pods.gpus_per_replica
    taken = sum(each.replicas * -(-each.gpus_per_replica // gpus) for each in others)
    return slots(_nodes_for(pool, pods), gpus) - taken


def _nodes_for(pool: Pool, pods: Reservation) -> list[GpuNode]:
    return [node for node in _selected(pool.nodes, pods) if _takes(node, pods.tolerations)]


def _keeps_its_promise(
    pool: Pool, promise: Reservation, newcomer: Reservation, promises: Sequence[Reservation]
) -> bool:
    """Whether as many of the promised replicas fit for certain with the newcomer as without it.

    A promise that nodes which went away have already broken holds nobody up with what it can't use.
    """
    others = [each for each in promises if each is not promise]
    without = min(promise.replicas, _certain(pool, promise, others))
    return without <= 0 or _certain(pool, promise, [*others, newcomer]) >= without


def _best_fit_holds(pool: Pool, pods: Sequence[Reservation]) -> bool:
    """Whether all fit if each pod, the largest first, is bound where it leaves the least free."""
    free = {node.name: node.gpus_free for node in pool.nodes}
    for each in sorted(pods, key=lambda pods: -pods.gpus_per_replica):
        names = [node.name for node in _nodes_for(pool, each)]
        for _ in range(each.replicas):
            fitting = [name for name in names if free[name] >= each.gpus_per_replica]
            if not fitting:
                return False
            free[min(fitting, key=lambda name: (free[name], name))] -= each.gpus_per_replica
    return True


def bind_promises(fleet: Fleet) -> Fleet:
    """The fleet after all promised pods were bound as kube-scheduler does by default: spread.

    For `wattkeeper plan`, where no scheduler binds them. Pods that fit nowhere stay promised.
    """
    pools = {pool.name: pool for pool in fleet.pools}
    unbound = []
    for promise in fleet.reservations:
        pool = pools.get(promise.pool)
        left = promise.replicas
        while pool is not None and left:
            fitting = [
                node for node in _nodes_for(pool, promise) if node.gpus_free >= promise.gpus_per_replica
            ]
            if not fitting:
                break
            target = min(fitting, key=lambda node: (-node.gpus_free, node.name))
            taken = replace(target, gpus_held=target.gpus_held + promise.gpus_per_replica)
            nodes = tuple(taken if node is target else node for node in pool.nodes)
            pool = pools[pool.name] = replace(pool, nodes=nodes)
            left -= 1
        if left:
            unbound.append(replace(promise, replicas=left))
    return Fleet(tuple(pools[pool.name] for pool in fleet.pools), tuple(unbound))
