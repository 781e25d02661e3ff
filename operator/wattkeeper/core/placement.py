"""Which pool an LLMDeployment goes to: the one that draws the least power while its SLA is met.

`place` decides for one that has no pool yet, `reaffirm` looks again at one that has. Both are pure: the same
demand and fleet give the same decision, whatever the order of pools, nodes and promises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from wattkeeper.core.candidates import Evaluated, evaluate
from wattkeeper.core.capacity import Room, room_for
from wattkeeper.core.cures import TENSOR_PARALLEL_SIZES
from wattkeeper.core.decision import MAX_TABLE_ROWS, Candidate, PlacementDecision
from wattkeeper.core.demand import Demand
from wattkeeper.core.filters import Obstacle, PoolView, view_pool
from wattkeeper.core.fleet import Assignment, Fleet, Pool, Reservation
from wattkeeper.core.forecast import Forecast, Forecaster
from wattkeeper.core.wording import counted, latency, watts


def place(demand: Demand, fleet: Fleet, forecaster: Forecaster) -> PlacementDecision:
    """Choose the pool and tensor parallel size of least power that meets the SLA and has room.

    Promises to the demand itself are ignored, so that deciding again gives the same answer.
    """
    if refusal := forecaster.check_model(demand.model):
        return PlacementDecision(None, (), refusal.reason.value, f"{refusal.field}: {refusal.message}")
    evaluated = _evaluate_all(demand, fleet.pools, fleet, forecaster)
    if not evaluated:
        message = "no node with an NVIDIA GPU was found: add GPU nodes, or install the NVIDIA device plugin"
        return PlacementDecision(None, (), "NoPools", message)
    table = _table(evaluated)
    usable = [each for each in evaluated if each.obstacle is Obstacle.NONE]
    best = min(usable, key=_order, default=None)
    settling = min(
        (each for each in evaluated if each.obstacle is Obstacle.SETTLING), key=_order, default=None
    )
    decision = PlacementDecision(
        chosen=best.candidate if best else None,
        table=table,
        reason="Placed" if best else "NoFeasiblePool",
        message=_why_chosen(best, usable) if best else _why_none(evaluated),
        pools_considered=len({pool.name for pool in fleet.pools}),
    )
    if settling is not None and (best is None or settling.distance < best.distance):
        return _deferred(decision, settling.candidate)
    return decision


def reaffirm(
    demand: Demand, fleet: Fleet, forecaster: Forecaster, assignment: Assignment
) -> PlacementDecision:
    """Look again at a placed LLMDeployment: the table is made anew, the pool stays.

    `chosen` is the candidate where it is, also when it no longer meets the SLA (its `rejection` says so). It
    is None only when nothing can be said of it: the pool is gone (reason `PoolGone`) or the model is refused;
    the replicas stay all the same.
    """
    if refusal := forecaster.check_model(demand.model):
        return PlacementDecision(None, (), refusal.reason.value, f"{refusal.field}: {refusal.message}")
    others = [pool for pool in fleet.pools if pool.name != assignment.pool]
    evaluated = _evaluate_all(demand, others, fleet, forecaster)
    home = next((pool for pool in fleet.pools if pool.name == assignment.pool), None)
    if home is None:
        message = (
            f"the pool {assignment.pool} has no nodes now; replicas aren't moved: bring its nodes back, or "
            "create the LLMDeployment anew"
        )
        return PlacementDecision(
            None, _table(evaluated), "PoolGone", message, pools_considered=len(fleet.pools)
        )
    view = view_pool(demand, home, fleet, forecaster, at_home=True)
    current = evaluate(view, assignment.gpus_per_replica, forecaster)
    rows = _table(evaluated, first=current.candidate)
    usable = [each for each in evaluated if each.obstacle is Obstacle.NONE]
    message = " ".join(
        [_why_stays(current, min(usable, key=_order, default=None)), *_short_of(view, assignment)]
    )
    return PlacementDecision(current.candidate, rows, "Placed", message, pools_considered=len(fleet.pools))


def _evaluate_all(
    demand: Demand, pools: Iterable[Pool], fleet: Fleet, forecaster: Forecaster
) -> list[Evaluated]:
    evaluated = []
    for pool in sorted(pools, key=lambda pool: pool.name):
        view = view_pool(demand, pool, fleet, forecaster)
        evaluated += [evaluate(view, size, forecaster) for size in _sizes(view)]
    return evaluated


def _sizes(view: PoolView) -> Sequence[int]:
    """The sizes worth trying: the one that is asked for, else those that a node of the pool can hold."""
    if view.demand.tensor_parallel_size is not None:
        return (view.demand.tensor_parallel_size,)
    return [size for size in TENSOR_PARALLEL_SIZES if size <= max(1, view.largest_node)]


def _order(evaluated: Evaluated) -> tuple[tuple[float, ...], str]:
    return evaluated.rank, evaluated.candidate.pool


def _table(evaluated: Iterable[Evaluated], first: Candidate | None = None) -> tuple[Candidate, ...]:
    """The best variant of each pool, best first, at most as many as a status holds."""
    best: dict[str, Evaluated] = {}
    for each in sorted(evaluated, key=_order):
        best.setdefault(each.candidate.pool, each)
    rows = [each.candidate for each in best.values()]
    return tuple([*([first] if first else []), *rows][:MAX_TABLE_ROWS])


def _deferred(decision: PlacementDecision, settling: Candidate) -> PlacementDecision:
    instead = f"; without waiting it would be {decision.chosen.pool}" if decision.chosen else ""
    why = settling.rejection.message if settling.rejection else ""
    return replace(
        decision,
        reason="CapacitySettling",
        message=f"waiting for {settling.pool}{_drawing(settling.forecast)}: {why}{instead}",
        deferred=True,
        settling=settling,
    )


def _why_chosen(best: Evaluated, usable: Sequence[Evaluated]) -> str:
    candidate = best.candidate
    pools = {each.candidate.pool for each in usable}
    next_best = min(
        (each for each in usable if each.candidate.pool != candidate.pool), key=_order, default=None
    )
    against = (
        f"; next: {next_best.candidate.pool}{_drawing(next_best.candidate.forecast)}" if next_best else ""
    )
    why = f"draws the least of {len(pools)} feasible pools" if len(pools) > 1 else "is the only feasible pool"
    return f"{candidate.pool} {why}{_drawing(candidate.forecast)}{against}"


def _drawing(forecast: Forecast | None) -> str:
    """A forecast in brackets, with its upper bounds."""
    if forecast is None:
        return ""
    power, most_power = watts(forecast.power_watts), watts(forecast.power_upper_watts, upward=True)
    itl, most_itl = latency(forecast.itl_seconds), latency(forecast.itl_upper_seconds, upward=True)
    return f" ({power} a replica, at most {most_power}; {itl} a token, at most {most_itl})"


def _why_none(evaluated: Sequence[Evaluated]) -> str:
    closest = {each.candidate.pool: each for each in sorted(evaluated, key=_order, reverse=True)}
    reasons = Counter(
        each.candidate.rejection.reason for each in closest.values() if each.candidate.rejection
    )
    by_reason = ", ".join(
        f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    )
    nearest = min(evaluated, key=_order).candidate
    why = nearest.rejection.message if nearest.rejection else ""
    return f"none of {counted(len(closest), 'pool')} can be used ({by_reason}); closest {nearest.pool}: {why}"


def _why_stays(current: Evaluated, better: Evaluated | None) -> str:
    candidate = current.candidate
    if candidate.rejection is not None:
        where = f", which {better.candidate.pool} would do" if better else ""
        return (
            f"stays on {candidate.pool}, as replicas aren't moved, but {candidate.rejection.reason}: "
            f"{candidate.rejection.message}{where}."
        )
    if better is not None and better.distance < current.distance:
        return (
            f"stays on {candidate.pool}{_drawing(candidate.forecast)}, as replicas aren't moved; "
            f"{better.candidate.pool}{_drawing(better.candidate.forecast)} would draw less."
        )
    return f"stays on {candidate.pool}{_drawing(candidate.forecast)}."


def _short_of(view: PoolView, assignment: Assignment) -> list[str]:
    """A sentence about replicas that find no room in the pool, if there are any."""
    demand = view.demand
    missing = demand.replicas - assignment.bound_replicas
    pods = Reservation(
        demand.uid,
        assignment.pool,
        assignment.gpus_per_replica,
        missing,
        tolerations=demand.tolerations,
        node_selector=demand.node_selector,
    )
    if missing <= 0 or room_for(view.pool, pods, view.promises) is Room.ENOUGH:
        return []
    return [
        f"{missing} of {counted(demand.replicas, 'replica')} may wait for free GPUs there: "
        "free some, add nodes or lower spec.replicas."
    ]
