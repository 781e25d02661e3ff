"""The filters of placement: what stands in the way of a pool with one tensor parallel size, and the cure.

In the order in which they are reported: pool selector, the pool's own problem, taints, node availability,
GPU known, memory, free GPUs, prediction, SLA.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from wattkeeper.core.capacity import (
    Eligibility,
    Room,
    eligible_nodes,
    gpus_unpromised,
    promises_to_others,
    replicas_left,
    room_for,
)
from wattkeeper.core.cures import cure_of_memory, gpus_needed
from wattkeeper.core.decision import Rejection
from wattkeeper.core.demand import Demand, Sla, Statistic
from wattkeeper.core.fleet import Fleet, Pool, Reservation
from wattkeeper.core.forecast import Forecast, Forecaster, MemoryFit, Refusal, RefusalReason
from wattkeeper.core.selectors import describe, label_equals, matches
from wattkeeper.core.wording import counted, gib, latency

#: The field of the tensor parallel size, as a forecaster's refusal names it.
SIZE_FIELD = "spec.placement.tensorParallelSize"


class Obstacle(IntEnum):
    """What stands in a candidate's way, the easier to remove the smaller."""

    NONE = 0
    SETTLING = 1
    FULL = 2
    UNAVAILABLE = 3
    TAINTED = 4
    SLA = 5
    PREDICTION = 6
    MEMORY = 7
    GPU = 8
    POOL = 9
    SELECTOR = 10


@dataclass(frozen=True, slots=True)
class Found:
    """An obstacle that was found; `distance` is how many times a figure is above what is allowed."""

    obstacle: Obstacle
    rejection: Rejection
    distance: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as one demand sees it: what is common to all tensor parallel sizes.

    `at_home` is the view on the pool where the demand already is: there, nothing of the present state of the
    nodes counts against it, as its replicas aren't moved.
    """

    demand: Demand
    pool: Pool
    gpu_name: str | None
    eligibility: Eligibility
    promises: tuple[Reservation, ...]
    gpus_free: int
    at_home: bool = False

    @property
    def largest_node(self) -> int:
        """GPUs of the largest node that takes the demand's pods; of any node where none does."""
        nodes = self.eligibility.nodes or self.pool.nodes
        return max((node.gpus_allocatable for node in nodes), default=0)


def view_pool(
    demand: Demand, pool: Pool, fleet: Fleet, forecaster: Forecaster, *, at_home: bool = False
) -> PoolView:
    """Gather what the demand's candidates on this pool have in common."""
    eligibility = eligible_nodes(pool, demand)
    promises = tuple(promises_to_others(fleet, pool, demand.uid))
    gpu_name = forecaster.gpu_name(pool.gpu) if pool.gpu.label else None
    free = gpus_unpromised(eligibility.nodes, promises)
    return PoolView(demand, pool, gpu_name, eligibility, promises, free, at_home)


def check_nodes(view: PoolView, gpus: int) -> Iterator[Found]:
    """The selector, the pool's own problem, taints and the availability of nodes: the first that fails."""
    demand, pool = view.demand, view.pool
    if not matches(demand.pool_selector, pool.labels):
        wanted = describe(demand.pool_selector)
        message = (
            f"its labels don't match spec.placement.poolSelector ({wanted}): label the GPUNodePool, or "
            "change the selector"
        )
        yield Found(Obstacle.SELECTOR, Rejection("PoolSelectorMismatch", message))
    elif pool.problem is not None:
        yield Found(Obstacle.POOL, Rejection(pool.problem.reason, pool.problem.message))
    elif not view.at_home:
        yield from _unavailable(view, gpus)


