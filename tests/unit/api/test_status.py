"""The status of an LLMDeployment: from decisions, looks at pods and refusals."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.api.cases import LLAMA
from wattkeeper.api.conditions import Condition, Stamp, condition_status, find_condition
from wattkeeper.api.convert import deployment_from
from wattkeeper.api.errors import FieldError, SpecErrors
from wattkeeper.api.status import (
    RecordedPlacement,
    Serving,
    conditioned_status,
    invalid_status,
    phase_of,
    placement_status,
    reaffirmed_status,
    recorded_placement,
    refused_status,
    same_status,
    serving_status,
)
from wattkeeper.api.v1alpha1 import LLMDeploymentStatus
from wattkeeper.core.decision import Candidate, PlacementDecision, Rejection
from wattkeeper.core.forecast import Forecast

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STAMP = Stamp(1, NOW)
LATER = Stamp(1, NOW + timedelta(minutes=5))
PARSED = deployment_from(LLAMA)
SPEC, DEMAND = PARSED.spec, PARSED.demand  # its SLA is 50 ms


def candidate(pool: str = "a30", itl: float = 0.0206, upper: float = 0.0244, **changes: Any) -> Candidate:
    forecast = Forecast(139.4, 152.2, itl, upper)
    return replace(Candidate(pool, "NVIDIA-A30", "A30", 1, 4, forecast=forecast), **changes)


SLOW = candidate("l4", 0.062, 0.0661, gpu_name="L4", rejection=Rejection("SLAMissed", "too slow"))
FULL = candidate("h100", gpu_name=None, rejection=Rejection("InsufficientFreeGpus", "full"))
PLACED = PlacementDecision(candidate(), (candidate(), SLOW), "Placed", "draws the least", pools_considered=2)
NOWHERE = PlacementDecision(None, (SLOW,), "NoFeasiblePool", "none can be used", pools_considered=1)


def checked(status: dict[str, Any]) -> dict[str, Any]:
    """The status, after the schema's own check."""
    LLMDeploymentStatus.model_validate(status, extra="forbid")
    return status


def condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    found = find_condition(status["conditions"], kind)
    assert found is not None
    return found["status"], found["reason"]


def placed(decision: PlacementDecision = PLACED, previous: dict[str, Any] | None = None) -> dict[str, Any]:
    return checked(placement_status(decision, DEMAND, SPEC, STAMP, previous))


def test_a_placement_with_its_figures_and_table() -> None:
    status = placed()
    assert status["phase"] == "Placed"
    assert (status["pool"], status["gpu"], status["gpusPerReplica"]) == ("a30", "A30", 1)
    assert status["observedGeneration"] == 1
    assert status["prediction"] == {
        "powerWatts": 139,
        "powerUpperWatts": 153,
        "interTokenLatency": "20.6ms",
        "interTokenLatencyUpper": "24.4ms",
        "statistic": "Mean",
        "confidencePercent": 90,
    }
    assert status["candidates"] == [
        {
            "pool": "a30",
            "gpu": "A30",
            "gpusPerReplica": 1,
            "freeGPUs": 4,
            "feasible": True,
            "powerWatts": 139,
            "powerUpperWatts": 153,
            "interTokenLatency": "20.6ms",
            "interTokenLatencyUpper": "24.4ms",
        },
        {
            "pool": "l4",
            "gpu": "L4",
            "gpusPerReplica": 1,
            "freeGPUs": 4,
            "feasible": False,
            "powerWatts": 139,
            "powerUpperWatts": 153,
            "interTokenLatency": "62ms",
            "interTokenLatencyUpper": "66.1ms",
            "reason": "SLAMissed",
            "message": "too slow",
        },
    ]
    assert status["poolsConsidered"] == 2
    assert condition(status, "Accepted") == ("True", "Valid")
    assert condition(status, "Placed") == ("True", "Placed")
    assert condition(status, "SLAFeasible") == ("True", "Predicted")
    assert condition(status, "Ready") == ("False", "NoReplicas")
    message = find_condition(status["conditions"], "SLAFeasible") or {}
    assert message["message"] == (
        "a30 (A30) is predicted to need at most 24.4ms a token at 90 % confidence; "
        "spec.sla.interTokenLatency is 50ms"
    )


