"""The decisions of one sweep over 1,000 LLMDeployments on 4,000 GPUs, from readings to evictions.

What is timed is all that the core does in a sweep: idleness, the figures of each GPU's power, the pools', the
parking tax, T* and the eviction. Asking Prometheus and reading its answer come before it.
"""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import dataclass, field
from statistics import median

from tests.bench.timing import measure
from wattkeeper.core.break_even import LoadCost, break_even, load_cost
from wattkeeper.core.eviction import Action, FleetState, ModelState, ParkingRules, decide
from wattkeeper.core.idleness import ModelEvidence, PodEvidence, assess
from wattkeeper.core.parking_catalogue import LOADERS, figures_for
from wattkeeper.core.parking_tax import HeldGpu, gpu_tax, pool_figures
from wattkeeper.core.power_samples import GpuPowerState, Moments, RestState, add_reading, rest_state
from wattkeeper.core.readings import GpuReading, Holder, Sample, ServerReading
from wattkeeper.core.witnesses import IdleMemory, Verdict

MODELS, GPUS_PER_MODEL, POOLS = 1000, 4, 50
START, SWEEP_SECONDS = 1_000_000.0, 30.0
CATALOGUE = figures_for("NVIDIA-H100-80GB-HBM3")


@dataclass
class Sweeps:
    """What is kept from one sweep to the next, and the readings of the one to come."""

    now: float = START
    memories: dict[int, IdleMemory] = field(default_factory=lambda: {n: IdleMemory() for n in range(MODELS)})
    power: dict[str, GpuPowerState] = field(default_factory=dict)
    readings: list[tuple[ServerReading, tuple[GpuReading, ...]]] = field(default_factory=list)
    parked: int = 0

    def prepare(self) -> None:
        """New readings, half a minute later; nothing has moved."""
        self.now += SWEEP_SECONDS
        self.readings = [self._model(n) for n in range(MODELS)]
        for _, gpus in self.readings:
            for gpu in gpus:
                self.power.setdefault(gpu.uuid, MEASURED_GPU)

    def _model(self, n: int) -> tuple[ServerReading, tuple[GpuReading, ...]]:
        def read(value: float) -> Sample:
            return Sample(value, self.now - 5)

        server = ServerReading(
            "team",
            f"llm-{n}",
            "vllm",
            running=read(0),
            waiting=read(0),
            prompt_tokens_total=read(1e5),
            generation_tokens_total=read(2e5),
            requests_total=read(900),
        )
        gpus = tuple(
            GpuReading(
                f"GPU-{n}-{i}",
                node=f"node-{n}",
                power_watts=read(121.7 + i / 10),
                gpu_util_ratio=read(0),
                engine_active_ratio=read(0),
                memory_used_bytes=read(2e10),
                sm_clock_mhz=read(1980),
                holders=(Holder("team", f"llm-{n}"),),
            )
            for i in range(GPUS_PER_MODEL)
        )
        return server, gpus

    def decide(self) -> None:
        """One sweep's decisions."""
        pools = [
            pool_figures(self.power[gpu.uuid] for _, gpus in self.readings[pool::POOLS] for gpu in gpus)
            for pool in range(POOLS)
        ]
        models, held = [], {}
        for n, (server, gpus) in enumerate(self.readings):
            taxes = {gpu.uuid: gpu_tax(self.power[gpu.uuid], pools[n % POOLS], CATALOGUE) for gpu in gpus}
            levels = {uuid: tax.idle_level() for uuid, tax in taxes.items() if tax is not None}
            pod = PodEvidence(server.pod, START - 86_400, server, gpus, GPUS_PER_MODEL)
            found = assess(ModelEvidence((pod,), levels), self.memories[n], self.now)
            self.memories[n] = found.memory
            for gpu in gpus:
                state, _ = rest_state(gpu, holders_idle=found.verdict is Verdict.IDLE, pods_known=1)
                self.power[gpu.uuid] = add_reading(self.power[gpu.uuid], state, gpu)
                held[gpu.uuid] = HeldGpu(gpu.uuid, taxes[gpu.uuid])
            cost = break_even(LOAD, sum(tax.watts for tax in taxes.values() if tax is not None))
            uuids = tuple(gpu.uuid for gpu in gpus)
            models.append(
                ModelState(f"team/llm-{n}", f"pool-{n % POOLS}", ParkingRules(), found, cost, uuids)
            )
        decisions = decide(models, FleetState(telemetry_healthy=True, held_gpus=held), self.now)
        self.parked = sum(decision.action is Action.PARK for decision in decisions)


MEASURED_GPU = GpuPowerState(
    {
        RestState.BARE: Moments(20, 71.8, 1.0, 345.0),
        RestState.CONTEXT: Moments(20, 121.7, 1.0, 1980.0),
    }
)
LOAD: LoadCost = load_cost(
    load_watts=CATALOGUE.figures.load_watts,
    bare_watts=CATALOGUE.figures.bare_watts,
    weight_bytes=15.2e9,
    loader=LOADERS["standard"],
    gpus=GPUS_PER_MODEL,
)


def benchmarks() -> dict[str, dict[str, object]]:
    sweeps = Sweeps()
    timed = measure(sweeps.decide, runs=20, warm_up=2, before=sweeps.prepare)
    # Twenty half minutes are beyond T*: each pool has begun to park one group.
    assert sweeps.parked == POOLS, f"{sweeps.parked} of {POOLS} pools park a model"

    busy = []
    for _ in range(5):
        sweeps.prepare()
        began = time.process_time()
        sweeps.decide()
        busy.append(time.process_time() - began)

    tracemalloc.start()
    fresh = Sweeps()
    fresh.prepare()
    fresh.decide()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        f"decide over {MODELS} models on {MODELS * GPUS_PER_MODEL} GPUs": {
            **timed,
            "cpu_median_seconds": median(busy),
            "peak_bytes_with_readings": peak_bytes,
        }
    }
