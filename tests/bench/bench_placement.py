"""Placement of LLMDeployments over a hundred pools, with the shipped predictor."""

from __future__ import annotations

from tests.bench.timing import measure
from wattkeeper.core.demand import Demand, ModelChoice, Scenario, Sla, WorkloadShape
from wattkeeper.core.fleet import Fleet, GpuNode, Pool
from wattkeeper.core.forecast import GpuKind
from wattkeeper.core.placement import place
from wattkeeper.prediction import PredictorForecaster

GPUS = (
    ("NVIDIA-H100-NVL", 95830),
    ("NVIDIA-A100-SXM4-40GB", 40960),
    ("NVIDIA-L40S", 46068),
    ("NVIDIA-A30", 24576),
    ("NVIDIA-L4", 23034),
)
POOLS = 100
NODES_PER_POOL = 40


def benchmarks() -> dict[str, dict[str, object]]:
    fleet, demand = _fleet(), _demand()
    kept = PredictorForecaster()
    kept.load()
    fresh: list[PredictorForecaster] = []

    def forget() -> None:
        fresh[:] = [PredictorForecaster()]
        fresh[0].load()

    return {
        "place one over 100 pools and 4,000 nodes, answers kept": dict(
            measure(lambda: place(demand, fleet, kept), runs=50, warm_up=2)
        ),
        "place one over 100 pools and 4,000 nodes, nothing kept": dict(
            measure(lambda: place(demand, fleet, fresh[0]), runs=10, before=forget)
        ),
    }


def _fleet() -> Fleet:
    return Fleet(pools=tuple(_pool(number) for number in range(POOLS)))


def _pool(number: int) -> Pool:
    label, memory_mib = GPUS[number % len(GPUS)]
    gpu = GpuKind(label, memory_mib * 1024**2)
    nodes = tuple(
        GpuNode(name=f"pool-{number}-{node}", labels={}, gpu=gpu, gpus_allocatable=8, gpus_held=node % 9)
        for node in range(NODES_PER_POOL)
    )
    return Pool(name=f"pool-{number}", gpu=gpu, nodes=nodes, labels={}, node_selector={})


def _demand() -> Demand:
    return Demand(
        uid="0",
        namespace="bench",
        name="chat",
        created="2026-01-01T00:00:00Z",
        model=ModelChoice("meta-llama/Llama-3.1-8B-Instruct"),
        workload=WorkloadShape(Scenario.SERVER, 0.33, 256, 256),
        sla=Sla(itl_seconds=0.03),
    )
