"""Running figures of a GPU's power in its two resting states, small enough to keep for thousands of GPUs.

Readings half a minute apart are nearly the same reading: a confidence interval from their bare number would
be far too narrow. They are gathered into batches of five minutes, and the batch means are what is counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from wattkeeper.core.readings import GpuReading

BATCH_SECONDS = 300.0
# A batch with fewer readings than this (at the exporter's 30 s: half of it) is dropped.
BATCH_READINGS = 5
# After a change of state the driver's averaged power, clocks and temperature settle first.
SETTLE_SECONDS = 60.0
# Old batches fade, so that a new driver or season is learnt within days: a weight of 2016 five-minute
# batches is one week of one state.
MAX_WEIGHT = 2016.0
# Seed 002's production study calls a GPU empty below 0.1 GB; an idle context alone held 0.5 GB and more.
EMPTY_BYTES = 100 * 1024 * 1024


class RestState(StrEnum):
    """How a GPU rests."""

    BARE = "bare"  # no pod, no context
    CONTEXT = "context"  # idle models resident
    CONTEXT_UNBOOSTED = "unboosted"  # the same, with CUDA_DISABLE_PERF_BOOST in the pods' environment


@dataclass(frozen=True, slots=True)
class Moments:
    """Weighted mean and variance of batch means, and the mean SM clock beside them."""

    weight: float = 0.0
    mean_watts: float = 0.0
    m2: float = 0.0  # sum of squared deviations
    sm_clock_mhz: float | None = None

    @property
    def variance(self) -> float:
        return self.m2 / (self.weight - 1) if self.weight > 1 else math.inf

    @property
    def standard_error(self) -> float:
        return math.sqrt(self.variance / self.weight) if self.weight > 1 else math.inf

    def add(self, watts: float, sm_clock_mhz: float | None) -> Moments:
        """One more batch mean; beyond MAX_WEIGHT the old ones fade."""
        fade = min(1.0, MAX_WEIGHT / (self.weight + 1))
        weight = self.weight * fade + 1
        delta = watts - self.mean_watts
        mean = self.mean_watts + delta / weight
        clock = self.sm_clock_mhz
        if sm_clock_mhz is not None:
            clock = sm_clock_mhz if clock is None else clock + (sm_clock_mhz - clock) / weight
        return Moments(weight, mean, self.m2 * fade + delta * (watts - mean), clock)


@dataclass(frozen=True, slots=True)
class Batch:
    """The readings of the batch being gathered."""

    state: RestState
    entered_at: float  # when the state was entered
    started_at: float
    last_at: float
    count: int = 0
    watts: float = 0.0  # sums
    clock: float = 0.0
    clocks: int = 0


@dataclass(frozen=True, slots=True)
class GpuPowerState:
    """All that is kept of one GPU."""

    moments: Mapping[RestState, Moments]
    batch: Batch | None = None


EMPTY_STATE = GpuPowerState({})


def rest_state(  # noqa: PLR0911  one return a rule
    gpu: GpuReading, *, holders_idle: bool | None, pods_known: int | None, unboosted: bool = False
) -> tuple[RestState | None, str]:
    """Which state a reading belongs to, or None with the reason why it is left out.

    `holders_idle`: all pods that hold the GPU are idle by their servers' word (None: not known).
    `pods_known`: how many pods hold it by the cluster's own account (None: not known).
    """
    util, engine, memory = gpu.gpu_util_ratio, gpu.engine_active_ratio, gpu.memory_used_bytes
    if gpu.power_watts is None:
        return None, "no power"
    if (util is not None and util.value > 0) or (engine is not None and engine.value > 0.005):
        return None, "at work"
    if util is None and engine is None:
        return None, "no utilisation"
    if gpu.other_jobs:
        return None, "held by a batch job"
    if gpu.holders or pods_known:
        if not holders_idle:
            return None, "its pods aren't known to be idle"
        return (RestState.CONTEXT_UNBOOSTED if unboosted else RestState.CONTEXT), ""
    if pods_known is None:
        return None, "its pods aren't known"
    if memory is None:
        return None, "memory in use isn't known"
    if memory.value >= EMPTY_BYTES:
        return None, "memory is held by no known pod"
    return RestState.BARE, ""


def add_reading(kept: GpuPowerState, state: RestState | None, gpu: GpuReading) -> GpuPowerState:
    """The figures with one more reading. Readings seen before, or out of order, change nothing."""
    batch, power = kept.batch, gpu.power_watts
    if state is None or power is None:
        return replace(kept, batch=None) if batch is not None else kept
    at = power.measured_at
    if batch is None or batch.state is not state or at - batch.last_at > BATCH_SECONDS:
        return replace(kept, batch=Batch(state, at, at + SETTLE_SECONDS, at))
    if at <= batch.last_at:
        return kept
    if at < batch.started_at:  # settling
        return replace(kept, batch=replace(batch, last_at=at))
    moments = kept.moments
    if at >= batch.started_at + BATCH_SECONDS:
        moments = _close(moments, batch)
        batch = Batch(state, batch.entered_at, at, at)
    clock = gpu.sm_clock_mhz
    return GpuPowerState(
        moments,
        replace(
            batch,
            last_at=at,
            count=batch.count + 1,
            watts=batch.watts + power.value,
            clock=batch.clock + (clock.value if clock is not None else 0.0),
            clocks=batch.clocks + (clock is not None),
        ),
    )


def _close(moments: Mapping[RestState, Moments], batch: Batch) -> Mapping[RestState, Moments]:
    if batch.count < BATCH_READINGS:
        return moments
    clock = batch.clock / batch.clocks if batch.clocks else None
    before = moments.get(batch.state, Moments())
    return {**moments, batch.state: before.add(batch.watts / batch.count, clock)}


def to_plain(kept: GpuPowerState) -> dict[str, list[float | None]]:
    """What is worth keeping over a restart, as JSON values: {state: [weight, mean W, m2, SM clock MHz]}.

    The batch being gathered is not: a restart costs at most five minutes of readings.
    """
    return {
        state.value: [
            round(m.weight, 3),
            round(m.mean_watts, 4),
            round(m.m2, 4),
            None if m.sm_clock_mhz is None else round(m.sm_clock_mhz, 1),
        ]
        for state, m in kept.moments.items()
    }


def from_plain(plain: Mapping[str, object]) -> GpuPowerState:
    """The figures that `to_plain` gave. Entries that aren't such are left out: they are measured anew."""
    moments: dict[RestState, Moments] = {}
    for state in RestState:
        values = plain.get(state.value)
        if not isinstance(values, list) or len(values) != 4:
            continue
        weight, mean, m2, clock = (float(v) if isinstance(v, int | float) else math.nan for v in values)
        if all(math.isfinite(v) and v >= 0 for v in (weight, mean, m2)):
            moments[state] = Moments(weight, mean, m2, clock if math.isfinite(clock) else None)
    return GpuPowerState(moments)
