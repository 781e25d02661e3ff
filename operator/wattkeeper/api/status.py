"""The status of an LLMDeployment, made by pure functions: previous status and news in, whole status out.

Server-side apply takes away what a manager no longer says, so each function returns the whole status. The
operator and `wattkeeper plan` use the same ones.

The phase is for reading and follows from the rest:

    Invalid        the spec can't be carried out (Accepted is False) and nothing runs
    Failed         the pods can't start or keep dying (Ready is False, reason Failed)
    Off            spec.replicas is 0
    Pending        not decided yet, or waiting for pods of others to be bound
    Unschedulable  no pool can be used (Placed is False)
    Placed         a pool was chosen, no pod exists yet
    Loading        pods exist, none answers yet
    PartlyReady    some of the replicas answer
    Ready          all of them do
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wattkeeper.api import conditions as cond
from wattkeeper.api.conditions import (
    Condition,
    Stamp,
    condition_status,
    find_condition,
    merge_conditions,
)
from wattkeeper.api.errors import SpecErrors
from wattkeeper.api.figures import candidate_row, gpu_shown, prediction_of
from wattkeeper.api.quantities import format_duration
from wattkeeper.api.v1alpha1.llmdeployment import LLMDeploymentSpec
from wattkeeper.core.decision import MAX_TABLE_ROWS, Candidate, PlacementDecision
from wattkeeper.core.demand import Demand, Sla
from wattkeeper.core.forecast import Forecast

#: Reasons of Placed that mean: ask again soon, nothing is wrong.
WAITING_REASONS = frozenset({"Pending", "CapacitySettling"})
FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class RecordedPlacement:
    """What status says of an earlier decision: reservations are rebuilt from it."""

    pool: str
    gpus_per_replica: int


@dataclass(frozen=True, slots=True)
class Serving:
    """What exists of the child at one moment. `failure` says why its pods can't run, None while they can."""

    selector: str
    replicas: int = 0
    ready_replicas: int = 0
    failure: str | None = None


def recorded_placement(resource: Mapping[str, Any]) -> RecordedPlacement | None:
    """The placement that an LLMDeployment's status records, None while it has none."""
    status = resource.get("status")
    if not isinstance(status, Mapping):
        return None
    pool, gpus = status.get("pool"), status.get("gpusPerReplica")
    if not isinstance(pool, str) or not pool or not isinstance(gpus, int):
        return None
    return RecordedPlacement(pool, gpus)


