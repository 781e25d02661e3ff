from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.capacity import (
    Room,
    bind_promises,
    eligible_nodes,
    gpus_unpromised,
    promises_to_others,
    room_for,
    slots,
)
from wattkeeper.core.demand import Toleration
from wattkeeper.core.fleet import Fleet, Pool, Reservation, Taint

from .placing import demand, node, pool


def of(*free: int) -> Pool:
    """A pool of nodes with so many free GPUs."""
    return pool("l4", *(node(f"n{index}", gpus) for index, gpus in enumerate(free)))


def pods(name: str, gpus: int, replicas: int = 1) -> Reservation:
    return Reservation(name, "l4", gpus, replicas)


def test_gpus_are_counted_per_node() -> None:
    assert slots(of(3, 3, 1).nodes, 2) == 2  # not floor(7 / 2)
    assert slots([node("a", 4, gpus_held=3), node("b", 4, schedulable=False)], 1) == 1
    assert slots([node("a", 4, gpus_held=9)], 1) == 0


@pytest.mark.parametrize(
    ("free", "promises", "newcomer", "room"),
    [
        ((1,), [], pods("x", 1), Room.ENOUGH),
        ((1,), [], pods("x", 1, 2), Room.FULL),
        ((1,), [pods("a", 1)], pods("x", 1), Room.FULL),
        ((2,), [pods("a", 1)], pods("x", 1), Room.ENOUGH),
        ((2, 2), [pods("a", 1, 2)], pods("x", 2), Room.SETTLING),  # both may land on one node, or on two
        ((2, 2, 2), [pods("a", 1, 2)], pods("x", 2), Room.ENOUGH),
        ((2, 2), [pods("a", 1, 3)], pods("x", 2), Room.FULL),
        (
            (3, 1),
            [pods("a", 2)],
            pods("x", 1),
            Room.SETTLING,
        ),  # on the first node it would strand the promise
        ((3, 3), [pods("a", 2)], pods("x", 1), Room.ENOUGH),
        ((8,), [pods("a", 4)], pods("x", 4), Room.ENOUGH),
        ((8,), [pods("a", 4, 2)], pods("x", 1), Room.FULL),
        ((0,), [], pods("x", 1), Room.FULL),
        ((0,), [], pods("x", 1, 0), Room.ENOUGH),
        # A promise that was broken (its nodes went away) still counts, but can't be hurt any more.
        ((1, 1), [pods("a", 8)], pods("x", 1), Room.FULL),
        ((4, 4, 4), [pods("a", 8)], pods("x", 1, 4), Room.ENOUGH),
    ],
)
def test_room(free: tuple[int, ...], promises: list[Reservation], newcomer: Reservation, room: Room) -> None:
    assert room_for(of(*free), newcomer, promises) is room


def test_promises_of_other_pools_and_to_itself_do_not_count() -> None:
    fleet = Fleet(
        (of(4),),
        (pods("a", 1), replace(pods("b", 2), pool="h100"), pods("me", 2), pods("c", 4), pods("d", 1, 0)),
    )
    promises = promises_to_others(fleet, fleet.pools[0], "me")
    assert [each.owner_uid for each in promises] == ["c", "a"]
    assert gpus_unpromised(fleet.pools[0].nodes, promises) == 0


def test_eligible_nodes_and_what_keeps_off() -> None:
    spot = Taint("spot", "true")
    mixed = pool("l4", node("a", taints=(spot,)), node("b", schedulable=False), node("c"))
    assert [each.name for each in eligible_nodes(mixed, demand()).nodes] == ["c"]
    tainted = pool("l4", node("a", taints=(spot,)))
    assert eligible_nodes(tainted, demand()).taint == spot
    assert eligible_nodes(tainted, demand(tolerations=(Toleration("spot", "Exists"),))).nodes == tainted.nodes
    cordoned = pool("l4", node("a", schedulable=False), node("b", taints=(spot,)))
    assert eligible_nodes(cordoned, demand()).unschedulable == 1
    elsewhere = eligible_nodes(mixed, demand(node_selector={"zone": "a"}))
    assert (elsewhere.nodes, elsewhere.taint, elsewhere.unschedulable) == ((), None, 0)


def test_a_promise_that_cannot_use_a_node_leaves_it_to_others() -> None:
    tainted = pool("l4", node("a", 2, taints=(Taint("spot", "true"),)), node("b", 2))
    tolerant = replace(pods("x", 2), tolerations=(Toleration("spot", "Exists"),))
    # The promised pod goes to b alone, the newcomer may go to either: together they need both.
    assert room_for(tainted, tolerant, [pods("a", 2)]) is Room.SETTLING
    assert room_for(tainted, pods("y", 2), [tolerant]) is Room.SETTLING


