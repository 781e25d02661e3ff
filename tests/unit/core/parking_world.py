"""A small world around the parking protocol: client, kube-proxy, pod, activators, operator and a user.

Every move of any of them is one atomic step, in any order; time is abstracted to what the protocol assumes
(a change of an EndpointSlice has reached every node after the propagation time; a server closes a kept-alive
connection that was idle for its keep-alive time).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from wattkeeper.core.parking_states import (
    DESIRED,
    ActivatorMode,
    Desired,
    Facts,
    ParkingRecord,
    ParkState,
    Replicas,
    Timing,
    step,
)

TIMING = Timing(propagation_seconds=1, keep_alive_seconds=1, step_limit_seconds=1e9)
NEW, POD, DONE = "new", "pod", "done"  # else "act0", "via0": waiting at, or forwarded by, an activator


class RequestLostError(AssertionError):
    """A request got no answer, or met nobody."""


class World(NamedTuple):
    state: ParkState = ParkState.AWAKE
    attempt: int = 0  # epoch, bounded by the exploration
    slice_api: bool = False
    label: bool = True
    replicas: int = 1
    pod: str = "ready"  # none, starting, ready
    route_pod: bool = True
    route_act: bool = False
    kept_alive: bool = False
    requests: tuple[str, ...] = (NEW,)
    modes: tuple[ActivatorMode, ...] = (ActivatorMode.FORWARD,)  # what each activator believes
    epochs: tuple[int, ...] = (0,)  # of which attempt
    saw: bool = False
    mark: bool = False
    spec: int = 1
    wants_park: bool = True
    foreign: bool = False
    put: str = ""  # "", "pending": to be sent by this operator, "late": on its way after a crash
    fenced: bool = False


def facts(w: World) -> Facts:
    """What the operator reads, with time abstracted: a fact that has reached everybody holds since 0."""
    in_sync = w.route_pod == (w.label and w.pod == "ready") and w.route_act == w.slice_api
    at_pod = any(r == POD or r.startswith("via") for r in w.requests)
    hold = all(
        mode is ActivatorMode.HOLD and epoch == w.attempt and f"via{i}" not in w.requests
        for i, (mode, epoch) in enumerate(zip(w.modes, w.epochs, strict=True))
    )
    return Facts(
        wants_park=w.wants_park,
        demand=w.mark,
        activator_ready=True,
        spec_replicas=w.spec,
        child_replicas=w.replicas,
        pods_ready=int(w.pod == "ready"),
        foreign_change="somebody" if w.foreign else "",
        slice_since=0.0 if w.slice_api and in_sync else None,
        label_off_since=0.0 if not w.label and in_sync else None,
        pods_routed_since=0.0 if w.label and w.pod == "ready" and in_sync else None,
        quiet_since=0.0 if not at_pod and not w.kept_alive else None,
        all_hold=hold,
        activator_saw_request=w.saw,
        held_requests=sum(r.startswith("act") for r in w.requests),
        last_look_clean=not w.foreign and not at_pod and w.replicas > 0,
    )


def moves(w: World, attempts: int) -> Iterator[tuple[str, World]]:
    """Every move that anybody can make now, by name."""
    yield from _client(w)
    yield from _cluster(w)
    yield from _activators(w)
    yield from _user(w)
    yield from _operator(w, attempts)


def _put(requests: tuple[str, ...], i: int, where: str) -> tuple[str, ...]:
    return (*requests[:i], where, *requests[i + 1 :])


def _client(w: World) -> Iterator[tuple[str, World]]:
    for i, request in enumerate(w.requests):
        if request != NEW:
            continue
        if w.kept_alive:  # whatever the Service says
            yield f"client {i}: kept-alive", w._replace(requests=_put(w.requests, i, POD))
        if w.spec == 0:  # off: to be refused
            yield f"client {i}: refused", w._replace(requests=_put(w.requests, i, DONE))
            continue
        if not w.route_pod and not w.route_act:
            raise RequestLostError("a request finds no endpoint")
        if w.route_pod:
            if w.pod != "ready":
                raise RequestLostError("a request is routed to a pod that isn't there")
            yield (
                f"client {i}: to the pod",
                w._replace(requests=_put(w.requests, i, POD), kept_alive=True),
            )
        if w.route_act:
            for a in range(len(w.modes)):
                saw = w.saw or not w.label
                yield (
                    f"client {i}: to activator {a}",
                    w._replace(requests=_put(w.requests, i, f"act{a}"), saw=saw),
                )


def _cluster(w: World) -> Iterator[tuple[str, World]]:
    for i, request in enumerate(w.requests):
        if request == POD or request.startswith("via"):
            yield f"pod answers {i}", w._replace(requests=_put(w.requests, i, DONE))
    if w.kept_alive and POD not in w.requests:
        yield "server closes a connection", w._replace(kept_alive=False)
    routes = (w.label and w.pod == "ready", w.slice_api)
    if (w.route_pod, w.route_act) != routes:
        yield "kube-proxy", w._replace(route_pod=routes[0], route_act=routes[1])
    if w.replicas > 0 and w.pod == "none":
        yield "pod starts", w._replace(pod="starting", label=True)
    if w.replicas > 0 and w.pod == "starting":
        yield "pod Ready", w._replace(pod="ready")
    if w.replicas == 0 and w.pod != "none":
        if w.spec > 0 and any(r == POD or r.startswith("via") for r in w.requests):
            raise RequestLostError("a pod is ended with a request in flight")
        # Turned off by its owner, a pod finishes what it has (its grace period is the pod's own affair).
        left = tuple(DONE if r == POD or r.startswith("via") else r for r in w.requests)
        yield "pod ends", w._replace(pod="none", kept_alive=False, requests=left)


def _activators(w: World) -> Iterator[tuple[str, World]]:
    for a, mode in enumerate(w.modes):
        told = (DESIRED[w.state].activator, w.attempt)
        if (mode, w.epochs[a]) != told:
            yield (
                f"activator {a} hears",
                w._replace(
                    modes=(*w.modes[:a], told[0], *w.modes[a + 1 :]),
                    epochs=(*w.epochs[:a], told[1], *w.epochs[a + 1 :]),
                ),
            )
        for i, request in enumerate(w.requests):
            if request != f"act{a}":
                continue
            if w.spec == 0:
                yield f"activator {a} refuses {i}", w._replace(requests=_put(w.requests, i, DONE))
            elif w.pod == "ready" and (
                mode is ActivatorMode.FORWARD_WITHDRAWN or (mode is ActivatorMode.FORWARD and w.label)
            ):
                yield f"activator {a} forwards {i}", w._replace(requests=_put(w.requests, i, f"via{a}"))
            elif not w.mark:
                yield f"activator {a} demands", w._replace(mark=True)


def _user(w: World) -> Iterator[tuple[str, World]]:
    yield "decision changes", w._replace(wants_park=not w.wants_park)
    if not w.foreign and w.state in {ParkState.DRAINING, ParkState.WITHDRAWN, ParkState.CONFIRMING}:
        yield "user edits", w._replace(foreign=True, put="" if w.put == "late" else w.put)
    if w.replicas == 0 and w.spec > 0:
        yield "user raises the child", w._replace(replicas=1)
    if w.spec > 0:  # turning it on again is a new start, not a wake
        yield "user turns it off", w._replace(spec=0)


def _operator(w: World, attempts: int) -> Iterator[tuple[str, World]]:
    if w.put == "pending":
        # The conditional write: an edit since the last look makes it fail. A crash may leave it under way.
        yield "release", w._replace(put="", replicas=w.replicas if w.foreign else 0)
        yield "crash", w._replace(put="late")
        yield "crash before release", w._replace(put="")
        return
    if w.put == "late" and not w.fenced:
        yield "late release arrives", w._replace(put="", replicas=0)
    record, _ = step(ParkingRecord(w.state, w.attempt, 0.0), facts(w), 1000.0, TIMING)
    if record.state is not w.state and record.epoch <= attempts:
        changed = w._replace(
            state=record.state,
            attempt=record.epoch,
            put="pending" if record.state is ParkState.RELEASING else w.put,
            fenced=False if record.state is ParkState.RELEASING else w.fenced,
            saw=False if record.state is ParkState.DRAINING else w.saw,
            mark=w.mark and record.state is not ParkState.AWAKE,
            foreign=w.foreign and record.state is not ParkState.AWAKE,
        )
        yield f"operator: {record.reason}", changed
    yield from _bring_about(w, DESIRED[w.state])


def _bring_about(w: World, desired: Desired) -> Iterator[tuple[str, World]]:
    """Each difference is one write; a crash may come between any two."""
    if desired.fence and not w.fenced:
        yield "operator fences", w._replace(fenced=True, put="")
        return
    if w.state is ParkState.AWAKE and w.mark:
        yield "operator clears the demand", w._replace(mark=False)
    if w.slice_api != desired.slice_in_rotation:
        yield "operator: slice", w._replace(slice_api=desired.slice_in_rotation)
    if desired.serving_label is False and w.label and w.pod != "none":
        yield "operator: label off", w._replace(label=False)
    if desired.serving_label is True and not w.label and w.pod != "none" and w.replicas > 0:
        yield "operator: label on", w._replace(label=True)
    wanted = {Replicas.SPEC: w.spec, Replicas.ZERO: 0}.get(desired.replicas, w.replicas)
    if w.replicas != wanted:
        if wanted == 0 and w.spec > 0:
            return  # Parked and raised by somebody: a wake, not a fight
        yield "operator: scale", w._replace(replicas=wanted)
