"""The protocol that parks a model and wakes it without losing a request, as a table.

Each state says how the world should look (`DESIRED`); the executor makes it so, again and again, for it is
idempotent. A transition is taken only on facts read since, and its state is persisted before anything is done
about it. So a crash at any point resumes from the persisted state, and where that leaves a doubt the model is
brought back awake.

    Awake → Draining → Withdrawn → Confirming → Releasing → Parked → Waking → Awake
                 └──────────┴───────────┴───────────┴→ Restoring → Awake

* Draining: the activator's EndpointSlice is in rotation beside the pods.
* Withdrawn: the pods lost the serving label; the activator forwards to them. A request now aborts.
* Confirming: quiet for the server's keep-alive time; every activator is asked to hold this epoch.
* Releasing: all hold and have nothing in flight; the last look was clean; the child is scaled to 0 under the
  resourceVersion that was read.
* Awake again, the activator's slice goes and the durable mark of a demand is cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class ParkState(StrEnum):
    """Persisted in status.parking.state."""

    AWAKE = "Awake"
    DRAINING = "Draining"
    WITHDRAWN = "Withdrawn"
    CONFIRMING = "Confirming"
    RELEASING = "Releasing"
    PARKED = "Parked"
    WAKING = "Waking"
    RESTORING = "Restoring"


class Replicas(StrEnum):
    """What the child's replicas should be."""

    SPEC = "Spec"  # the LLMDeployment's own, as of now
    ZERO = "Zero"
    ZERO_IF_UNCHANGED = "ZeroIfUnchanged"  # one conditional write; a conflict aborts
    AS_IS = "AsIs"


class ActivatorMode(StrEnum):
    """What activators do with a request; where no pod may be forwarded to, they hold it."""

    FORWARD = "Forward"  # to Ready pods that carry the serving label and aren't ending
    FORWARD_WITHDRAWN = "ForwardWithdrawn"  # to any Ready pod: the label is being taken off
    HOLD = "Hold"


@dataclass(frozen=True, slots=True)
class Desired:
    """How the world should look in a state.

    `serving_label` None leaves it as it is; it is put only on pods that aren't ending, of a child above 0: a
    pod that a release has doomed must not serve again. `fence`: write the child once before anything else, so
    that a release sent before a crash, and still on its way, meets another resourceVersion.
    """

    slice_in_rotation: bool
    serving_label: bool | None
    activator: ActivatorMode
    replicas: Replicas
    fence: bool = False


DESIRED: dict[ParkState, Desired] = {
    ParkState.AWAKE: Desired(False, True, ActivatorMode.FORWARD, Replicas.SPEC),
    ParkState.DRAINING: Desired(True, True, ActivatorMode.FORWARD_WITHDRAWN, Replicas.AS_IS),
    ParkState.WITHDRAWN: Desired(True, False, ActivatorMode.FORWARD_WITHDRAWN, Replicas.AS_IS),
    ParkState.CONFIRMING: Desired(True, False, ActivatorMode.HOLD, Replicas.AS_IS),
    ParkState.RELEASING: Desired(True, False, ActivatorMode.HOLD, Replicas.ZERO_IF_UNCHANGED),
    ParkState.PARKED: Desired(True, None, ActivatorMode.HOLD, Replicas.ZERO),
    ParkState.WAKING: Desired(True, True, ActivatorMode.FORWARD, Replicas.SPEC),
    ParkState.RESTORING: Desired(True, True, ActivatorMode.FORWARD, Replicas.SPEC, fence=True),
}
UNDERWAY = frozenset(
    {ParkState.DRAINING, ParkState.WITHDRAWN, ParkState.CONFIRMING, ParkState.RELEASING, ParkState.RESTORING}
)


@dataclass(frozen=True, slots=True)
class ParkingRecord:
    """What is persisted of one model. `epoch` grows with every attempt, so that late words don't count."""

    state: ParkState = ParkState.AWAKE
    epoch: int = 0
    entered_at: float = 0.0
    reason: str = ""  # CamelCase, of the last transition


