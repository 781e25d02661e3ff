"""The status of a GPUNodePool, made by a pure function from the pool as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattkeeper.api import conditions as cond
from wattkeeper.api.conditions import Condition, Stamp, cut, merge_conditions
from wattkeeper.api.quantities import format_bytes
from wattkeeper.core.fleet import Pool


def pool_status(
    pool: Pool, gpu_name: str | None, stamp: Stamp, previous: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The whole status; `gpu_name` is the catalogue's name of the pool's GPU, None when it isn't known."""
    status: dict[str, Any] = {"observedGeneration": stamp.generation}
    name = gpu_name or pool.gpu.label
    if name:
        status["gpu"] = cut(name, 128)
    if pool.gpu.label:
        status["gpuLabel"] = cut(pool.gpu.label, 256)
    if pool.gpu.memory_bytes is not None:
        status["memoryPerGPU"] = format_bytes(pool.gpu.memory_bytes)
    status["nodes"] = len(pool.nodes)
    status["gpus"] = sum(node.gpus_allocatable for node in pool.nodes)
    status["freeGPUs"] = sum(node.gpus_free for node in pool.nodes)
    news = [_ready(pool), _gpu_known(pool, gpu_name)]
    if pool.power_budget_watts is not None:
        news.append(_budget(pool.power_budget_watts))
    spoken_of = {each.type for each in news}
    kept = [each for each in (previous or {}).get("conditions") or [] if each.get("type") in spoken_of]
    status["conditions"] = merge_conditions(kept, news, stamp)
    return status


def _ready(pool: Pool) -> Condition:
    left_out = "".join(f"; {note}" for note in pool.notes)
    if pool.problem is not None:
        return Condition(cond.READY, "False", pool.problem.reason, pool.problem.message + left_out)
    if not pool.nodes:
        message = "no node has the labels of spec.nodeSelector and a GPU: correct the labels or add nodes"
        return Condition(cond.READY, "False", "NoNodes", message + left_out)
    usable = sum(node.schedulable for node in pool.nodes)
    message = f"{usable} of {len(pool.nodes)} nodes take pods{left_out}"
    if usable == 0:
        return Condition(cond.READY, "False", "NoSchedulableNodes", f"{message}: uncordon or repair one")
    return Condition(cond.READY, "True", "NodesReady", message)


def _gpu_known(pool: Pool, gpu_name: str | None) -> Condition:
    if gpu_name is not None:
        return Condition(cond.GPU_KNOWN, "True", "InCatalogue", f"{pool.gpu.label} is {gpu_name}")
    if not pool.gpu.label:
        message = "no label of the nodes names their GPU: set spec.gpu, such as NVIDIA-L40S"
        return Condition(cond.GPU_KNOWN, "False", "GpuUnnamed", message)
    message = f"the catalogue has no GPU {pool.gpu.label}: if it has another name, set spec.gpu to that"
    return Condition(cond.GPU_KNOWN, "False", "UnknownGpu", message)


def _budget(watts: int) -> Condition:
    message = f"spec.powerBudgetWatts {watts} is accepted, but this version enforces no budget"
    return Condition(cond.POWER_BUDGET_ENFORCED, "False", cond.NOT_IMPLEMENTED, message)
