from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.allocator import Allocation, allocate, reservations, with_promise
from wattkeeper.core.demand import Demand, Toleration
from wattkeeper.core.fleet import Assignment, Fleet, Reservation
from wattkeeper.core.forecast import Forecast

from .placing import A30, H100, L4, MEASURED, FakeForecaster, demand, forecast, node, pool

FLEET = Fleet((H100, A30, L4))


def pools_of(allocations: list[Allocation]) -> dict[str, str | None]:
    return {
        each.demand.name: each.decision.chosen.pool if each.decision.chosen else None for each in allocations
    }


def created(name: str, hour: int, **changes: object) -> Demand:
    return demand(name, created=f"2026-01-01T{hour:02}:00:00Z", **changes)


def test_the_older_gets_the_last_gpu() -> None:
    demands = [created("b", 2), created("a", 1), created("d", 4), created("c", 3)]
    assert pools_of(allocate(demands, FLEET, {}, MEASURED)) == {
        "a": "l4",
        "b": "a30",
        "c": "h100-nvl",
        "d": None,
    }


def test_the_uid_decides_between_those_of_one_second() -> None:
    demands = [created("b", 1), created("a", 1)]
    assert list(pools_of(allocate(demands, Fleet((L4,)), {}, MEASURED)).items()) == [("a", "l4"), ("b", None)]


def test_what_is_placed_stays_and_its_promise_holds_though_it_is_younger() -> None:
    demands = [created("new", 1), created("old", 5)]
    allocations = allocate(demands, FLEET, {"uid-old": Assignment("l4", 1)}, MEASURED)
    assert pools_of(allocations) == {"new": "a30", "old": "l4"}
    assert [each.placed_before for each in allocations] == [False, True]


def test_bound_pods_hold_gpus_and_need_no_promise() -> None:
    held = pool("l4", node("a", 2, gpus_held=1))
    placed = {"uid-old": Assignment("l4", 1, bound_replicas=1)}
    demands = [created("old", 1), created("new", 2)]
    assert reservations(demands, placed) == ()
    assert pools_of(allocate(demands, Fleet((held,)), placed, MEASURED)) == {"old": "l4", "new": "l4"}


def test_promises_are_rebuilt_from_what_the_cluster_remembers() -> None:
    tolerations = (Toleration("spot", "Exists"),)
    demands = [
        created("b", 2, replicas=3, tolerations=tolerations, node_selector={"zone": "a"}),
        created("a", 1),
        created("unplaced", 0),
        created("full", 3),
        created("shrunk", 4, replicas=1),
    ]
    placed = {
        "uid-a": Assignment("l4", 2),
        "uid-b": Assignment("a30", 1, bound_replicas=1),
        "uid-full": Assignment("l4", 1, bound_replicas=1),
        "uid-shrunk": Assignment("l4", 1, bound_replicas=3),
        "uid-deleted": Assignment("l4", 1),
    }
    assert reservations(demands, placed) == (
        Reservation("uid-a", "l4", 2, 1),
        Reservation("uid-b", "a30", 1, 2, tolerations, {"zone": "a"}),
    )


def test_whoever_is_off_is_promised_nothing() -> None:
    demands = [created("off", 1, replicas=0), created("on", 2)]
    allocations = allocate(demands, Fleet((L4,)), {}, MEASURED)
    assert pools_of(allocations) == {"off": "l4", "on": "l4"}
    assert with_promise(Fleet((L4,)), demands[0], allocations[0].decision.table[0]).reservations == ()


def test_deciding_one_at_a_time_is_deciding_for_all() -> None:
    """What the operator does after each write, and what a plan does at once."""
    demands = [created(name, hour) for hour, name in enumerate("abcd")]
    placed: dict[str, Assignment] = {}
    for each in demands:
        chosen = allocate([d for d in demands if d.uid in placed or d is each], FLEET, placed, MEASURED)
        decision = next(one.decision for one in chosen if one.demand is each)
        if decision.chosen:
            placed[each.uid] = Assignment(decision.chosen.pool, decision.chosen.gpus_per_replica)
    at_once = pools_of(allocate(demands, FLEET, {}, MEASURED))
    assert {name: at_once[name] for name in "abcd"} == {
        name: placed[f"uid-{name}"].pool if f"uid-{name}" in placed else None for name in "abcd"
    }


PAIRS = FakeForecaster({("NVIDIA-L4", 2): forecast(130, 33), ("NVIDIA-L4", 1): forecast(71, 62)})
L4_PAIRS = Fleet((pool("l4", node("a", 2), node("b", 2)),))