@dataclass(frozen=True, slots=True)
class Timing:
    """How long to wait for what others do. Seconds."""

    propagation_seconds: float = 5.0  # until every kube-proxy routes by a changed EndpointSlice
    keep_alive_seconds: float = 60.0  # the server closes an idle connection within this
    step_limit_seconds: float = 300.0  # an attempt that stands still for longer is aborted
    wake_limit_seconds: float = 1800.0  # a wake that takes longer has failed; it is still tried


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read for this step, all of it since the last transition was persisted.

    `*_since`: first observed then, and has held ever since; None: it doesn't hold, or isn't known.
    """

    wants_park: bool = False  # the decision, made anew from fresh evidence
    demand: bool = False  # a request waits or has left its mark, a schedule, a person, or a changed policy
    activator_ready: bool = False
    spec_replicas: int = 1
    child_replicas: int = 1
    pods_ready: int = 1
    foreign_change: str = ""  # who wrote replicas, labels or budgets that forbid going on; empty: nobody
    slice_since: float | None = None  # the activator's slice holds all its ready addresses
    label_off_since: float | None = None  # no pod carries the serving label any more
    pods_routed_since: float | None = None  # a ready pod is in the Service's own slice
    quiet_since: float | None = None  # scraped from the pods directly: nothing running, waiting, moved
    all_hold: bool = False  # every activator: 'holding this epoch, nothing in flight'
    activator_saw_request: bool = False  # since the label was taken off
    held_requests: int = 0
    last_look_clean: bool = False  # scrapes, CR, child, HPA and budgets read again, all as before
    release_conflict: bool = False  # the conditional write was refused


@dataclass(frozen=True, slots=True)
class View:
    """What a guard looks at."""

    record: ParkingRecord
    facts: Facts
    timing: Timing
    now: float

    def settled(self, since: float | None) -> bool:
        """The fact has held since this state was entered, for long enough to have reached every node."""
        if since is None:
            return False
        return self.now - max(since, self.record.entered_at) >= self.timing.propagation_seconds

    @property
    def waited_seconds(self) -> float:
        return self.now - self.record.entered_at


@dataclass(frozen=True, slots=True)
class Transition:
    """From a state to the next when the guard holds; the first that does, in the table's order, is taken."""

    source: ParkState
    reason: str
    guard: Callable[[View], bool]
    target: ParkState


def _off(view: View) -> bool:
    return view.facts.spec_replicas == 0


def _aborts(source: ParkState) -> tuple[Transition, ...]:
    """What ends an attempt before anything was released."""
    return (
        Transition(source, "ChildGone", lambda v: v.facts.child_replicas == 0, ParkState.PARKED),
        Transition(source, "TurnedOff", _off, ParkState.RESTORING),
        Transition(source, "ReplicasConflict", lambda v: bool(v.facts.foreign_change), ParkState.RESTORING),
        Transition(source, "Demand", lambda v: v.facts.demand, ParkState.RESTORING),
        Transition(source, "NoLongerDue", lambda v: not v.facts.wants_park, ParkState.RESTORING),
        Transition(source, "NoActivator", lambda v: not v.facts.activator_ready, ParkState.RESTORING),
        Transition(
            source,
            "StepTimedOut",
            lambda v: v.waited_seconds > v.timing.step_limit_seconds,
            ParkState.RESTORING,
        ),
    )


def _sees_requests(source: ParkState) -> Transition:
    return Transition(source, "RequestSeen", lambda v: v.facts.activator_saw_request, ParkState.RESTORING)


def _may_start(view: View) -> bool:
    facts = view.facts
    clear = facts.activator_ready and not facts.demand and not facts.foreign_change
    return facts.wants_park and clear and facts.spec_replicas > 0 and facts.child_replicas > 0