def test_what_is_not_done_yet_is_answered() -> None:
    status = placed()
    assert condition(status, "TelemetryHealthy") == ("Unknown", "NotImplemented")
    assert condition(status, "ParkingBlocked") == ("True", "NotImplemented")


def test_a_model_that_is_never_parked_is_not_blocked() -> None:
    spec = SPEC.model_copy(update={"parking": SPEC.parking.model_copy(update={"policy": "Never"})})
    status = checked(placement_status(PLACED, DEMAND, spec, STAMP))
    assert condition(status, "ParkingBlocked") == ("False", "PolicyNever")


def test_no_feasible_pool() -> None:
    status = placed(NOWHERE)
    assert status["phase"] == "Unschedulable"
    assert not {"pool", "gpu", "gpusPerReplica", "prediction"} & status.keys()
    assert [row["pool"] for row in status["candidates"]] == ["l4"]
    assert condition(status, "Placed") == ("False", "NoFeasiblePool")
    assert condition(status, "SLAFeasible") == ("False", "SLAMissed")


def test_a_full_pool_could_still_meet_the_sla() -> None:
    status = placed(replace(NOWHERE, table=(SLOW, FULL)))
    assert status["phase"] == "Unschedulable"
    assert condition(status, "SLAFeasible") == ("True", "Predicted")
    assert status["candidates"][1]["gpu"] == "NVIDIA-A30"  # no name in the catalogue: the nodes' label


def test_without_any_prediction_nobody_knows() -> None:
    unknown = candidate(forecast=None, rejection=Rejection("UnknownModel", "spec.model.id: unknown"))
    status = placed(PlacementDecision(None, (unknown,), "UnknownModel", "spec.model.id: unknown"))
    assert condition(status, "SLAFeasible") == ("Unknown", "UnknownModel")
    assert status["candidates"][0].keys() == {
        "pool",
        "gpu",
        "gpusPerReplica",
        "freeGPUs",
        "feasible",
        "reason",
        "message",
    }


def test_a_time_to_first_token_is_part_of_the_sla() -> None:
    demand = replace(DEMAND, sla=replace(DEMAND.sla, ttft_seconds=1.0))
    for upper, expected in ((0.9, "True"), (1.1, "False"), (None, "False")):
        forecast = Forecast(100, 110, 0.01, 0.012, ttft_seconds=0.5, ttft_upper_seconds=upper)
        decision = replace(PLACED, chosen=candidate(forecast=forecast))
        status = checked(placement_status(decision, demand, SPEC, STAMP))
        assert condition(status, "SLAFeasible")[0] == expected
        assert status["prediction"]["timeToFirstToken"] == "500ms"
        assert ("timeToFirstTokenUpper" in status["prediction"]) == (upper is not None)


def test_a_better_pool_that_will_be_free_soon_is_waited_for() -> None:
    status = placed(replace(PLACED, reason="CapacitySettling", message="waiting", deferred=True))
    assert status["phase"] == "Pending"
    assert "pool" not in status
    assert recorded_placement({"status": status}) is None


def test_the_whole_way_to_ready_and_off() -> None:
    status = placed()
    phases = [status["phase"]]
    for serving in (
        Serving("app=x", 1, 0),
        Serving("app=x", 1, 1),
        Serving("app=x", 1, 0, failure="image not found"),
        Serving("app=x", 1, 1),
    ):
        status = checked(serving_status(serving, SPEC, STAMP, status))
        phases.append(status["phase"])
    assert phases == ["Placed", "Loading", "Ready", "Failed", "Ready"]
    assert (status["replicas"], status["readyReplicas"], status["selector"]) == (1, 1, "app=x")
    assert condition(status, "Ready") == ("True", "AllReplicasReady")
    off = checked(serving_status(Serving("app=x"), SPEC.model_copy(update={"replicas": 0}), STAMP, status))
    assert off["phase"] == "Off"
    assert off["replicas"] == 0
    assert condition(off, "Ready") == ("False", "Off")
    assert status["pool"] == off["pool"]  # its GPUs stay promised to it until it is placed anew


def test_some_replicas_answer() -> None:
    spec = SPEC.model_copy(update={"replicas": 3})
    status = checked(serving_status(Serving("app=x", 3, 2), spec, STAMP, placed()))
    assert status["phase"] == "PartlyReady"
    assert condition(status, "Ready") == ("False", "PartlyReady")