def _unavailable(view: PoolView, gpus: int) -> Iterator[Found]:
    eligibility = view.eligibility
    if taint := eligibility.taint:
        value = f"={taint.value}" if taint.value else ""
        message = (
            f"the taint {taint.key}{value}:{taint.effect} isn't tolerated: add a toleration to "
            "spec.server.template.spec.tolerations"
        )
        yield Found(Obstacle.TAINTED, Rejection("TaintNotTolerated", message))
    elif eligibility.unschedulable:
        what = counted(eligibility.unschedulable, "node is", "nodes are")
        message = f"its {what} not ready or cordoned: uncordon or repair, or add nodes"
        yield Found(Obstacle.UNAVAILABLE, Rejection("NodesUnavailable", message))
    elif not eligibility.nodes:
        wanted = describe(label_equals(view.demand.node_selector))
        message = f"no node of it has the labels of spec.server.template.spec.nodeSelector ({wanted})"
        yield Found(Obstacle.SELECTOR, Rejection("NodeSelectorMismatch", f"{message}: change the selector"))
    elif view.largest_node == 0:
        message = "its nodes offer no nvidia.com/gpu yet: wait for the driver and the device plugin"
        yield Found(Obstacle.UNAVAILABLE, Rejection("NodesUnavailable", message))
    elif view.largest_node < gpus:
        message = (
            f"a replica needs {counted(gpus, 'GPU')} on one node, the largest has {view.largest_node}: "
            "choose a smaller tensorParallelSize or add larger nodes"
        )
        yield Found(Obstacle.UNAVAILABLE, Rejection("NodesTooSmall", message))


def unknown_gpu(view: PoolView, gpus: int, forecaster: Forecaster) -> Found:
    """Why the forecaster doesn't know the pool's GPU."""
    # Whoever doesn't know the GPU knows best why: a mistaken label, one that several GPUs share …
    answer = forecaster.memory(view.demand.model, view.pool.gpu, view.demand.workload, gpus)
    message = (
        f"{answer.field}: {answer.message}"
        if isinstance(answer, Refusal)
        else f"the GPU {view.pool.gpu.label!r} isn't in the catalogue: correct the node label"
    )
    return Found(Obstacle.GPU, Rejection("UnknownGpu", message))


def check_memory(view: PoolView, gpus: int, forecaster: Forecaster) -> tuple[MemoryFit | None, list[Found]]:
    """The memory of one GPU of a replica, and whether it lacks; None where it can't be told."""
    demand = view.demand
    fit = forecaster.memory(demand.model, view.pool.gpu, demand.workload, gpus)
    if isinstance(fit, Refusal):
        return None, [_refused(fit)]
    if fit.fits:
        return fit, []
    tokens = demand.workload.prompt_tokens + demand.workload.output_tokens
    cache = fit.kv_bytes_per_sequence
    engine = max(0, fit.required_bytes - fit.weight_bytes - cache)
    cure = cure_of_memory(demand, view.pool, gpus, view.largest_node, forecaster)
    message = (
        f"each GPU needs {gib(fit.required_bytes)} (weights {gib(fit.weight_bytes)}, engine {gib(engine)}, "
        f"KV cache of one sequence of {tokens} tokens {gib(cache)}) and offers {gib(fit.usable_bytes)}: "
        f"{cure}"
    )
    distance = fit.required_bytes / max(1, fit.usable_bytes)
    return fit, [Found(Obstacle.MEMORY, Rejection("InsufficientMemory", message), distance)]


def _of_size(view: PoolView, gpus: int, forecaster: Forecaster, refusal: Refusal) -> Refusal:
    """The refusal; of a size that the model's memory asks for, in words that don't lead back to a smaller."""
    if (refusal.reason, refusal.field) != (RefusalReason.OUT_OF_PREDICTOR_RANGE, SIZE_FIELD):
        return refusal
    needed = gpus_needed(view.demand, view.pool, gpus, forecaster)
    if needed == 1:
        return refusal
    message = (
        f"this model needs {counted(needed, 'GPU')} of this kind a replica for its memory, and "
        f"{counted(gpus, 'GPU')} a replica aren't predicted by the installed recipe: choose a pool with more "
        "memory"
    )
    return Refusal(refusal.reason, refusal.field, message)


def _refused(refusal: Refusal) -> Found:
    return Found(Obstacle.PREDICTION, Rejection(refusal.reason.value, f"{refusal.field}: {refusal.message}"))


