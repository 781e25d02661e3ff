"""The parking protocol, in every order of the moves of client, cluster, activators, user and operator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.core.parking_world import DONE, NEW, World, moves
from wattkeeper.core import parking_states
from wattkeeper.core.parking_states import (
    DESIRED,
    TRANSITIONS,
    ActivatorMode,
    Facts,
    ParkingRecord,
    ParkState,
    Timing,
    Transition,
    step,
    wake_failed,
)

Came = dict[World, tuple[World, str] | None]


def start_with(requests: int, activators: int) -> World:
    modes = (ActivatorMode.FORWARD,) * activators
    return World(requests=(NEW,) * requests, modes=modes, epochs=(0,) * activators)


def explore(start: World, attempts: int) -> tuple[Came, dict[World, list[World]]]:
    """Every reachable world with the move that led there, and who leads where backwards."""
    came: Came = {start: None}
    before: dict[World, list[World]] = {}
    queue = deque([start])
    while queue:
        world = queue.popleft()
        try:
            following = list(moves(world, attempts))
        except AssertionError as error:
            raise AssertionError(f"{error}, after: {trail(came, world)}\n{world}") from error
        for name, after in following:
            before.setdefault(after, []).append(world)
            if after not in came:
                came[after] = (world, name)
                queue.append(after)
    return came, before


def trail(came: Came, world: World) -> str:
    names: list[str] = []
    while (link := came[world]) is not None:
        world, name = link
        names.append(name)
    return " / ".join(reversed(names))


@pytest.mark.parametrize(
    ("requests", "activators", "attempts"),
    [(1, 1, 1), (1, 1, 2), (2, 1, 1), pytest.param(2, 2, 2, marks=pytest.mark.full)],
)
def test_no_interleaving_loses_a_request_and_none_is_stuck(
    requests: int, activators: int, attempts: int
) -> None:
    came, before = explore(start_with(requests, activators), attempts)
    assert {world.state for world in came} == set(ParkState), "a state is never reached"

    # From wherever it is, a model that is on can come back awake with every request answered.
    answered = {world for world in came if world.spec and set(world.requests) == {DONE}}
    reached = {w for w in answered if w.state is ParkState.AWAKE and not w.mark and not w.slice_api}
    queue = deque(reached)
    while queue:
        for world in before.get(queue.popleft(), []):
            if world not in reached:
                reached.add(world)
                queue.append(world)
    stuck = [world for world in came if world.spec and world not in reached]
    assert not stuck, f"{len(stuck)} of {len(came)} are stuck, such as after {trail(came, stuck[0])}"


def without(reason: str, source: ParkState) -> dict[ParkState, tuple[Transition, ...]]:
    """The table with one transition's guard always open."""
    changed = [
        replace(t, guard=lambda _: True) if t.reason == reason and t.source is source else t
        for t in TRANSITIONS
    ]
    return {state: tuple(t for t in changed if t.source is state) for state in ParkState}


@pytest.mark.parametrize(
    ("reason", "source"),
    [
        ("SliceInRotation", ParkState.DRAINING),
        ("Quiet", ParkState.WITHDRAWN),
        ("AllHold", ParkState.CONFIRMING),
        ("Released", ParkState.RELEASING),
        ("Ready", ParkState.WAKING),
        ("Restored", ParkState.RESTORING),
    ],
)
def test_each_wait_is_needed(reason: str, source: ParkState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking_states, "_BY_STATE", without(reason, source))
    if reason == "Quiet":  # the same wait is checked again before the release
        confirming = without("AllHold", ParkState.CONFIRMING)[ParkState.CONFIRMING]
        monkeypatch.setitem(parking_states._BY_STATE, ParkState.CONFIRMING, confirming)
    with pytest.raises(AssertionError, match=r"a request|a pod is ended"):
        explore(start_with(1, 1), attempts=1)


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (ParkState.RESTORING, {"fence": False}),
        (ParkState.PARKED, {"slice_in_rotation": False}),
        (ParkState.WAKING, {"activator": ActivatorMode.FORWARD_WITHDRAWN}),
        (ParkState.WITHDRAWN, {"slice_in_rotation": False}),
        (ParkState.CONFIRMING, {"activator": ActivatorMode.FORWARD_WITHDRAWN}),
    ],
)
def test_each_part_of_the_desired_world_is_needed(
    state: ParkState, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DESIRED, state, replace(DESIRED[state], **change))
    try:
        came, _ = explore(start_with(1, 1), attempts=1)
    except AssertionError:
        return  # a request is lost
    assert ParkState.PARKED not in {world.state for world in came}, "nothing changed without it"


READY_TO_PARK = Facts(wants_park=True, activator_ready=True)
TIMING = Timing(propagation_seconds=5, keep_alive_seconds=60, step_limit_seconds=300, wake_limit_seconds=900)


def at(state: ParkState, entered_at: float = 100.0, epoch: int = 3) -> ParkingRecord:
    return ParkingRecord(state, epoch, entered_at, "test")