def test_a_look_at_the_pods_does_not_claim_a_newer_spec() -> None:
    status = serving_status(Serving("app=x", 1, 1), SPEC, Stamp(7, NOW), placed())
    assert status["observedGeneration"] == 1
    assert serving_status(Serving("app=x"), SPEC, Stamp(7, NOW), {})["observedGeneration"] == 7


def test_an_invalid_spec_says_all_its_errors() -> None:
    errors = SpecErrors([FieldError("spec.a", "must be b"), FieldError("spec.c", "is required")])
    status = checked(invalid_status(errors, STAMP))
    assert status["phase"] == "Invalid"
    accepted = find_condition(status["conditions"], "Accepted") or {}
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"] == "spec.a: must be b; spec.c: is required"
    assert condition(status, "Placed") == ("False", "InvalidSpec")


def test_an_invalid_spec_leaves_no_old_table_behind() -> None:
    status = checked(refused_status("InvalidSpec", "x", STAMP, placed(NOWHERE)))
    assert "candidates" not in status
    assert status["phase"] == "Invalid"


def test_a_broken_spec_that_is_mended_recovers() -> None:
    broken = refused_status("InvalidSpec", "x", STAMP)
    status = checked(placement_status(PLACED, DEMAND, SPEC, LATER, broken))
    assert status["phase"] == "Placed"
    assert condition(status, "Accepted") == ("True", "Valid")
    accepted = find_condition(status["conditions"], "Accepted") or {}
    assert accepted["lastTransitionTime"] == "2026-01-02T03:09:05Z"


def test_a_running_model_keeps_running_when_its_spec_breaks() -> None:
    running = serving_status(Serving("app=x", 1, 1), SPEC, STAMP, placed())
    status = checked(refused_status("InvalidSpec", "x", LATER, running))
    assert status["phase"] == "Ready"
    assert status["pool"] == "a30"
    assert condition(status, "Accepted") == ("False", "InvalidSpec")
    assert condition(status, "Placed") == ("True", "Placed")


def test_a_look_at_a_placed_model_never_takes_its_pool() -> None:
    gone = PlacementDecision(None, (SLOW,), "PoolGone", "the pool a30 has no nodes now", pools_considered=1)
    status = checked(reaffirmed_status(gone, DEMAND, SPEC, LATER, placed()))
    assert recorded_placement({"status": status}) == RecordedPlacement("a30", 1)
    assert condition(status, "Placed") == ("True", "PoolGone")
    assert [row["pool"] for row in status["candidates"]] == ["l4"]
    assert status["prediction"]["powerWatts"] == 139


def test_a_placed_model_that_has_become_too_slow_says_so() -> None:
    slow = candidate(itl=0.07, upper=0.08, rejection=Rejection("SLAMissed", "too slow"))
    decision = PlacementDecision(slow, (slow, candidate("h100", 0.006, 0.007)), "Placed", "stays")
    status = checked(reaffirmed_status(decision, DEMAND, SPEC, LATER, placed()))
    assert status["pool"] == "a30"
    assert condition(status, "SLAFeasible") == ("False", "SLAMissed")
    assert status["prediction"]["interTokenLatencyUpper"] == "80ms"


def test_further_conditions_leave_all_else_alone() -> None:
    before = placed()
    after = checked(
        conditioned_status([Condition("ReplicasConflict", "True", "ForeignOwner", "x")], LATER, before)
    )
    assert condition(after, "ReplicasConflict") == ("True", "ForeignOwner")
    assert after | {"conditions": []} == before | {"conditions": []}


def test_saying_the_same_again_changes_nothing() -> None:
    before = placed()
    assert same_status(before, placement_status(PLACED, DEMAND, SPEC, LATER, before))
    assert not same_status(before, placement_status(NOWHERE, DEMAND, SPEC, LATER, before))
    assert same_status(before, dict(reversed(before.items())))


def test_the_previous_status_is_left_alone() -> None:
    before = placed()
    kept = {key: (list(value) if isinstance(value, list) else value) for key, value in before.items()}
    placement_status(NOWHERE, DEMAND, SPEC, LATER, before)
    serving_status(Serving("app=x", 1, 1), SPEC, LATER, before)
    assert before == kept


