"""The witnesses of idleness: the server's gauges, its counters, the activator, and the GPU.

Each says idle, busy or unknown, and shows the values it rests on. Values older than `max_age_seconds` are no
evidence, nor are values from the future: those mean that clocks disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from wattkeeper.core.readings import GpuReading, Sample, ServerReading


class Verdict(StrEnum):
    """What a witness, or all of them together, say of one model."""

    IDLE = "Idle"
    BUSY = "Busy"
    UNKNOWN = "Unknown"  # something needed is missing or stale
    DISAGREE = "Disagree"  # the server says idle, the GPU says busy
    NOT_READY = "NotReady"  # pending or loading: the clock hasn't started


@dataclass(frozen=True, slots=True)
class IdlenessLimits:
    """How evidence is weighed. Seconds and ratios."""

    max_age_seconds: float = 90.0  # three collect intervals of dcgm-exporter
    max_ahead_seconds: float = 5.0
    frozen_after_seconds: float = 300.0  # nothing moved for so long: a gauge above zero is frozen
    busy_util_ratio: float = 0.01
    busy_engine_ratio: float = 0.005
    power_margin_ratio: float = 0.05  # above the idle level measured on this GPU
    power_margin_watts: float = 5.0
    power_margin_sigmas: float = 4.0
    unmeasured_margin_ratio: float = 0.30  # above the catalogue's level: boards differ by that much

    def fresh(self, sample: Sample | None, now: float) -> Sample | None:
        """The sample where it is evidence at `now`, else None."""
        if sample is None:
            return None
        return sample if -self.max_ahead_seconds <= sample.age_seconds(now) <= self.max_age_seconds else None


@dataclass(frozen=True, slots=True)
class IdleLevel:
    """The watts of one GPU with an idle context, as far as they are known."""

    watts: float
    spread_watts: float
    measured: bool

    def ceiling_watts(self, limits: IdlenessLimits) -> float:
        """Power up to here is that of an idle context."""
        if not self.measured:
            return self.watts * (1 + limits.unmeasured_margin_ratio)
        return self.watts + max(
            limits.power_margin_watts,
            limits.power_margin_ratio * self.watts,
            limits.power_margin_sigmas * self.spread_watts,
        )


@dataclass(frozen=True, slots=True)
class ActivatorReport:
    """What the activators, all together, last said of this model. Requests that wake nothing aren't in it."""

    in_flight: int
    last_request_at: float | None  # None: none since `since`
    since: float  # they have watched without a break since then
    measured_at: float


Counters = tuple[float | None, float | None, float | None]
Gauges = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class PodMemory:
    """A pod's metrics as last seen, and its last known activity; plain data, kept across restarts."""

    counters: Counters
    seen_at: float
    active_at: float
    gauges: Gauges = (None, None)  # running, waiting


@dataclass(frozen=True, slots=True)
class IdleMemory:
    """What has to be remembered between two looks, by pod."""

    pods: Mapping[str, PodMemory] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Witness:
    """One witness' word with the values it rests on, and the last activity it knows of."""

    verdict: Verdict
    message: str
    active_at: float | None = None


def gauges_say(server: ServerReading | None, now: float, limits: IdlenessLimits) -> Witness:
    """Requests running or waiting in the server."""
    if server is None:
        return Witness(Verdict.UNKNOWN, "no metrics of the server")
    running, waiting = limits.fresh(server.running, now), limits.fresh(server.waiting, now)
    shown = f"running {_number(running)}, waiting {_number(waiting)}"
    if any(gauge is not None and gauge.value > 0 for gauge in (running, waiting)):
        return Witness(Verdict.BUSY, shown)
    # An engine without a queue of its own has no waiting gauge; one whose gauge went stale is unknown.
    if running is None or (waiting is None and server.waiting is not None):
        return Witness(Verdict.UNKNOWN, f"no fresh request gauges ({shown})")
    return Witness(Verdict.IDLE, shown)


def counters_say(
    server: ServerReading | None, past: PodMemory | None, now: float, limits: IdlenessLimits
) -> tuple[Witness, PodMemory | None]:
    """Whether any counter moved since the last look, and what to remember.

    A counter that went down was restarted, which is activity too; so is a gauge that changed. The first look
    can only remember.
    """
    witness, memory = _compare_counters(server, past, now, limits)
    if server is None or memory is None:
        return witness, memory
    gauges, active_at = list(memory.gauges), memory.active_at
    for i, gauge in enumerate(limits.fresh(each, now) for each in (server.running, server.waiting)):
        if gauge is not None and gauge.value != gauges[i]:
            # Seen for the first time, zero tells of no activity; more does, until it is proved frozen.
            if gauges[i] is not None or gauge.value > 0:
                active_at = max(active_at, gauge.changed_at)
            gauges[i] = gauge.value
    return witness, replace(memory, gauges=(gauges[0], gauges[1]), active_at=active_at)