def _quiet(view: View) -> bool:
    """No request for so long that no kept-alive connection to a pod is left."""
    since = view.facts.quiet_since
    if since is None or not view.settled(view.facts.label_off_since):
        return False
    # What was quiet before new connections ended elsewhere proves nothing of the connections kept.
    since = max(since, (view.facts.label_off_since or 0.0) + view.timing.propagation_seconds)
    return view.now - since >= view.timing.keep_alive_seconds


def _served_by_pods(view: View) -> bool:
    return view.facts.pods_ready > 0 and view.settled(view.facts.pods_routed_since)


TRANSITIONS: tuple[Transition, ...] = (
    Transition(ParkState.AWAKE, "IdleBeyondBreakEven", _may_start, ParkState.DRAINING),
    *_aborts(ParkState.DRAINING),
    Transition(
        ParkState.DRAINING, "SliceInRotation", lambda v: v.settled(v.facts.slice_since), ParkState.WITHDRAWN
    ),
    *_aborts(ParkState.WITHDRAWN),
    _sees_requests(ParkState.WITHDRAWN),
    Transition(ParkState.WITHDRAWN, "Quiet", _quiet, ParkState.CONFIRMING),
    *_aborts(ParkState.CONFIRMING),
    _sees_requests(ParkState.CONFIRMING),
    Transition(
        ParkState.CONFIRMING,
        "AllHold",
        lambda v: v.facts.all_hold and _quiet(v) and v.facts.last_look_clean,
        ParkState.RELEASING,
    ),
    # Its own write is the only thing done here. Whatever else is found is a doubt, and a doubt wakes.
    Transition(ParkState.RELEASING, "Released", lambda v: v.facts.child_replicas == 0, ParkState.PARKED),
    Transition(ParkState.RELEASING, "ReleaseInDoubt", lambda _: True, ParkState.RESTORING),
    Transition(ParkState.PARKED, "TurnedOff", _off, ParkState.AWAKE),
    Transition(ParkState.PARKED, "ScaledByOthers", lambda v: v.facts.child_replicas > 0, ParkState.WAKING),
    Transition(ParkState.PARKED, "Demand", lambda v: v.facts.demand, ParkState.WAKING),
    Transition(ParkState.PARKED, "RequestsHeld", lambda v: v.facts.held_requests > 0, ParkState.WAKING),
    Transition(ParkState.WAKING, "TurnedOff", _off, ParkState.AWAKE),
    Transition(
        ParkState.WAKING,
        "Ready",
        lambda v: _served_by_pods(v) and v.facts.held_requests == 0,
        ParkState.AWAKE,
    ),
    Transition(ParkState.RESTORING, "TurnedOff", _off, ParkState.AWAKE),
    Transition(ParkState.RESTORING, "PodsGone", lambda v: v.facts.child_replicas == 0, ParkState.WAKING),
    Transition(
        ParkState.RESTORING,
        "Restored",
        lambda v: _served_by_pods(v) and v.facts.held_requests == 0,
        ParkState.AWAKE,
    ),
)
_BY_STATE = {state: tuple(t for t in TRANSITIONS if t.source is state) for state in ParkState}


def step(
    record: ParkingRecord, facts: Facts, now: float, timing: Timing | None = None
) -> tuple[ParkingRecord, Desired]:
    """The record to persist, and the world to bring about once it is persisted. At most one transition."""
    view = View(record, facts, timing or Timing(), now)
    for transition in _BY_STATE[record.state]:
        if transition.guard(view):
            epoch = record.epoch + (transition.target is ParkState.DRAINING)
            record = ParkingRecord(transition.target, epoch, now, transition.reason)
            break
    return record, DESIRED[record.state]


def wake_failed(record: ParkingRecord, now: float, timing: Timing | None = None) -> bool:
    """A wake that takes too long: no further model of this pool is parked until it is cleared."""
    limit = (timing or Timing()).wake_limit_seconds
    return record.state is ParkState.WAKING and now - record.entered_at > limit
