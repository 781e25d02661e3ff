"""Is a model idle, and since when? Only evidence counts: what isn't known is never taken for idle.

Any witness (`core/witnesses.py`) that says busy makes the model busy; all that are needed must say idle. The
CPU is no witness. The clock starts at Ready, and at the last activity that any witness knows of.

A vLLM gauge that froze when all requests were cancelled at once (vllm#22545) doesn't block for ever: where
neither it nor a counter moved for a while and the GPU is at rest, the gauge is overruled, and both values are
reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from wattkeeper.core.readings import GpuReading, ServerReading
from wattkeeper.core.witnesses import (
    ActivatorReport,
    IdleLevel,
    IdleMemory,
    IdlenessLimits,
    PodMemory,
    Verdict,
    Witness,
    activator_says,
    counters_say,
    gauges_say,
    gpu_at_rest,
)


@dataclass(frozen=True, slots=True)
class PodEvidence:
    """One replica: when it became Ready, what its server says, and the GPUs it holds."""

    pod: str
    ready_at: float | None
    server: ServerReading | None
    gpus: tuple[GpuReading, ...] = ()
    gpus_expected: int = 1


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """All that is known of one model now. `always_through_activator`: no request can reach it otherwise."""

    pods: tuple[PodEvidence, ...]
    idle_levels: Mapping[str, IdleLevel] = field(default_factory=lambda: MappingProxyType({}))
    activator: ActivatorReport | None = None
    always_through_activator: bool = False
    counters_exported: bool = True  # False for engines without any, such as Ollama


@dataclass(frozen=True, slots=True)
class Idleness:
    """The verdict, since when, and why.

    `gpu_confirmed` is False where neighbours share the GPU: only all of them together can be confirmed then
    (`witnesses.gpu_at_rest`). `memory` goes into the next call.
    """

    verdict: Verdict
    idle_since: float | None
    reason: str  # CamelCase
    message: str
    gpu_confirmed: bool
    memory: IdleMemory
    disagreements: tuple[str, ...] = ()  # each with both values


@dataclass(frozen=True, slots=True)
class _Hearing:
    """What the witnesses said of one pod, and what to remember of it."""

    pod: PodEvidence
    shared: bool
    activator: Witness
    gauges: Witness
    counters: Witness
    gpus: tuple[Witness, ...]
    active_at: float
    memory: PodMemory | None

    @property
    def at_rest(self) -> bool:
        complete = len(self.gpus) >= max(1, self.pod.gpus_expected)
        return complete and all(gpu.verdict is Verdict.IDLE for gpu in self.gpus)


@dataclass(frozen=True, slots=True)
class _Finding:
    verdict: Verdict
    reason: str
    message: str
    confirmed: bool = False
    disagreement: str = ""


def assess(
    evidence: ModelEvidence, memory: IdleMemory, now: float, limits: IdlenessLimits | None = None
) -> Idleness:
    """Weigh the evidence on one model at `now` (Unix seconds)."""
    limits = limits or IdlenessLimits()
    loading = [pod.pod for pod in evidence.pods if pod.ready_at is None]
    if loading or not evidence.pods:
        message = f"not Ready: {', '.join(loading)}" if loading else "no pods"
        return Idleness(Verdict.NOT_READY, None, "NotReady", message, False, IdleMemory())

    hearings = [_hear(pod, evidence, memory.pods.get(pod.pod), now, limits) for pod in evidence.pods]
    findings = [_weigh(hearing, evidence, now, limits) for hearing in hearings]
    # The worst word on any replica stands for the model.
    order = (Verdict.BUSY, Verdict.UNKNOWN, Verdict.DISAGREE, Verdict.IDLE)
    worst = min(findings, key=lambda finding: order.index(finding.verdict))
    told = list(zip(hearings, findings, strict=True))
    return Idleness(
        worst.verdict,
        max(hearing.active_at for hearing in hearings) if worst.verdict is Verdict.IDLE else None,
        worst.reason,
        "; ".join(f"{h.pod.pod}: {f.message}" for h, f in told if f.verdict is worst.verdict),
        all(finding.confirmed for finding in findings),
        IdleMemory(MappingProxyType({h.pod.pod: h.memory for h in hearings if h.memory is not None})),
        tuple(f"{h.pod.pod}: {f.disagreement}" for h, f in told if f.disagreement),
    )


def _hear(
    pod: PodEvidence, evidence: ModelEvidence, past: PodMemory | None, now: float, limits: IdlenessLimits
) -> _Hearing:
    shared = any(gpu.shared for gpu in pod.gpus)
    gpus = tuple(gpu_at_rest(gpu, evidence.idle_levels.get(gpu.uuid), now, limits) for gpu in pod.gpus)
    activator = activator_says(evidence.activator, evidence.always_through_activator, now, limits)
    if evidence.counters_exported:
        gauges = gauges_say(pod.server, now, limits)
        counters, memory = counters_say(pod.server, past, now, limits)
    else:
        gauges = counters = Witness(Verdict.UNKNOWN, "the engine exports no request counters")
        memory = past or PodMemory((None, None, None), now, pod.ready_at or now)

    times = [pod.ready_at, activator.active_at, memory.active_at if memory else None]
    if not shared:  # else the activity may be a neighbour's
        times.extend(gpu.active_at for gpu in gpus)
    active_at = max(time for time in times if time is not None)
    if memory is not None:
        memory = replace(memory, active_at=active_at)
    return _Hearing(pod, shared, activator, gauges, counters, gpus, active_at, memory)


def _weigh(hearing: _Hearing, evidence: ModelEvidence, now: float, limits: IdlenessLimits) -> _Finding:
    """The rules, in the order in which they bind."""
    requests = _weigh_requests(hearing, evidence, now, limits)
    if requests.verdict is not Verdict.IDLE or requests.reason == "FrozenGauge":
        return requests
    return _weigh_gpus(hearing, requests.message)


def _weigh_requests(  # noqa: PLR0911  one return a rule
    hearing: _Hearing, evidence: ModelEvidence, now: float, limits: IdlenessLimits
) -> _Finding:
    if hearing.activator.verdict is Verdict.BUSY:
        return _Finding(Verdict.BUSY, "RequestsAtActivator", hearing.activator.message)
    if not evidence.counters_exported and not evidence.always_through_activator:
        message = "the engine exports no request counters: set parking.activation.path: Always"
        return _Finding(Verdict.UNKNOWN, "NoRequestCounters", message)
    if hearing.counters.verdict is Verdict.BUSY:
        return _Finding(Verdict.BUSY, "CountersMoved", hearing.counters.message)
    if hearing.gauges.verdict is Verdict.BUSY:
        quiet = now - hearing.active_at
        unmoved = hearing.counters.verdict is Verdict.IDLE
        if not (unmoved and hearing.at_rest and quiet >= limits.frozen_after_seconds):
            return _Finding(Verdict.BUSY, "RequestsInFlight", hearing.gauges.message)
        rest = "; ".join(gpu.message for gpu in hearing.gpus)
        message = f"frozen gauge: {hearing.gauges.message}, yet {hearing.counters.message} and {rest}"
        return _Finding(Verdict.IDLE, "FrozenGauge", message, not hearing.shared, message)
    if hearing.activator.verdict is Verdict.UNKNOWN:
        return _Finding(Verdict.UNKNOWN, "ActivatorUnknown", hearing.activator.message)
    if not evidence.counters_exported:
        return _Finding(Verdict.IDLE, "Idle", hearing.activator.message)
    for witness in (hearing.counters, hearing.gauges):
        if witness.verdict is Verdict.UNKNOWN:
            return _Finding(Verdict.UNKNOWN, "ServerMetricsMissing", witness.message)
    return _Finding(Verdict.IDLE, "Idle", f"{hearing.gauges.message}, {hearing.counters.message}")


def _weigh_gpus(hearing: _Hearing, said: str) -> _Finding:
    """The server is idle; what does the GPU say?"""
    expected = hearing.pod.gpus_expected
    if len(hearing.gpus) < expected:
        message = f"{len(hearing.gpus)} of {expected} GPUs have telemetry"
        return _Finding(Verdict.UNKNOWN, "GpuTelemetryMissing", message)
    if hearing.shared:
        return _Finding(Verdict.IDLE, "IdleOnSharedGpu", f"{said}; the GPU is shared")
    for gpu in hearing.gpus:
        if gpu.verdict is Verdict.BUSY:
            message = f"the server says idle ({said}), the GPU doesn't ({gpu.message})"
            return _Finding(Verdict.DISAGREE, "GpuDisagrees", message, disagreement=message)
    for gpu in hearing.gpus:
        if gpu.verdict is Verdict.UNKNOWN:
            return _Finding(Verdict.UNKNOWN, "GpuTelemetryMissing", gpu.message)
    return _Finding(Verdict.IDLE, "Idle", f"{said}; {'; '.join(gpu.message for gpu in hearing.gpus)}", True)