def _compare_counters(
    server: ServerReading | None, past: PodMemory | None, now: float, limits: IdlenessLimits
) -> tuple[Witness, PodMemory | None]:
    fresh = [limits.fresh(counter, now) for counter in server.counters] if server is not None else []
    known = [counter for counter in fresh if counter is not None]
    if not known:
        return Witness(Verdict.UNKNOWN, "no fresh counters of the server"), past
    one, two, three = (counter.value if counter is not None else None for counter in fresh)
    values: Counters = (one, two, three)
    seen_at = min(counter.measured_at for counter in known)
    if past is None or past.counters == (None, None, None):
        active_at = max(counter.changed_at for counter in known)
        gauges = past.gauges if past else (None, None)
        memory = PodMemory(values, seen_at, max(active_at, past.active_at if past else active_at), gauges)
        return Witness(Verdict.UNKNOWN, "counters seen for the first time"), memory
    moved, moved_at = [], past.active_at
    for before, counter in zip(past.counters, fresh, strict=True):
        if counter is not None and counter.value != (before or 0.0):
            moved.append(f"{'none' if before is None else f'{before:g}'} → {counter.value:g}")
            moved_at = max(moved_at, counter.changed_at)
    if moved:
        memory = PodMemory(values, seen_at, moved_at, past.gauges)
        return Witness(Verdict.BUSY, f"counters moved: {', '.join(moved)}", moved_at), memory
    pairs = zip(past.counters, fresh, strict=True)
    if any(before is not None and counter is None for before, counter in pairs):
        return Witness(Verdict.UNKNOWN, "a counter of the server is gone"), past
    text = f"counters unmoved for {seen_at - past.active_at:.0f} s"
    return Witness(Verdict.IDLE, text, past.active_at), replace(past, counters=values, seen_at=seen_at)


def activator_says(
    report: ActivatorReport | None, always_in_path: bool, now: float, limits: IdlenessLimits
) -> Witness:
    """Requests at the activator. Only where it is always in the path does its silence prove anything."""
    if report is None:
        if always_in_path:
            return Witness(Verdict.UNKNOWN, "all requests pass the activator, and it doesn't report")
        return Witness(Verdict.IDLE, "the activator isn't in the path")
    age = now - report.measured_at
    if age > limits.max_age_seconds or age < -limits.max_ahead_seconds:
        return Witness(Verdict.UNKNOWN, f"the activator's report is {age:.0f} s old")
    if report.in_flight > 0:
        return Witness(Verdict.BUSY, f"{report.in_flight} requests at the activator", report.measured_at)
    last = report.last_request_at
    if always_in_path:  # where it hasn't watched, there may have been requests
        last = max(report.since, last) if last is not None else report.since
    return Witness(Verdict.IDLE, "nothing in flight at the activator", last)


def gpu_at_rest(  # noqa: PLR0911  one return a rule
    gpu: GpuReading, level: IdleLevel | None, now: float, limits: IdlenessLimits | None = None
) -> Witness:
    """Whether the whole GPU looks like one that only holds idle contexts.

    Needs fresh power, a level to compare it with, and a fresh utilisation. A profiling field may be stuck at
    zero, so it may say busy but not idle; with MIG, where no other utilisation exists, power must agree.
    """
    limits = limits or IdlenessLimits()
    util = limits.fresh(gpu.gpu_util_ratio, now)
    engine = limits.fresh(gpu.engine_active_ratio, now)
    power = limits.fresh(gpu.power_watts, now)
    shown = _describe(gpu, power, level, util, engine)
    if util is not None and util.value > limits.busy_util_ratio:
        return Witness(Verdict.BUSY, shown, util.measured_at)
    if engine is not None and engine.value > limits.busy_engine_ratio:
        return Witness(Verdict.BUSY, shown, engine.measured_at)
    if power is not None and level is not None and power.value > level.ceiling_watts(limits):
        return Witness(Verdict.BUSY, shown, power.measured_at)
    if power is None:
        return Witness(Verdict.UNKNOWN, f"no fresh power of {gpu.uuid}")
    if level is None:
        return Witness(Verdict.UNKNOWN, f"the idle level of {gpu.uuid} isn't known yet")
    if util is None and not (gpu.mig and engine is not None):
        return Witness(Verdict.UNKNOWN, f"no fresh utilisation of {gpu.uuid}")
    return Witness(Verdict.IDLE, shown)


def _number(sample: Sample | None) -> str:
    return "unknown" if sample is None else f"{sample.value:g}"


def _describe(
    gpu: GpuReading, power: Sample | None, level: IdleLevel | None, util: Sample | None, engine: Sample | None
) -> str:
    against = f" against {level.watts:.1f} W idle" if level is not None else ""
    watts = f"{power.value:.1f} W" if power is not None else "power unknown"
    busy = f"{util.value:.0%}" if util is not None else "unknown"
    active = f", engine {engine.value:.1%}" if engine is not None else ""
    return f"{gpu.uuid} draws {watts}{against}, utilisation {busy}{active}"