@pytest.mark.parametrize(
    ("record", "facts", "now", "expected"),
    [
        (at(ParkState.AWAKE), READY_TO_PARK, 101, (ParkState.DRAINING, "IdleBeyondBreakEven", 4)),
        (at(ParkState.AWAKE), replace(READY_TO_PARK, demand=True), 101, (ParkState.AWAKE, "test", 3)),
        (
            at(ParkState.AWAKE),
            replace(READY_TO_PARK, activator_ready=False),
            101,
            (ParkState.AWAKE, "test", 3),
        ),
        (at(ParkState.AWAKE), replace(READY_TO_PARK, spec_replicas=0), 101, (ParkState.AWAKE, "test", 3)),
        (
            at(ParkState.AWAKE),
            replace(READY_TO_PARK, foreign_change="hpa"),
            101,
            (ParkState.AWAKE, "test", 3),
        ),
        # A slice that was there before this attempt still has to last the propagation time in it.
        (
            at(ParkState.DRAINING),
            replace(READY_TO_PARK, slice_since=0.0),
            104,
            (ParkState.DRAINING, "test", 3),
        ),
        (
            at(ParkState.DRAINING),
            replace(READY_TO_PARK, slice_since=101.0),
            106,
            (ParkState.WITHDRAWN, "SliceInRotation", 3),
        ),
        (at(ParkState.DRAINING), READY_TO_PARK, 401, (ParkState.RESTORING, "StepTimedOut", 3)),
        (
            at(ParkState.DRAINING),
            replace(READY_TO_PARK, wants_park=False),
            101,
            (ParkState.RESTORING, "NoLongerDue", 3),
        ),
        # Quiet counts from when new connections stopped coming, not from before.
        (
            at(ParkState.WITHDRAWN),
            replace(READY_TO_PARK, label_off_since=102.0, quiet_since=0.0),
            166,
            (ParkState.WITHDRAWN, "test", 3),
        ),
        (
            at(ParkState.WITHDRAWN),
            replace(READY_TO_PARK, label_off_since=102.0, quiet_since=0.0),
            167,
            (ParkState.CONFIRMING, "Quiet", 3),
        ),
        (
            at(ParkState.CONFIRMING),
            replace(READY_TO_PARK, label_off_since=0.0, quiet_since=0.0, all_hold=True),
            200,
            (ParkState.CONFIRMING, "test", 3),
        ),
        (
            at(ParkState.CONFIRMING),
            replace(READY_TO_PARK, label_off_since=0.0, quiet_since=0.0, all_hold=True, last_look_clean=True),
            200,
            (ParkState.RELEASING, "AllHold", 3),
        ),
        (at(ParkState.RELEASING), READY_TO_PARK, 101, (ParkState.RESTORING, "ReleaseInDoubt", 3)),
        (
            at(ParkState.RELEASING),
            replace(READY_TO_PARK, child_replicas=0),
            101,
            (ParkState.PARKED, "Released", 3),
        ),
        (at(ParkState.PARKED), Facts(child_replicas=0), 999, (ParkState.PARKED, "test", 3)),
        (at(ParkState.PARKED), Facts(child_replicas=1), 999, (ParkState.WAKING, "ScaledByOthers", 3)),
        (at(ParkState.PARKED), Facts(child_replicas=0, demand=True), 999, (ParkState.WAKING, "Demand", 3)),
        (
            at(ParkState.PARKED),
            Facts(child_replicas=0, spec_replicas=0),
            999,
            (ParkState.AWAKE, "TurnedOff", 3),
        ),
        (at(ParkState.WAKING), Facts(pods_routed_since=100.0), 104, (ParkState.WAKING, "test", 3)),
        (at(ParkState.WAKING), Facts(pods_routed_since=100.0), 105, (ParkState.AWAKE, "Ready", 3)),
        (
            at(ParkState.WAKING),
            Facts(pods_routed_since=100.0, held_requests=1),
            105,
            (ParkState.WAKING, "test", 3),
        ),
        (at(ParkState.RESTORING), Facts(child_replicas=0), 101, (ParkState.WAKING, "PodsGone", 3)),
    ],
)
def test_transition(
    record: ParkingRecord, facts: Facts, now: float, expected: tuple[ParkState, str, int]
) -> None:
    after, desired = step(record, facts, now, TIMING)
    assert (after.state, after.reason, after.epoch) == expected
    assert desired == DESIRED[after.state]
    assert after.entered_at == (now if after.state is not record.state else record.entered_at)


def test_every_state_but_parked_can_be_left_and_every_reason_is_camel_case() -> None:
    assert {t.source for t in TRANSITIONS} == set(ParkState)
    assert all(t.reason.isalpha() and t.reason[0].isupper() for t in TRANSITIONS)


def test_a_wake_that_takes_too_long_has_failed_and_nothing_else_has() -> None:
    late: Callable[[ParkState], bool] = lambda state: wake_failed(at(state), 1001, TIMING)  # noqa: E731
    assert [state for state in ParkState if late(state)] == [ParkState.WAKING]
    assert not wake_failed(at(ParkState.WAKING), 1000, TIMING)
