"""One candidate: a pool with one tensor parallel size, filtered, with its figures and its first rejection.

Filters, in the order in which their rejections are reported: pool selector, the pool's own problem, taints,
node availability, GPU known, memory, free GPUs, prediction, SLA. All that can be computed is computed: a full
pool or one too slow still shows what it would draw.
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
    room_for,
    slots,
)
from wattkeeper.core.decision import Candidate, Rejection
from wattkeeper.core.demand import Demand, Sla, Statistic
from wattkeeper.core.fleet import Fleet, Pool, Reservation
from wattkeeper.core.forecast import Forecast, Forecaster, MemoryFit, Refusal
from wattkeeper.core.selectors import describe, label_equals, matches
from wattkeeper.core.wording import counted, gib, latency


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
class Evaluated:
    """A candidate and how far it is from being used: its hardest obstacle, then `distance` within it.

    `distance` is the power in watts where nothing or only room is missing, else how many times the figure
    is above what is allowed.
    """

    candidate: Candidate
    obstacle: Obstacle
    distance: float

    @property
    def rank(self) -> tuple[float, ...]:
        """Sorts the best first; ties of power go to the faster, then to fewer GPUs."""
        forecast = self.candidate.forecast
        itl = forecast.itl_upper_seconds if forecast else math.inf
        return (self.obstacle, self.distance, itl, self.candidate.gpus_per_replica)


@dataclass(frozen=True, slots=True)
class _Found:
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


def evaluate(view: PoolView, tensor_parallel_size: int, forecaster: Forecaster) -> Evaluated:
    """The candidate with its figures, its first rejection in the order of the filters, and its rank."""
    demand, pool = view.demand, view.pool
    found = list(_before_figures(view, tensor_parallel_size))
    memory: MemoryFit | None = None
    forecast: Forecast | None = None
    barred = any(each.obstacle >= Obstacle.GPU for each in found)
    if view.gpu_name is not None and (view.at_home or not barred):
        memory, too_little = _memory(view, tensor_parallel_size, forecaster)
        refused: list[_Found] = []
        if memory is not None and memory.fits:
            forecast, refused = _forecast(view, tensor_parallel_size, forecaster)
        found += [*too_little, *_room(view, tensor_parallel_size), *refused]
        if forecast is not None:
            found += _too_slow(forecast, demand.sla)
    hardest = max(found, key=lambda each: (each.obstacle, each.distance), default=None)
    obstacle = hardest.obstacle if hardest else Obstacle.NONE
    distance = hardest.distance if hardest else 0.0
    if obstacle < Obstacle.SLA and forecast is not None:
        distance = forecast.power_watts
    candidate = Candidate(
        pool=pool.name,
        gpu_label=pool.gpu.label,
        gpu_name=view.gpu_name,
        gpus_per_replica=tensor_parallel_size,
        gpus_free=view.gpus_free,
        memory=memory,
        forecast=forecast,
        rejection=_reported(found[0], hardest) if found and hardest else None,
    )
    return Evaluated(candidate, obstacle, distance)


def _reported(first: _Found, hardest: _Found) -> Rejection:
    """The first rejection; a harder one is named too, so that nobody mends the first in vain."""
    if hardest.obstacle <= first.obstacle:
        return first.rejection
    besides = f"besides, {hardest.rejection.reason}: {hardest.rejection.message}"
    return Rejection(first.rejection.reason, f"{first.rejection.message}; {besides}")


def _before_figures(view: PoolView, tensor_parallel_size: int) -> Iterator[_Found]:
    demand, pool = view.demand, view.pool
    if not matches(demand.pool_selector, pool.labels):
        wanted = describe(demand.pool_selector)
        message = (
            f"its labels don't match spec.placement.poolSelector ({wanted}): label the GPUNodePool, or "
            "change the selector"
        )
        yield _Found(Obstacle.SELECTOR, Rejection("PoolSelectorMismatch", message))
    elif pool.problem is not None:
        yield _Found(Obstacle.POOL, Rejection(pool.problem.reason, pool.problem.message))
    else:
        if not view.at_home:
            yield from _unavailable(view, tensor_parallel_size)
        if view.gpu_name is None:
            message = (
                f"the GPU {pool.gpu.label!r} isn't in the catalogue: correct the node label, or write a "
                "GPUNodePool whose spec.gpu names one that is"
            )
            yield _Found(Obstacle.GPU, Rejection("UnknownGpu", message))


def _unavailable(view: PoolView, gpus: int) -> Iterator[_Found]:
    eligibility = view.eligibility
    if taint := eligibility.taint:
        value = f"={taint.value}" if taint.value else ""
        message = (
            f"the taint {taint.key}{value}:{taint.effect} isn't tolerated: add a toleration to "
            "spec.server.template.spec.tolerations"
        )
        yield _Found(Obstacle.TAINTED, Rejection("TaintNotTolerated", message))
    elif eligibility.unschedulable:
        what = counted(eligibility.unschedulable, "node is", "nodes are")
        message = f"its {what} not ready or cordoned: uncordon or repair, or add nodes"
        yield _Found(Obstacle.UNAVAILABLE, Rejection("NodesUnavailable", message))
    elif not eligibility.nodes:
        wanted = describe(label_equals(view.demand.node_selector))
        message = f"no node of it has the labels of spec.server.template.spec.nodeSelector ({wanted})"
        yield _Found(Obstacle.SELECTOR, Rejection("NodeSelectorMismatch", f"{message}: change the selector"))
    elif view.largest_node == 0:
        message = "its nodes offer no nvidia.com/gpu yet: wait for the driver and the device plugin"
        yield _Found(Obstacle.UNAVAILABLE, Rejection("NodesUnavailable", message))
    elif view.largest_node < gpus:
        message = (
            f"a replica needs {counted(gpus, 'GPU')} on one node, the largest has {view.largest_node}: "
            "choose a smaller tensorParallelSize or add larger nodes"
        )
        yield _Found(Obstacle.UNAVAILABLE, Rejection("NodesTooSmall", message))


def _memory(view: PoolView, gpus: int, forecaster: Forecaster) -> tuple[MemoryFit | None, list[_Found]]:
    demand = view.demand
    memory = forecaster.memory(demand.model, view.pool.gpu, demand.workload, gpus)
    if isinstance(memory, Refusal):
        return None, [_refused(memory)]
    if memory.fits:
        return memory, []
    tokens = demand.workload.prompt_tokens + demand.workload.output_tokens
    sequence = memory.kv_bytes_per_token * tokens
    engine = max(0, memory.required_bytes - memory.weight_bytes - sequence)
    message = (
        f"each GPU needs {gib(memory.required_bytes)} (weights {gib(memory.weight_bytes)}, engine "
        f"{gib(engine)}, KV cache of one sequence of {tokens} tokens {gib(sequence)}) and offers "
        f"{gib(memory.usable_bytes)}: choose a pool with more memory, a larger tensorParallelSize or a "
        "smaller quantization"
    )
    distance = memory.required_bytes / max(1, memory.usable_bytes)
    return memory, [_Found(Obstacle.MEMORY, Rejection("InsufficientMemory", message), distance)]


def _refused(refusal: Refusal) -> _Found:
    return _Found(Obstacle.PREDICTION, Rejection(refusal.reason.value, f"{refusal.field}: {refusal.message}"))


def _room(view: PoolView, gpus: int) -> list[_Found]:
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
        return [_Found(Obstacle.SETTLING, Rejection("CapacitySettling", message))]
    fitting = slots(view.eligibility.nodes, gpus)
    beside = f", {promised} of them promised to others" if promised else ""
    free = sum(node.gpus_free for node in view.eligibility.nodes)
    message = (
        f"{needs} needed, {counted(free, 'GPU')} free{beside}; room for "
        f"{counted(fitting, 'such replica')} now: free GPUs, add nodes or lower spec.replicas"
    )
    return [_Found(Obstacle.FULL, Rejection("InsufficientFreeGpus", message))]


def _forecast(view: PoolView, gpus: int, forecaster: Forecaster) -> tuple[Forecast | None, list[_Found]]:
    demand = view.demand
    forecast = forecaster.forecast(demand.model, view.pool.gpu, demand.workload, demand.sla, gpus)
    if isinstance(forecast, Refusal):
        return None, [_refused(forecast)]
    figures = {
        "power": forecast.power_watts,
        "power's upper bound": forecast.power_upper_watts,
        "inter-token latency": forecast.itl_seconds,
        "inter-token latency's upper bound": forecast.itl_upper_seconds,
    }
    for name, value in figures.items():
        if not (math.isfinite(value) and value > 0):
            message = f"the predicted {name} is {value}: retrain or report the predictor's artifacts"
            return None, [_Found(Obstacle.PREDICTION, Rejection("InvalidForecast", message))]
    return forecast, []


def _too_slow(forecast: Forecast, sla: Sla) -> Iterator[_Found]:
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
        yield _Found(Obstacle.SLA, Rejection("SLAMissed", message), ratio)
    if sla.ttft_seconds is None:
        return
    upper = forecast.ttft_upper_seconds
    if upper is None or not math.isfinite(upper):
        message = "spec.sla.timeToFirstToken: no time to the first token is predicted yet: leave it out"
        yield _Found(Obstacle.PREDICTION, Rejection("OutOfPredictorRange", message))
    elif upper > sla.ttft_seconds:
        message = (
            f"predicted time to the first token at most {latency(upper, upward=True)} {sure}; the SLA is "
            f"{latency(sla.ttft_seconds)}: choose a faster pool or raise spec.sla.timeToFirstToken"
        )
        yield _Found(Obstacle.SLA, Rejection("SLAMissed", message), upper / sla.ttft_seconds)