# ---- no order of bindings strands a replica -----------------------------------------------------

SHAPES = st.sampled_from([1, 2, 4, 8])
FREE = st.lists(st.integers(0, 9), min_size=1, max_size=5)
NEWCOMERS = st.lists(st.tuples(SHAPES, st.integers(1, 3)), min_size=1, max_size=6)


class Binder:
    """A scheduler that binds whichever pod it likes, wherever it fits, and so may waste what it can."""

    def __init__(self, free: list[int], seed: int) -> None:
        self.free = list(free)
        self.random = Random(seed)
        self.unbound: dict[str, tuple[int, int]] = {}  # name → GPUs a replica, replicas

    def pool(self) -> Pool:
        return of(*self.free)

    def promises(self) -> list[Reservation]:
        return [pods(name, gpus, replicas) for name, (gpus, replicas) in self.unbound.items()]

    def bind_one(self) -> None:
        """Bind one pod of one owner: by turns to the fullest, the emptiest and any node that takes it."""
        name = self.random.choice(sorted(self.unbound))
        gpus, replicas = self.unbound[name]
        fitting = [index for index, free in enumerate(self.free) if free >= gpus]
        assert fitting, f"{name} is stranded: {gpus} GPUs wanted, free {self.free}"
        fitting.sort(key=self.free.__getitem__)
        self.free[self.random.choice([fitting[0], fitting[-1], self.random.choice(fitting)])] -= gpus
        if replicas > 1:
            self.unbound[name] = (gpus, replicas - 1)
        else:
            del self.unbound[name]


@given(FREE, NEWCOMERS, st.integers(0, 2**32))
def test_whoever_is_admitted_gets_bound_whatever_the_scheduler_does(
    free: list[int], newcomers: list[tuple[int, int]], seed: int
) -> None:
    binder = Binder(free, seed)
    for index, (gpus, replicas) in enumerate(newcomers):
        newcomer = pods(f"x{index}", gpus, replicas)
        if room_for(binder.pool(), newcomer, binder.promises()) is Room.ENOUGH:
            binder.unbound[newcomer.owner_uid] = (gpus, replicas)
        for _ in range(binder.random.randint(0, 2)):
            if binder.unbound:
                binder.bind_one()
    while binder.unbound:
        binder.bind_one()
    assert min(binder.free) >= 0


@given(FREE, NEWCOMERS, st.integers(0, 2**32))
def test_what_is_full_has_no_room_however_well_pods_land_greedily(
    free: list[int], newcomers: list[tuple[int, int]], seed: int
) -> None:
    """With one size of pods, counting is exact: room is there or not, and nothing is ever settling."""
    size = newcomers[0][0]
    room, taken = sum(each // size for each in free), 0
    binder = Binder(free, seed)
    for index, (_, replicas) in enumerate(newcomers):
        found = room_for(binder.pool(), pods(f"x{index}", size, replicas), binder.promises())
        assert found is (Room.ENOUGH if taken + replicas <= room else Room.FULL)
        if found is Room.ENOUGH:
            taken += replicas
            binder.unbound[f"x{index}"] = (size, replicas)


@given(FREE, NEWCOMERS)
def test_binding_keeps_every_gpu_counted(free: list[int], newcomers: list[tuple[int, int]]) -> None:
    promises = tuple(pods(f"x{index}", gpus, replicas) for index, (gpus, replicas) in enumerate(newcomers))
    before = Fleet((of(*free),), promises)
    after = bind_promises(before)
    bound = sum(each.gpus_held for each in after.pools[0].nodes)
    still = sum(each.gpus_per_replica * each.replicas for each in after.reservations)
    assert bound + still == sum(each.gpus_per_replica * each.replicas for each in promises)
    assert all(each.gpus_held <= each.gpus_allocatable for each in after.pools[0].nodes)
    for each in after.reservations:
        assert slots(after.pools[0].nodes, each.gpus_per_replica) == 0


def test_binding_spreads_as_kube_scheduler_does() -> None:
    after = bind_promises(Fleet((of(4, 4),), (pods("a", 1, 2),)))
    assert [each.gpus_held for each in after.pools[0].nodes] == [1, 1]


def test_promises_on_pools_that_are_gone_stay() -> None:
    gone = replace(pods("a", 1), pool="gone")
    assert bind_promises(Fleet((of(1),), (gone,))).reservations == (gone,)
