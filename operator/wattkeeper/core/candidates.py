"""One candidate: a pool with one tensor parallel size, with its figures and its first rejection.

All that can be computed is computed: a full pool or one too slow still shows what it would draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattkeeper.core import filters
from wattkeeper.core.decision import Candidate, Rejection
from wattkeeper.core.filters import Found, Obstacle, PoolView
from wattkeeper.core.forecast import Forecast, Forecaster, MemoryFit


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


def evaluate(view: PoolView, tensor_parallel_size: int, forecaster: Forecaster) -> Evaluated:
    """The candidate with its figures, its first rejection in the order of the filters, and its rank."""
    demand, pool = view.demand, view.pool
    found = list(filters.check_nodes(view, tensor_parallel_size))
    memory: MemoryFit | None = None
    forecast: Forecast | None = None
    barred = any(each.obstacle > Obstacle.GPU for each in found)
    if view.gpu_name is None and not barred:
        found.append(filters.unknown_gpu(view, tensor_parallel_size, forecaster))
    elif view.gpu_name is not None and (view.at_home or not barred):
        memory, too_little = filters.check_memory(view, tensor_parallel_size, forecaster)
        refused: list[Found] = []
        if memory is not None and memory.fits:
            forecast, refused = filters.check_forecast(view, tensor_parallel_size, forecaster)
        found += [*too_little, *filters.check_room(view, tensor_parallel_size), *refused]
        if forecast is not None:
            found += filters.check_latency(forecast, demand.sla)
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


def _reported(first: Found, hardest: Found) -> Rejection:
    """The first rejection; a harder one is named too, so that nobody mends the first in vain."""
    if hardest.obstacle <= first.obstacle:
        return first.rejection
    besides = f"besides, {hardest.rejection.reason}: {hardest.rejection.message}"
    return Rejection(first.rejection.reason, f"{first.rejection.message}; {besides}")