def test_whoever_waits_for_bindings_keeps_its_claim_against_the_younger() -> None:
    demands = [
        created("small", 1, replicas=2),
        created("pair", 2, tensor_parallel_size=2),
        created("late", 3, tensor_parallel_size=1),
    ]
    allocations = allocate(demands, L4_PAIRS, {}, PAIRS)
    assert [each.decision.reason for each in allocations] == ["Placed", "CapacitySettling", "NoFeasiblePool"]


def test_without_a_scheduler_pods_are_taken_as_bound() -> None:
    demands = [created("small", 1, replicas=2), created("pair", 2, tensor_parallel_size=2)]
    allocations = allocate(demands, L4_PAIRS, {}, PAIRS, assume_bound=True)
    # kube-scheduler spreads: one pod on each node, which leaves no pair.
    assert [each.decision.reason for each in allocations] == ["Placed", "NoFeasiblePool"]
    three = Fleet((pool("l4", node("a", 2), node("b", 2), node("c", 2, gpus_held=1)),))
    lone = [created("small", 1), created("pair", 2, tensor_parallel_size=2, replicas=1)]
    assert pools_of(allocate(lone, three, {}, PAIRS, assume_bound=True)) == {"small": "l4", "pair": "l4"}


DEMANDS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([1, 2, 4]), st.booleans()), max_size=6
)
NODES = st.lists(st.integers(0, 8), min_size=1, max_size=4)
EVERY_SIZE = FakeForecaster({("NVIDIA-L4", size): forecast(70 * size, 60 / size) for size in (1, 2, 4, 8)})


def some_demands(specs: list[tuple[int, int, int, bool]]) -> list[Demand]:
    return [
        created(f"d{index}", hour, replicas=replicas, tensor_parallel_size=size)
        for index, (hour, replicas, size, _) in enumerate(specs)
    ]


@given(DEMANDS, NODES, st.integers(0, 2**32))
def test_no_gpu_is_given_twice_and_the_order_of_the_input_changes_nothing(
    specs: list[tuple[int, int, int, bool]], sizes: list[int], seed: int
) -> None:
    demands = some_demands(specs)
    fleet = Fleet((pool("l4", *(node(f"n{i}", size) for i, size in enumerate(sizes))),))
    allocations = allocate(demands, fleet, {}, EVERY_SIZE)
    taken = sum(
        each.demand.replicas * each.decision.chosen.gpus_per_replica
        for each in allocations
        if each.decision.chosen and not each.decision.deferred
    )
    assert taken <= sum(sizes)
    mixed = Random(seed).sample(demands, len(demands))
    assert allocate(mixed, fleet, {}, EVERY_SIZE) == allocations


@given(DEMANDS, NODES, st.integers(0, 2**32))
def test_all_that_were_placed_get_bound_whatever_the_scheduler_does(
    specs: list[tuple[int, int, int, bool]], sizes: list[int], seed: int
) -> None:
    """Two LLMDeployments never both get the last one: allocated and bound in turns, nobody is stranded."""
    random = Random(seed)
    free = dict(enumerate(sizes))
    demands = some_demands(specs)
    placed: dict[str, Assignment] = {}
    known: list[Demand] = []
    for each in sorted(demands, key=lambda d: (d.created, d.uid)):
        known.append(each)
        nodes = (node(f"n{i}", sizes[i], gpus_held=sizes[i] - free[i]) for i in free)
        for one in allocate(known, Fleet((pool("l4", *nodes),)), placed, EVERY_SIZE):
            decision = one.decision
            if decision.chosen and not decision.deferred and one.demand.uid not in placed:
                assert isinstance(decision.chosen.forecast, Forecast)
                placed[one.demand.uid] = Assignment("l4", decision.chosen.gpus_per_replica)
        for _ in range(random.randint(0, 3)):
            bind_one(known, placed, free, random)
    while bind_one(known, placed, free, random):
        pass
    assert all(
        assignment.bound_replicas == each.replicas
        for each in demands
        if (assignment := placed.get(each.uid)) is not None
    )


def bind_one(
    known: list[Demand], placed: dict[str, Assignment], free: dict[int, int], random: Random
) -> bool:
    """Bind a pod of somebody to any node that takes it; False when all are bound."""
    waiting = [
        each for each in known if each.uid in placed and placed[each.uid].bound_replicas < each.replicas
    ]
    if not waiting:
        return False
    each = random.choice(waiting)
    assignment = placed[each.uid]
    fitting = [name for name, gpus in free.items() if gpus >= assignment.gpus_per_replica]
    assert fitting, f"{each.name} is stranded: {assignment}, free {free}"
    free[random.choice(fitting)] -= assignment.gpus_per_replica
    placed[each.uid] = Assignment("l4", assignment.gpus_per_replica, assignment.bound_replicas + 1)
    return True
