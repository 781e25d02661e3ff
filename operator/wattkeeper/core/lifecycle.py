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
    replicas_ours: bool = True  # the operator owns spec.replicas
    foreign_writer: str = ""  # who else owns it; empty: nobody

    @property
    def rolling(self) -> bool:
        """Whether pods of an older template are still to be replaced."""
        return not self.observed or self.updated < self.replicas


class Course(StrEnum):
    """What an LLMDeployment needs next."""

    PLACE = "Place"  # choose a pool freely: nothing runs yet
    MOVE = "Move"  # look whether another pool has room; until then it waits where it is
    REVIEW = "Review"  # the spec changed while it runs: look again, the pool stays
    KEEP = "Keep"  # nothing to decide


@dataclass(frozen=True, slots=True)
class Standing:
    """How an LLMDeployment stands: its recorded placement, and what runs of it."""

    placed: bool
    spec_changed: bool  # since the recorded decision
    bound: int  # pods that are bound to a node
    stranded: bool = False  # replicas are wanted, none is bound, and the pool has no room for one


def course(standing: Standing) -> Course:
    """A running replica is never moved; one that runs nowhere may be placed anew.

    Anew: when its spec changed, or when its pool can't take it any more.
    """
    if not standing.placed:
        return Course.PLACE
    if standing.spec_changed:
        return Course.PLACE if standing.bound == 0 else Course.REVIEW
    return Course.MOVE if standing.stranded and standing.bound == 0 else Course.KEEP


def settled(decision: PlacementDecision, waited_seconds: float, limit_seconds: float) -> PlacementDecision:
    """The decision, no longer deferred once it has waited long enough: the best of what is free is taken."""
    if not decision.deferred or waited_seconds < limit_seconds:
        return decision
    waited = f" (after {waited_seconds:.0f} s of waiting for GPUs promised to others)"
    reason = "Placed" if decision.chosen is not None else "NoFeasiblePool"
    return replace(decision, deferred=False, settling=None, reason=reason, message=decision.message + waited)


def replicas_writers(managed_fields: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The field managers that own spec.replicas by the object's managed fields."""
    return frozenset(
        str(entry.get("manager") or "unknown")
        for entry in managed_fields
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        # What the API server calls a field's past before anybody applied it.
        and entry.get("manager") != "before-first-apply"
    )


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


@dataclass(frozen=True, slots=True)
class Rollout:
    """What decides whether a rollout may start a new pod before an old one ends."""

    begins: bool  # the template is about to change
    rolling: bool  # pods of an older template are still to be replaced
    has_surge: bool  # what the Deployment says now
    free_replicas: int  # that nodes of the pool take for certain, beside the promises to others
    unbound_pods: int  # pods of this model that wait for a node


def surge(rollout: Rollout) -> bool:
    """Whether the new pod may come first: only where a GPU is free for it.

    Decided when a rollout begins. Later only taken back, when the new pod waits for a GPU that has gone
    meanwhile; to take it back from a pod that has its GPU would end the old one before the new one answers.
    """
    if rollout.begins:
        return rollout.free_replicas > rollout.unbound_pods
    stuck = rollout.rolling and rollout.unbound_pods > 0 and rollout.free_replicas < 1
    return rollout.has_surge and not stuck
