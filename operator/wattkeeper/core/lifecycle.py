"""What to do with an LLMDeployment that exists: pure decisions between placement and the child's pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from wattkeeper.core.decision import PlacementDecision


@dataclass(frozen=True, slots=True)
class ChildFacts:
    """The child Deployment at one moment. Counts are of pods, without ended and terminating ones."""

    generation: int
    wanted: int  # spec.replicas
    replicas: int
    ready: int
    updated: int  # of the newest template
    paused: bool = False
    observed: bool = True  # the Deployment controller has seen this generation
    failure: str = ""
    foreign_writer: str = ""  # who else owns spec.replicas

    @property
    def rolling(self) -> bool:
        """Whether pods of an older template are still to be replaced."""
        return not self.observed or self.updated < self.replicas


class Course(StrEnum):
    """What an LLMDeployment needs next."""

    PLACE = "Place"  # choose a pool freely: nothing runs yet
    REVIEW = "Review"  # the spec changed while it runs: look again, the pool stays
    KEEP = "Keep"  # nothing to decide


@dataclass(frozen=True, slots=True)
class Standing:
    """How an LLMDeployment stands: its recorded placement, and what runs of it."""

    placed: bool
    spec_changed: bool  # since the recorded decision
    wanted: int  # spec.replicas
    bound: int  # pods that are bound to a node
    stranded: bool = False  # replicas are wanted, none is bound, and the pool has no room for one


def course(standing: Standing) -> Course:
    """A running replica is never moved; one that runs nowhere may be placed anew.

    Anew: when its spec changed, or when its pool can't take it any more.
    """
    if not standing.placed:
        return Course.PLACE
    if standing.bound == 0 and (standing.spec_changed or standing.stranded):
        return Course.PLACE
    return Course.REVIEW if standing.spec_changed else Course.KEEP


def settled(decision: PlacementDecision, waited_seconds: float, limit_seconds: float) -> PlacementDecision:
    """The decision, no longer deferred once it has waited long enough: the best of what is free is taken."""
    if not decision.deferred or waited_seconds < limit_seconds:
        return decision
    waited = f" (after {waited_seconds:.0f} s of waiting for GPUs promised to others)"
    reason = "Placed" if decision.chosen is not None else "NoFeasiblePool"
    return replace(decision, deferred=False, settling=None, reason=reason, message=decision.message + waited)


def foreign_replicas_writer(managed_fields: Iterable[Mapping[str, Any]], own_manager: str) -> str:
    """Who besides the operator owns spec.replicas by the object's managed fields; empty: nobody."""
    for entry in managed_fields:
        spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if "f:replicas" in spec and entry.get("manager") != own_manager:
            return str(entry.get("manager") or "unknown")
    return ""


@dataclass(frozen=True, slots=True)
class ReplicasConflict:
    """Somebody else writes the child's replicas: who, and when it was last seen (seconds of any clock)."""

    writer: str
    seen_at_seconds: float


def replicas_conflict(
    facts: ChildFacts, known: ReplicasConflict | None, now_seconds: float, hold_seconds: float
) -> ReplicasConflict | None:
    """The conflict that is to be shown now, None when there is none (any more).

    Our own write takes the field back, so the other writer isn't seen until it writes again: the conflict is
    held for a while.
    """
    if facts.foreign_writer:
        return ReplicasConflict(facts.foreign_writer, now_seconds)
    if known is not None and now_seconds - known.seen_at_seconds < hold_seconds:
        return known
    return None


def trouble_of(facts: ChildFacts, pod_troubles: Iterable[str]) -> str | None:
    """Why not all pods run, where somebody has to help; None while nobody needs to."""
    if facts.ready >= facts.wanted:
        return None
    if facts.failure and facts.replicas < facts.wanted:
        return facts.failure
    return next((trouble for trouble in sorted(pod_troubles) if trouble), None)


def surge(*, rolling: bool, template_changes: bool, has_surge: bool, spare_gpus: int, gpus: int) -> bool:
    """Whether a rollout may start the new pod before the old one ends: only where GPUs are free for it.

    Between rollouts the setting stays as it is: it matters then to nobody.
    """
    if not rolling and not template_changes:
        return has_surge
    return spare_gpus >= gpus
