"""Conditions: what holds of a resource, each with a reason for programs and a message for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

ConditionStatus = Literal["True", "False", "Unknown"]

# Types of an LLMDeployment's conditions.
ACCEPTED = "Accepted"  # the spec is understood, what it refers to exists
PLACED = "Placed"  # a pool was chosen and its GPUs promised
READY = "Ready"  # all replicas answer requests
SLA_FEASIBLE = "SLAFeasible"  # some pool's predicted latency meets the SLA, with GPUs free or not
TELEMETRY_HEALTHY = "TelemetryHealthy"  # measurements arrive and agree
PARKING_BLOCKED = "ParkingBlocked"  # the parking policy can't be followed
REPLICAS_CONFLICT = "ReplicasConflict"  # somebody else writes the child's replicas

# Types of a GPUNodePool's conditions (and READY: it has schedulable nodes).
GPU_KNOWN = "GPUKnown"  # the catalogue knows the GPU
POWER_BUDGET_ENFORCED = "PowerBudgetEnforced"

#: The reason of a field that is accepted and not acted upon yet.
NOT_IMPLEMENTED = "NotImplemented"

_MAX_MESSAGE = 4096  # of the 32,768 that the schema allows: statuses are watched by many


@dataclass(frozen=True, slots=True)
class Condition:
    """What to say of one aspect; the times are added when it is written."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Stamp:
    """Of which generation a status speaks, and when it is written (an aware time)."""

    generation: int
    now: datetime


def merge_conditions(
    previous: Sequence[Mapping[str, Any]], news: Iterable[Condition], stamp: Stamp
) -> list[dict[str, Any]]:
    """The conditions after `news`: those not spoken of stay, new types come last.

    `lastTransitionTime` moves only when the status of that condition changes.
    """
    merged: dict[str, dict[str, Any]] = {str(each.get("type")): dict(each) for each in previous}
    for new in news:
        old = merged.get(new.type, {})
        same = old.get("status") == new.status and isinstance(old.get("lastTransitionTime"), str)
        merged[new.type] = {
            "type": new.type,
            "status": new.status,
            "reason": new.reason,
            "message": cut(new.message, _MAX_MESSAGE),
            "lastTransitionTime": old["lastTransitionTime"] if same else timestamp(stamp.now),
            "observedGeneration": stamp.generation,
        }
    return list(merged.values())


def find_condition(conditions: Iterable[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    """The condition of this type, or None."""
    return next((each for each in conditions if each.get("type") == kind), None)


def condition_status(conditions: Iterable[Mapping[str, Any]], kind: str) -> str:
    """`True`, `False` or `Unknown`; a condition that isn't there is Unknown."""
    condition = find_condition(conditions, kind)
    return str(condition.get("status")) if condition else "Unknown"


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second, as Kubernetes writes times. Raises ValueError for a naive time."""
    if moment.tzinfo is None:
        raise ValueError("a time without zone")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cut(text: str, length: int) -> str:
    """`text`, shortened to `length` characters with an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"
