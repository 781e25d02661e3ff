"""The status of a GPUNodePool."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wattkeeper.api.conditions import Stamp, find_condition
from wattkeeper.api.pool_status import pool_status
from wattkeeper.api.v1alpha1 import GPUNodePoolStatus
from wattkeeper.core.fleet import GpuNode, Pool, Problem
from wattkeeper.core.forecast import GpuKind

STAMP = Stamp(2, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
L40S = GpuKind("NVIDIA-L40S", 46068 * 1024**2)
NODES = (
    GpuNode("n1", {}, L40S, gpus_allocatable=8, gpus_held=3),
    GpuNode("n2", {}, L40S, gpus_allocatable=8, schedulable=False),
)
POOL = Pool("l40s", L40S, NODES, {}, {"nvidia.com/gpu.product": "NVIDIA-L40S"})


def said(pool: Pool, gpu_name: str | None = "L40S", previous: Any = None) -> dict[str, Any]:
    status = pool_status(pool, gpu_name, STAMP, previous)
    GPUNodePoolStatus.model_validate(status, extra="forbid")
    return status


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    found = find_condition(status["conditions"], kind)
    assert found is not None
    return found["status"], found["reason"], found["message"]


def test_what_the_nodes_have() -> None:
    status = said(POOL)
    assert {key: value for key, value in status.items() if key != "conditions"} == {
        "observedGeneration": 2,
        "gpu": "L40S",
        "gpuLabel": "NVIDIA-L40S",
        "memoryPerGPU": "46068Mi",
        "nodes": 2,
        "gpus": 16,
        "freeGPUs": 5,
    }
    assert condition(status, "Ready") == ("True", "NodesReady", "1 of 2 nodes take pods")
    assert condition(status, "GPUKnown") == ("True", "InCatalogue", "NVIDIA-L40S is L40S")
    assert find_condition(status["conditions"], "PowerBudgetEnforced") is None


def test_a_pool_without_nodes() -> None:
    status = said(replace(POOL, nodes=(), gpu=GpuKind("")), None)
    assert (status["nodes"], status["gpus"], status["freeGPUs"]) == (0, 0, 0)
    assert not {"gpu", "gpuLabel", "memoryPerGPU"} & status.keys()
    assert condition(status, "Ready")[:2] == ("False", "NoNodes")
    assert condition(status, "GPUKnown")[:2] == ("False", "GpuUnnamed")
    assert "spec.gpu" in condition(status, "GPUKnown")[2]


def test_a_pool_whose_nodes_take_no_pods() -> None:
    assert condition(said(replace(POOL, nodes=NODES[1:])), "Ready")[:2] == ("False", "NoSchedulableNodes")


def test_a_pool_with_a_problem_says_it_with_its_notes() -> None:
    pool = replace(POOL, problem=Problem("GpuShared", "GPUs are shared: stop it"), notes=("n3 left out",))
    assert condition(said(pool), "Ready") == ("False", "GpuShared", "GPUs are shared: stop it; n3 left out")


def test_a_gpu_that_the_catalogue_lacks() -> None:
    status = said(POOL, None)
    assert status["gpu"] == "NVIDIA-L40S"
    assert condition(status, "GPUKnown")[:2] == ("False", "UnknownGpu")


def test_a_budget_is_answered_and_forgotten_with_the_field() -> None:
    with_budget = said(replace(POOL, power_budget_watts=2800))
    assert condition(with_budget, "PowerBudgetEnforced")[:2] == ("False", "NotImplemented")
    assert find_condition(said(POOL, previous=with_budget)["conditions"], "PowerBudgetEnforced") is None
