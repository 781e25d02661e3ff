"""What would help a model that one GPU can't hold: only what the forecaster doesn't refuse in turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wattkeeper.core.demand import Demand
from wattkeeper.core.fleet import Pool
from wattkeeper.core.forecast import Forecaster, MemoryFit, Refusal

#: GPUs of a replica that are tried where the user doesn't say.
TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
#: Formats of the weights below 16 bits that are tried.
_FORMATS = ("fp8", "int8", "int4", "mxfp4", "nvfp4")


def cure_of_memory(demand: Demand, pool: Pool, gpus: int, largest_node: int, forecaster: Forecaster) -> str:
    """What to choose where a replica of `gpus` GPUs lacks memory; `largest_node` is in GPUs."""
    cures = ["a pool with more memory"]
    larger = (size for size in TENSOR_PARALLEL_SIZES if gpus < size <= largest_node)
    if any(_works(demand, pool, size, forecaster) for size in larger):
        cures.append("a larger tensorParallelSize")
    if any(_works(each, pool, gpus, forecaster) for each in _quantized(demand)):
        cures.append("a smaller quantization")
    return f"choose {', '.join(cures[:-1])} or {cures[-1]}" if len(cures) > 1 else f"choose {cures[0]}"


def gpus_needed(demand: Demand, pool: Pool, gpus: int, forecaster: Forecaster) -> int:
    """The fewest GPUs of a replica, up to `gpus`, whose memory holds the model."""
    smaller = (size for size in TENSOR_PARALLEL_SIZES if size < gpus)
    return next((size for size in smaller if _fits(demand, pool, size, forecaster)), gpus)


def _quantized(demand: Demand) -> Iterable[Demand]:
    return (
        replace(demand, model=replace(demand.model, quantization=each))
        for each in _FORMATS
        if each != demand.model.quantization
    )


def _works(demand: Demand, pool: Pool, gpus: int, forecaster: Forecaster) -> bool:
    """Whether it fits, and is predicted."""
    if not _fits(demand, pool, gpus, forecaster):
        return False
    answer = forecaster.forecast(demand.model, pool.gpu, demand.workload, demand.sla, gpus)
    return not isinstance(answer, Refusal)


def _fits(demand: Demand, pool: Pool, gpus: int, forecaster: Forecaster) -> bool:
    fit = forecaster.memory(demand.model, pool.gpu, demand.workload, gpus)
    return isinstance(fit, MemoryFit) and fit.fits