def placement_status(
    decision: PlacementDecision,
    demand: Demand,
    spec: LLMDeploymentSpec,
    stamp: Stamp,
    previous: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The status after a placement decision, with the candidate table; previous placement is replaced."""
    status = {key: value for key, value in (previous or {}).items() if key not in _PLACEMENT_FIELDS}
    chosen = None if decision.deferred else decision.chosen
    if chosen is not None:
        status["pool"] = chosen.pool
        status["gpu"] = gpu_shown(chosen)
        status["gpusPerReplica"] = chosen.gpus_per_replica
        if chosen.forecast is not None:
            status["prediction"] = prediction_of(chosen.forecast, demand.sla)
    _set_table(status, decision)
    placed = Condition(cond.PLACED, "True" if chosen else "False", decision.reason, decision.message)
    return _finished(status, [_accepted(), placed, _sla_feasible(decision, demand.sla)], spec, stamp)


def reaffirmed_status(
    decision: PlacementDecision,
    demand: Demand,
    spec: LLMDeploymentSpec,
    stamp: Stamp,
    previous: Mapping[str, Any],
) -> dict[str, Any]:
    """The status after another look at a placed LLMDeployment: the table is made anew, the pool stays."""
    status = dict(previous)
    if decision.chosen is not None and decision.chosen.forecast is not None:
        status["prediction"] = prediction_of(decision.chosen.forecast, demand.sla)
    _set_table(status, decision)
    placed = Condition(cond.PLACED, "True", decision.reason, decision.message)
    return _finished(status, [_accepted(), placed, _sla_feasible(decision, demand.sla)], spec, stamp)


def serving_status(
    serving: Serving, spec: LLMDeploymentSpec, stamp: Stamp, previous: Mapping[str, Any]
) -> dict[str, Any]:
    """The status after a look at the child's pods."""
    status = dict(previous)
    status["replicas"] = serving.replicas
    status["readyReplicas"] = serving.ready_replicas
    status["selector"] = serving.selector
    finished = _finished(status, [_ready(serving, spec.replicas)], spec, stamp)
    # A look at pods answers no change of the spec: that is the placement's to say.
    return finished | {"observedGeneration": previous.get("observedGeneration", stamp.generation)}


def refused_status(
    reason: str, message: str, stamp: Stamp, previous: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The status of a spec that can't be carried out. What runs keeps running, and keeps its status."""
    status = dict(previous or {})
    news = [Condition(cond.ACCEPTED, "False", reason, message)]
    if recorded_placement({"status": status}) is None:
        status = {key: value for key, value in status.items() if key not in _PLACEMENT_FIELDS}
        news.append(Condition(cond.PLACED, "False", reason, "not placed: see the condition Accepted"))
        news.append(
            Condition(cond.SLA_FEASIBLE, "Unknown", reason, "not predicted: see the condition Accepted")
        )
    status["conditions"] = merge_conditions(status.get("conditions") or [], news, stamp)
    status["observedGeneration"] = stamp.generation
    status["phase"] = phase_of(status, None)
    return _ordered(status)


def invalid_status(
    errors: SpecErrors, stamp: Stamp, previous: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The status of a spec with errors: all of them, in the message of Accepted."""
    return refused_status(errors.reason, str(errors), stamp, previous)


def conditioned_status(
    news: Iterable[Condition], stamp: Stamp, previous: Mapping[str, Any]
) -> dict[str, Any]:
    """The status with further conditions (ReplicasConflict and the like); all else stays."""
    status = dict(previous)
    status["conditions"] = merge_conditions(status.get("conditions") or [], news, stamp)
    return _ordered(status)


def phase_of(status: Mapping[str, Any], spec_replicas: int | None) -> str:
    """The phase by the table above. `spec_replicas` is None where the spec can't be read."""
    conditions = status.get("conditions") or []
    replicas = int(status.get("replicas") or 0)
    serving = find_condition(conditions, cond.READY) or {}
    if condition_status(conditions, cond.ACCEPTED) == "False" and replicas == 0:
        return "Invalid"
    if serving.get("reason") == FAILED:
        return FAILED
    if spec_replicas == 0:
        return "Off"
    placed = find_condition(conditions, cond.PLACED) or {}
    if placed.get("status") != "True":
        return "Pending" if not placed or placed.get("reason") in WAITING_REASONS else "Unschedulable"
    return _phase_of_pods(replicas, int(status.get("readyReplicas") or 0), spec_replicas)


def _phase_of_pods(replicas: int, ready: int, spec_replicas: int | None) -> str:
    if replicas == 0:
        return "Placed"
    if ready == 0:
        return "Loading"
    return "Ready" if ready >= (replicas if spec_replicas is None else spec_replicas) else "PartlyReady"


def same_status(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether writing `other` over `one` would change nothing."""
    return _ordered(one) == _ordered(other)


_PLACEMENT_FIELDS = frozenset(
    {"pool", "gpu", "gpusPerReplica", "prediction", "candidates", "poolsConsidered"}
)
_ORDER = (
    "phase",
    "observedGeneration",
    "pool",
    "gpu",
    "gpusPerReplica",
    "prediction",
    "candidates",
    "poolsConsidered",
    "replicas",
    "readyReplicas",
    "selector",
    "conditions",
)


def _set_table(status: dict[str, Any], decision: PlacementDecision) -> None:
    status["candidates"] = [candidate_row(candidate) for candidate in decision.table[:MAX_TABLE_ROWS]]
    status["poolsConsidered"] = max(decision.pools_considered, len(decision.table))


def _finished(
    status: dict[str, Any], news: Iterable[Condition], spec: LLMDeploymentSpec, stamp: Stamp
) -> dict[str, Any]:
    """`status` with its conditions, the answers to fields whose part is still to come, and the phase."""
    known = status.get("conditions") or []
    answers = [*news, *_not_yet(spec)]
    if find_condition(known, cond.READY) is None and all(each.type != cond.READY for each in answers):
        answers.append(Condition(cond.READY, "False", "NoReplicas", "no replica exists yet"))
    status["conditions"] = merge_conditions(known, answers, stamp)
    status["observedGeneration"] = stamp.generation
    status["phase"] = phase_of(status, spec.replicas)
    return _ordered(status)


def _ordered(status: Mapping[str, Any]) -> dict[str, Any]:
    first = {key: status[key] for key in _ORDER if key in status}
    return first | {key: value for key, value in status.items() if key not in first}


def _accepted() -> Condition:
    return Condition(cond.ACCEPTED, "True", "Valid", "the spec is understood")


def _not_yet(spec: LLMDeploymentSpec) -> list[Condition]:
    """Answers to fields that are accepted and not acted upon: nothing pretends."""
    telemetry = Condition(
        cond.TELEMETRY_HEALTHY,
        "Unknown",
        cond.NOT_IMPLEMENTED,
        "this version reads no measurements of power or load",
    )
    policy = spec.parking.policy
    if policy == "Never":
        message = "spec.parking.policy is Never: the model keeps its GPUs"
        return [telemetry, Condition(cond.PARKING_BLOCKED, "False", "PolicyNever", message)]
    message = (
        f"spec.parking.policy {policy} is accepted, but this version parks nothing: the model keeps its GPUs"
    )
    return [telemetry, Condition(cond.PARKING_BLOCKED, "True", cond.NOT_IMPLEMENTED, message)]


def _ready(serving: Serving, wanted: int) -> Condition:
    if serving.failure is not None:
        return Condition(cond.READY, "False", FAILED, serving.failure)
    if wanted == 0:
        return Condition(cond.READY, "False", "Off", "spec.replicas is 0")
    count = f"{serving.ready_replicas} of {wanted} replicas answer requests"
    if serving.ready_replicas >= wanted:
        return Condition(cond.READY, "True", "AllReplicasReady", count)
    if serving.replicas == 0:
        return Condition(cond.READY, "False", "NoReplicas", "no replica exists yet")
    return Condition(cond.READY, "False", "Loading" if serving.ready_replicas == 0 else "PartlyReady", count)


def _sla_feasible(decision: PlacementDecision, sla: Sla) -> Condition:
    """Whether latency can be met at all, apart from free GPUs, memory and taints; once placed: there."""
    table = [decision.chosen] if decision.chosen is not None and not decision.deferred else decision.table
    predicted = [(each, each.forecast) for each in table if each.forecast is not None]
    for candidate, forecast in predicted:
        if _meets(forecast, sla):
            return Condition(cond.SLA_FEASIBLE, "True", "Predicted", _answers(candidate, forecast, sla))
    if not predicted:
        message = f"no pool was predicted: {decision.message}"
        return Condition(cond.SLA_FEASIBLE, "Unknown", decision.reason, message)
    fastest, forecast = min(predicted, key=lambda each: each[1].itl_upper_seconds)
    message = f"{_answers(fastest, forecast, sla)}: raise it or choose a faster pool"
    return Condition(cond.SLA_FEASIBLE, "False", "SLAMissed", message)


def _answers(candidate: Candidate, forecast: Forecast, sla: Sla) -> str:
    upper = format_duration(forecast.itl_upper_seconds, upward=True)
    figures = f"{upper} a token at {sla.confidence_percent} % confidence"
    bound = f"spec.sla.interTokenLatency is {format_duration(sla.itl_seconds)}"
    if sla.ttft_seconds is not None:
        bound += f", spec.sla.timeToFirstToken {format_duration(sla.ttft_seconds)}"
    return f"{candidate.pool} ({gpu_shown(candidate)}) is predicted to need at most {figures}; {bound}"


def _meets(forecast: Forecast, sla: Sla) -> bool:
    if sla.ttft_seconds is not None:
        ttft = forecast.ttft_upper_seconds
        if ttft is None or ttft > sla.ttft_seconds:
            return False
    return forecast.itl_upper_seconds <= sla.itl_seconds
