"""What an existing LLMDeployment needs next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.decision import Candidate, PlacementDecision
from wattkeeper.core.lifecycle import (
    ChildFacts,
    Course,
    ReplicasConflict,
    Rollout,
    Standing,
    course,
    replicas_conflict,
    replicas_writers,
    settled,
    surge,
    trouble_of,
)


def facts(**values: object) -> ChildFacts:
    basis: dict[str, object] = {"generation": 3, "wanted": 1, "replicas": 1, "ready": 1, "updated": 1}
    return ChildFacts(**(basis | values))  # type: ignore[arg-type]


# ---- course ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placed", "changed", "bound", "stranded", "expected"),
    [
        (False, True, 0, False, Course.PLACE),
        (False, False, 0, False, Course.PLACE),
        (True, False, 0, False, Course.KEEP),
        (True, False, 2, False, Course.KEEP),
        (True, True, 0, False, Course.PLACE),
        (True, True, 1, False, Course.REVIEW),
        (True, False, 0, True, Course.MOVE),
        (True, True, 0, True, Course.PLACE),
        (True, False, 1, True, Course.KEEP),
        (True, True, 1, True, Course.REVIEW),
    ],
)
def test_course(placed: bool, changed: bool, bound: int, stranded: bool, expected: Course) -> None:
    assert course(Standing(placed, changed, bound, stranded)) is expected


@given(st.booleans(), st.integers(1, 5), st.booleans())
def test_a_running_replica_is_never_placed_anew(changed: bool, bound: int, stranded: bool) -> None:
    assert course(Standing(True, changed, bound, stranded)) in (Course.REVIEW, Course.KEEP)


# ---- settling -------------------------------------------------------------------------------------


def deferred(chosen: Candidate | None) -> PlacementDecision:
    better = Candidate("better", "NVIDIA-L4", "L4", 1, 1)
    return PlacementDecision(chosen, (), "CapacitySettling", "waiting", deferred=True, settling=better)


def test_a_deferred_decision_waits_and_then_takes_what_is_free() -> None:
    free = Candidate("free", "NVIDIA-A30", "A30", 1, 1)
    assert settled(deferred(free), 29.9, 30).deferred
    taken = settled(deferred(free), 30, 30)
    assert (taken.deferred, taken.reason, taken.chosen) == (False, "Placed", free)
    nothing = settled(deferred(None), 30, 30)
    assert (nothing.deferred, nothing.reason) == (False, "NoFeasiblePool")


def test_another_decision_is_left_alone() -> None:
    decision = PlacementDecision(None, (), "NoPools", "none")
    assert settled(decision, 1e9, 30) is decision


# ---- replicas -------------------------------------------------------------------------------------


def entry(manager: str, *fields: str) -> dict[str, object]:
    return {"manager": manager, "fieldsV1": {"f:spec": {f"f:{field}": {} for field in fields}}}


def test_writers_are_those_who_own_the_field() -> None:
    managed = [entry("wattkeeper-operator", "template"), entry("kubectl", "replicas"), {"manager": "status"}]
    assert replicas_writers(managed) == {"kubectl"}
    assert replicas_writers([entry("before-first-apply", "replicas")]) == frozenset()
    assert replicas_writers([]) == frozenset()


def test_a_conflict_is_held_for_a_while_after_it_was_last_seen() -> None:
    seen = replicas_conflict(facts(foreign_writer="kubectl"), None, 100.0, 60.0)
    assert seen == ReplicasConflict("kubectl", 100.0)
    assert replicas_conflict(facts(), seen, 159.0, 60.0) == seen
    assert replicas_conflict(facts(), seen, 160.0, 60.0) is None
    again = replicas_conflict(facts(foreign_writer="argocd"), seen, 150.0, 60.0)
    assert again == ReplicasConflict("argocd", 150.0)


# ---- trouble --------------------------------------------------------------------------------------


def test_trouble_is_told_only_while_replicas_are_missing() -> None:
    assert trouble_of(facts(), ["container server: CrashLoopBackOff"]) is None
    missing = facts(ready=0)
    assert trouble_of(missing, []) is None
    assert trouble_of(missing, ["", "b", "a"]) == "a"
    quota = facts(wanted=2, replicas=0, ready=0, failure="FailedCreate: exceeded quota")
    assert trouble_of(quota, ["a"]) == "FailedCreate: exceeded quota"


# ---- rollouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begins", "rolling", "has", "free", "unbound", "expected"),
    [
        (True, False, False, 1, 0, True),
        (True, False, True, 0, 0, False),
        (True, False, False, 1, 1, False),  # the free GPU is a waiting pod's
        (False, True, True, 0, 0, True),  # the new pod has its GPU: the old one must not go first now
        (False, True, True, 0, 1, False),  # it waits for a GPU that has gone meanwhile
        (False, True, False, 8, 0, False),
        (False, False, True, 0, 0, True),
    ],
)
def test_surge(begins: bool, rolling: bool, has: bool, free: int, unbound: int, expected: bool) -> None:
    assert surge(Rollout(begins, rolling, has, free, unbound)) is expected


@given(st.booleans(), st.integers(0, 8), st.integers(0, 8))
def test_a_rollout_never_begins_with_a_pod_that_finds_no_gpu(has: bool, free: int, unbound: int) -> None:
    if surge(Rollout(True, False, has, free, unbound)):
        assert free - unbound >= 1


def test_rolling_means_old_pods_or_an_unseen_generation() -> None:
    assert facts(updated=0).rolling
    assert facts(observed=False).rolling
    assert not facts().rolling
