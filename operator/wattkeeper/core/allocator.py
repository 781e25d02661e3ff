"""Serial allocation: one LLMDeployment after the other, in the order in which they were created.

State is what the cluster remembers: status.pool of each LLMDeployment and the pods that are bound. From
these the promises are rebuilt, so that a new leader goes on where the old one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from wattkeeper.core.capacity import bind_promises
from wattkeeper.core.decision import Candidate, PlacementDecision
from wattkeeper.core.demand import Demand
from wattkeeper.core.fleet import Assignment, Fleet, Reservation
from wattkeeper.core.forecast import Forecaster
from wattkeeper.core.placement import place, reaffirm


@dataclass(frozen=True, slots=True)
class Allocation:
    """One LLMDeployment's decision, and whether it was placed before."""

    demand: Demand
    decision: PlacementDecision
    placed_before: bool


def reservations(demands: Iterable[Demand], placed: Mapping[str, Assignment]) -> tuple[Reservation, ...]:
    """The promises that stand: for each placed LLMDeployment, its replicas that aren't bound to a node."""
    return tuple(
        _promise(
            demand, assignment.pool, assignment.gpus_per_replica, demand.replicas - assignment.bound_replicas
        )
        for demand in _in_order(demands)
        if (assignment := placed.get(demand.uid)) and demand.replicas > assignment.bound_replicas
    )


def allocate(  # noqa: PLR0913 - what is decided about, and how what nobody runs is taken
    demands: Iterable[Demand],
    fleet: Fleet,
    placed: Mapping[str, Assignment],
    forecaster: Forecaster,
    *,
    assume_bound: bool = False,
    carried_out: Callable[[Demand, Candidate], bool] | None = None,
) -> list[Allocation]:
    """Decide for all, in the order of creation; each sees the GPUs promised to all others.

    `placed` maps uids to where those already placed are; they stay. The fleet's own reservations are
    replaced. One that waits for pods to be bound keeps its claim on that pool against later ones; with
    `assume_bound` the pods are taken as bound instead, as where no scheduler runs, and it is decided again.
    Where `carried_out` says that a choice can't be, nothing is promised for it.
    """
    ordered = _in_order(demands)
    fleet = replace(fleet, reservations=reservations(ordered, placed))
    allocations = []
    for demand in ordered:
        if assignment := placed.get(demand.uid):
            decision = reaffirm(demand, fleet, forecaster, assignment)
            allocations.append(Allocation(demand, decision, placed_before=True))
            continue
        decision = place(demand, fleet, forecaster)
        if decision.deferred and assume_bound:
            fleet = bind_promises(fleet)
            decision = place(demand, fleet, forecaster)
        taken = decision.settling if decision.deferred else decision.chosen
        if taken is not None and (carried_out is None or carried_out(demand, taken)):
            fleet = with_promise(fleet, demand, taken)
        allocations.append(Allocation(demand, decision, placed_before=False))
    return allocations


def with_promise(fleet: Fleet, demand: Demand, candidate: Candidate) -> Fleet:
    """The fleet after the candidate's GPUs were promised to the demand."""
    others = tuple(each for each in fleet.reservations if each.owner_uid != demand.uid)
    if not demand.replicas:
        return replace(fleet, reservations=others)
    promise = _promise(demand, candidate.pool, candidate.gpus_per_replica, demand.replicas)
    return replace(fleet, reservations=(*others, promise))


def _promise(demand: Demand, pool: str, gpus_per_replica: int, replicas: int) -> Reservation:
    return Reservation(demand.uid, pool, gpus_per_replica, replicas, demand.tolerations, demand.node_selector)


def _in_order(demands: Iterable[Demand]) -> list[Demand]:
    return sorted(demands, key=lambda demand: (demand.created, demand.uid))