def check_room(view: PoolView, gpus: int) -> list[Found]:
    """Whether all replicas fit beside the GPUs promised to others."""
    demand, pool = view.demand, view.pool
    if view.at_home or not view.eligibility.nodes or view.largest_node < gpus:
        return []  # its replicas are there, or: said already
    # Whoever is off now is to be placed where it could run.
    wanted = max(1, demand.replicas)
    newcomer = Reservation(
        demand.uid,
        pool.name,
        gpus,
        wanted,
        tolerations=demand.tolerations,
        node_selector=demand.node_selector,
    )
    room = room_for(pool, newcomer, view.promises)
    if room is Room.ENOUGH:
        return []
    needs = f"{counted(wanted, 'replica')} of {counted(gpus, 'GPU')}"
    promised = sum(each.replicas * each.gpus_per_replica for each in view.promises)
    if room is Room.SETTLING:
        message = (
            f"{needs} may fit, but {counted(promised, 'GPU')} promised to others whose pods aren't bound yet "
            "may land in the way: decided again when they are"
        )
        return [Found(Obstacle.SETTLING, Rejection("CapacitySettling", message))]
    fitting = replicas_left(pool, newcomer, view.promises)
    beside = f", {promised} of them promised to others" if promised else ""
    free = sum(node.gpus_free for node in view.eligibility.nodes)
    message = (
        f"{needs} needed, {counted(free, 'GPU')} free{beside}; room for "
        f"{counted(fitting, 'such replica')} now: free GPUs, add nodes or lower spec.replicas"
    )
    return [Found(Obstacle.FULL, Rejection("InsufficientFreeGpus", message))]


def check_forecast(view: PoolView, gpus: int, forecaster: Forecaster) -> tuple[Forecast | None, list[Found]]:
    """Power and latency; None where they are refused or no figures at all."""
    demand = view.demand
    answer = forecaster.forecast(demand.model, view.pool.gpu, demand.workload, demand.sla, gpus)
    if isinstance(answer, Refusal):
        return None, [_refused(_of_size(view, gpus, forecaster, answer))]
    figures = {
        "power": answer.power_watts,
        "power's upper bound": answer.power_upper_watts,
        "inter-token latency": answer.itl_seconds,
        "inter-token latency's upper bound": answer.itl_upper_seconds,
    }
    for name, value in figures.items():
        if not (math.isfinite(value) and value > 0):
            message = f"the predicted {name} is {value}: retrain or report the predictor's artifacts"
            return None, [Found(Obstacle.PREDICTION, Rejection("InvalidForecast", message))]
    return answer, []


def check_latency(forecast: Forecast, sla: Sla) -> Iterator[Found]:
    """Where the upper bounds of the latencies are above the SLA."""
    sure = f"at {sla.confidence_percent} % confidence"
    if forecast.itl_upper_seconds > sla.itl_seconds:
        statistic = "mean" if sla.statistic is Statistic.MEAN else sla.statistic.value
        at_most = latency(forecast.itl_upper_seconds, upward=True)
        message = (
            f"predicted {statistic} inter-token latency {latency(forecast.itl_seconds)}, at most {at_most} "
            f"{sure}; the SLA is {latency(sla.itl_seconds)}: choose a faster pool or raise "
            "spec.sla.interTokenLatency"
        )
        ratio = forecast.itl_upper_seconds / sla.itl_seconds
        yield Found(Obstacle.SLA, Rejection("SLAMissed", message), ratio)
    if sla.ttft_seconds is None:
        return
    upper = forecast.ttft_upper_seconds
    if upper is None or not math.isfinite(upper):
        message = "spec.sla.timeToFirstToken: no time to the first token is predicted yet: leave it out"
        yield Found(Obstacle.PREDICTION, Rejection("OutOfPredictorRange", message))
    elif upper > sla.ttft_seconds:
        message = (
            f"predicted time to the first token at most {latency(upper, upward=True)} {sure}; the SLA is "
            f"{latency(sla.ttft_seconds)}: choose a faster pool or raise spec.sla.timeToFirstToken"
        )
        yield Found(Obstacle.SLA, Rejection("SLAMissed", message), upper / sla.ttft_seconds)
