"""Conditions: times move with the status alone, and nothing is lost that nobody speaks of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.api.conditions import (
    Condition,
    Stamp,
    condition_status,
    find_condition,
    merge_conditions,
    timestamp,
)
from wattkeeper.api.v1alpha1.common import Condition as ConditionModel

T0 = datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC)
LATER = T0 + timedelta(minutes=1)
READY = Condition("Ready", "True", "AllReplicasReady", "1 of 1")


def test_a_new_condition_gets_its_time_and_generation() -> None:
    assert merge_conditions([], [READY], Stamp(3, T0)) == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "AllReplicasReady",
            "message": "1 of 1",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 3,
        }
    ]


def test_the_time_stays_while_the_status_does() -> None:
    first = merge_conditions([], [READY], Stamp(1, T0))
    reworded = Condition("Ready", "True", "Other", "2 of 2")
    (after,) = merge_conditions(first, [reworded], Stamp(2, LATER))
    assert after["lastTransitionTime"] == timestamp(T0)
    assert (after["reason"], after["message"], after["observedGeneration"]) == ("Other", "2 of 2", 2)


def test_the_time_moves_with_the_status() -> None:
    first = merge_conditions([], [READY], Stamp(1, T0))
    (after,) = merge_conditions(first, [Condition("Ready", "False", "Loading", "")], Stamp(1, LATER))
    assert after["lastTransitionTime"] == timestamp(LATER)


def test_what_nobody_speaks_of_stays_where_it_is() -> None:
    first = merge_conditions(
        [], [Condition("A", "True", "X", ""), Condition("B", "True", "X", "")], Stamp(1, T0)
    )
    after = merge_conditions(
        first, [Condition("C", "True", "X", ""), Condition("A", "False", "Y", "")], Stamp(2, LATER)
    )
    assert [each["type"] for each in after] == ["A", "B", "C"]
    assert after[1] == first[1]
    assert first[0]["status"] == "True"  # the previous list is left alone


def test_a_condition_is_found_or_unknown() -> None:
    conditions = merge_conditions([], [READY], Stamp(1, T0))
    assert find_condition(conditions, "Ready") == conditions[0]
    assert find_condition(conditions, "Placed") is None
    assert condition_status(conditions, "Ready") == "True"
    assert condition_status(conditions, "Placed") == "Unknown"


def test_times_are_written_in_utc() -> None:
    assert (
        timestamp(datetime(2026, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))) == "2025-12-31T23:30:00Z"
    )
    with pytest.raises(ValueError, match="without zone"):
        timestamp(datetime(2026, 1, 1))


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ABC"), st.sampled_from(["True", "False", "Unknown"]), st.text(max_size=5000)
        ),
        max_size=12,
    )
)
def test_any_history_is_what_the_schema_takes(history: list[tuple[str, str, str]]) -> None:
    conditions: list[dict[str, object]] = []
    changed: dict[str, tuple[str, str]] = {}
    for minute, (kind, status, message) in enumerate(history):
        now = T0 + timedelta(minutes=minute)
        news = [Condition(kind, status, "Why", message)]  # type: ignore[arg-type]
        conditions = merge_conditions(conditions, news, Stamp(minute, now))
        if changed.get(kind, ("", ""))[0] != status:
            changed[kind] = (status, timestamp(now))
    assert {c["type"]: (c["status"], c["lastTransitionTime"]) for c in conditions} == changed
    for condition in conditions:
        ConditionModel.model_validate(condition, extra="forbid")