def test_the_table_ends_where_a_status_does() -> None:
    table = tuple(candidate(f"pool-{index:02}") for index in range(40))
    status = placed(PlacementDecision(table[0], table, "Placed", "x", pools_considered=40))
    assert len(status["candidates"]) == 32
    assert status["candidates"][0]["pool"] == "pool-00"
    assert status["poolsConsidered"] == 40


def test_long_words_are_cut_to_the_schema() -> None:
    wordy = candidate(gpu_name="G" * 500, rejection=Rejection("R" * 500, "m" * 5000))
    forecast = Forecast(1, 2, 0.01, 0.02, notes=tuple("n" * 2000 for _ in range(40)))
    status = placed(PlacementDecision(candidate(forecast=forecast), (wordy,), "Placed", "m" * 50_000))
    assert len(status["candidates"][0]["message"]) == 1024
    assert len(status["prediction"]["notes"]) == 16


@pytest.mark.parametrize(
    "status",
    [{}, {"pool": ""}, {"pool": "a"}, {"pool": 3, "gpusPerReplica": 1}, {"pool": "a", "gpusPerReplica": "1"}],
)
def test_no_placement_is_read_from_half_a_record(status: dict[str, Any]) -> None:
    assert recorded_placement({"status": status}) is None


def test_no_placement_is_read_where_there_is_no_status() -> None:
    assert recorded_placement({}) is None
    assert recorded_placement({"status": None}) is None


@pytest.mark.parametrize(
    ("conditions", "replicas", "ready", "wanted", "phase"),
    [
        ({}, 0, 0, 1, "Pending"),
        ({"Accepted": ("False", "InvalidSpec")}, 0, 0, 1, "Invalid"),
        ({"Placed": ("False", "NoFeasiblePool")}, 0, 0, 1, "Unschedulable"),
        ({"Placed": ("False", "CapacitySettling")}, 0, 0, 1, "Pending"),
        ({"Placed": ("True", "Placed")}, 0, 0, 1, "Placed"),
        ({"Placed": ("True", "Placed")}, 2, 0, 2, "Loading"),
        ({"Placed": ("True", "Placed")}, 2, 1, 2, "PartlyReady"),
        ({"Placed": ("True", "Placed")}, 2, 2, 2, "Ready"),
        ({"Placed": ("True", "Placed")}, 3, 3, 2, "Ready"),
        ({"Placed": ("True", "Placed")}, 0, 0, 0, "Off"),
        ({"Placed": ("False", "NoFeasiblePool")}, 0, 0, 0, "Off"),
        ({"Placed": ("True", "Placed"), "Ready": ("False", "Failed")}, 1, 0, 1, "Failed"),
    ],
)
def test_the_phase_follows_from_the_rest(
    conditions: dict[str, tuple[str, str]], replicas: int, ready: int, wanted: int, phase: str
) -> None:
    listed = [{"type": kind, "status": s, "reason": r} for kind, (s, r) in conditions.items()]
    status = {"conditions": listed, "replicas": replicas, "readyReplicas": ready}
    assert phase_of(status, wanted) == phase


FORECASTS = st.builds(
    Forecast,
    power_watts=st.floats(0.1, 1e5),
    power_upper_watts=st.floats(0.1, 1e5),
    itl_seconds=st.floats(1e-6, 1e3),
    itl_upper_seconds=st.floats(1e-6, 1e3),
    ttft_seconds=st.none() | st.floats(1e-6, 1e3),
    ttft_upper_seconds=st.none() | st.floats(1e-6, 1e3) | st.just(float("inf")),
)


@given(st.lists(FORECASTS, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_whatever_is_predicted_fits_the_schema(
    forecasts: list[Forecast], found: bool, deferred: bool
) -> None:
    table = tuple(candidate(f"pool-{index}", forecast=forecast) for index, forecast in enumerate(forecasts))
    decision = PlacementDecision(table[0] if found else None, table, "Why", "x", deferred=deferred)
    status = placed(decision)
    assert ("pool" in status) == (found and not deferred)
    assert condition_status(status["conditions"], "Placed") == str(found and not deferred)
    assert same_status(status, placement_status(decision, DEMAND, SPEC, LATER, status))
