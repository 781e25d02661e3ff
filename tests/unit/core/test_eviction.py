"""Eviction: who goes, who stays and why, groups as a whole, one a pool."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.break_even import Accounting, BreakEven, break_even, load_cost
from wattkeeper.core.eviction import (
    Action,
    Block,
    FleetState,
    ModelState,
    ParkingDecision,
    ParkingPolicy,
    ParkingRules,
    decide,
    groups,
)
from wattkeeper.core.idleness import Idleness
from wattkeeper.core.parking_catalogue import Basis, Loader
from wattkeeper.core.parking_tax import HeldGpu, ParkingTax
from wattkeeper.core.witnesses import IdleMemory, Verdict, Witness

NOW = 100_000.0
T_STAR = 270.54


def cost(accounting: Accounting = Accounting.TOTAL) -> BreakEven:
    loading = load_cost(
        load_watts=300, bare_watts=71.8, weight_bytes=1.0, loader=Loader("test", 45.0, math.inf)
    )
    return break_even(loading, 49.9, accounting)


def tax(watts: float = 49.9) -> ParkingTax:
    return ParkingTax(watts, watts - 1, watts + 1, Basis.MEASURED, 71.8, 71.8 + watts, 0.1, True)


def idle(
    seconds: float = 271.0, verdict: Verdict = Verdict.IDLE, reason: str = "Idle", confirmed: bool = True
) -> Idleness:
    since = NOW - seconds if verdict is Verdict.IDLE else None
    return Idleness(verdict, since, reason, "the evidence", confirmed, IdleMemory())


def model(name: str = "team/a", *gpus: str, of: Idleness | None = None, **more: object) -> ModelState:
    rules = more.pop("rules", ParkingRules())
    held = gpus or (f"GPU-{name}",)
    made = ModelState(name, str(more.pop("pool", "pool")), rules, of or idle(), cost(), held)  # type: ignore[arg-type]
    return replace(made, **more)  # type: ignore[arg-type]


def fleet(*models: ModelState, **more: object) -> FleetState:
    held = {gpu: HeldGpu(gpu, tax()) for each in models for gpu in each.gpus}
    held.update(more.pop("held", {}))  # type: ignore[call-overload]
    made = FleetState(telemetry_healthy=True, held_gpus=held)
    return replace(made, **more)  # type: ignore[arg-type]


def only(of: ModelState, **more: object) -> ParkingDecision:
    (decision,) = decide([of], fleet(of, **more), NOW)
    return decision


def test_a_model_idle_beyond_its_break_even_goes() -> None:
    found = only(model())
    assert (found.action, found.reason) == (Action.PARK, "IdleBeyondBreakEven")
    assert found.timeout_seconds == pytest.approx(T_STAR, abs=0.01)
    assert found.eviction_time == pytest.approx(NOW - 271 + T_STAR, abs=0.01)
    assert found.saving.watts == pytest.approx(49.9)


HOLDS = {
    "WithinBreakEven": model(of=idle(270.0)),
    "RequestsInFlight": model(of=idle(verdict=Verdict.BUSY, reason="RequestsInFlight")),
    "ServerMetricsMissing": model(of=idle(verdict=Verdict.UNKNOWN, reason="ServerMetricsMissing")),
    "GpuDisagrees": model(of=idle(verdict=Verdict.DISAGREE, reason="GpuDisagrees")),
    "NotReady": model(of=idle(verdict=Verdict.NOT_READY, reason="NotReady")),
    "PolicyNever": model(rules=ParkingRules(ParkingPolicy.NEVER)),
    "Excluded": model(rules=ParkingRules(excluded_until=NOW + 1, excluded_because="benchmark")),
    "KeepWarm": model(keep_warm_until=NOW + 60),
    "Dwell": model(rules=ParkingRules(min_awake_seconds=600), awake_since=NOW - 599),
    "ColdStartsLimited": model(
        rules=ParkingRules(max_cold_starts_per_hour=2), cold_starts=(NOW - 3599, NOW - 10, NOW - 4000)
    ),
    "WaitingBudgetSpent": model(waiting_tokens=False),
    "BreakEvenUnknown": model(break_even=None),
    "ParkingBlocked": model(blocks=(Block("ParkingBlocked", "PodDisruptionBudget llm"),)),
}


@pytest.mark.parametrize("reason", HOLDS)
def test_what_holds_a_model(reason: str) -> None:
    found = only(HOLDS[reason])
    assert (found.action, found.reason) == (Action.HOLD, reason)
    assert found.message


@pytest.mark.parametrize(
    "of",
    [
        model(rules=ParkingRules(excluded_until=NOW)),  # expired
        model(keep_warm_until=NOW),
        model(rules=ParkingRules(min_awake_seconds=600), awake_since=NOW - 600),
        model(rules=ParkingRules(max_cold_starts_per_hour=2), cold_starts=(NOW - 3600, NOW - 10)),
    ],
)
def test_what_no_longer_holds_a_model(of: ModelState) -> None:
    assert only(of).action is Action.PARK


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"paused": True}, "Paused"),
        ({"telemetry_healthy": False, "telemetry_message": "Prometheus is down"}, "TelemetryUnhealthy"),
        ({"failed_wakes": {"pool": "team/x"}}, "WakeFailed"),
        ({"parking_in_progress": {"pool": "team/x"}}, "PoolBusy"),
    ],
)
def test_what_holds_all_models(more: dict[str, object], reason: str) -> None:
    found = only(model(), **more)
    assert (found.action, found.reason) == (Action.HOLD, reason)


def test_another_pools_trouble_is_no_trouble() -> None:
    more = {"failed_wakes": {"other": "team/x"}, "parking_in_progress": {"other": "team/x"}}
    assert only(model(), **more).action is Action.PARK


@pytest.mark.parametrize(
    ("rules", "more", "timeout"),
    [
        (ParkingRules(), {}, T_STAR),
        (ParkingRules(ParkingPolicy.FIXED, fixed_seconds=100), {}, 100.0),
        (ParkingRules(ParkingPolicy.FIXED, fixed_seconds=10), {}, 60.0),  # minIdle
        (ParkingRules(ParkingPolicy.ADAPTIVE), {"adaptive_timeout": 0.5}, T_STAR / 2),
        (ParkingRules(ParkingPolicy.ADAPTIVE), {"adaptive_timeout": 0.0}, 60.0),
        (ParkingRules(ParkingPolicy.ADAPTIVE), {}, T_STAR),  # nothing learnt yet
        (ParkingRules(min_idle_seconds=1000), {}, 1000.0),
        (ParkingRules(), {"waiting_timeout_seconds": 900.0}, 900.0),
        (ParkingRules(), {"break_even": cost(Accounting.MARGINAL)}, 228.2 * 45 / 49.9),
        (ParkingRules(ParkingPolicy.NEVER), {}, None),
    ],
)
def test_timeouts(rules: ParkingRules, more: dict[str, object], timeout: float | None) -> None:
    found = only(model(rules=rules, **more))
    assert found.timeout_seconds == (None if timeout is None else pytest.approx(timeout, abs=0.01))


@pytest.mark.parametrize("where", ["cluster", "model"])
def test_dry_run_only_reports(where: str) -> None:
    of = model(rules=ParkingRules(dry_run=where == "model"))
    found = only(of, dry_run=where == "cluster")
    assert (found.action, found.reason) == (Action.REPORT, "DryRun")


def pair(*, second: Idleness | None = None, **more: object) -> tuple[ModelState, ModelState]:
    one = model("team/a", "GPU-1", of=idle(5000.0, confirmed=False))
    return one, model("team/b", "GPU-1", of=second or idle(4000.0, confirmed=False), **more)


AT_REST = {"GPU-1": Witness(Verdict.IDLE, "at rest")}


def test_models_on_one_gpu_go_together_or_not_at_all() -> None:
    both = pair()
    found = decide(both, fleet(*both, at_rest=AT_REST), NOW)
    assert [each.action for each in found] == [Action.PARK, Action.PARK]
    # Two reloads against one tax.
    assert found[0].timeout_seconds == pytest.approx(2 * T_STAR, abs=0.01)
    assert found[0].saving.watts == pytest.approx(49.9)
    assert found[0].group == ("team/a", "team/b")

    held = pair(second=idle(100.0, confirmed=False))
    found = decide(held, fleet(*held, at_rest=AT_REST), NOW)
    assert [each.reason for each in found] == ["NeighbourHolds", "WithinBreakEven"]
    assert found[0].kept_hot_by == ("team/b",)
    assert found[1].kept_hot_by == ()


def test_one_neighbour_that_never_parks_keeps_the_gpu() -> None:
    both = pair(rules=ParkingRules(ParkingPolicy.NEVER))
    found = decide(both, fleet(*both, at_rest=AT_REST), NOW)
    assert [each.reason for each in found] == ["WithinBreakEven", "PolicyNever"]
    assert [each.action for each in found] == [Action.HOLD, Action.HOLD]


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ({}, "GpuTelemetryMissing"),
        ({"GPU-1": Witness(Verdict.UNKNOWN, "no power")}, "GpuTelemetryMissing"),
        ({"GPU-1": Witness(Verdict.BUSY, "400 W")}, "GpuDisagrees"),
    ],
)
def test_a_shared_gpu_must_be_at_rest_itself(rest: dict[str, Witness], reason: str) -> None:
    both = pair()
    found = decide(both, fleet(*both, at_rest=rest), NOW)
    assert {(each.action, each.reason) for each in found} == {(Action.HOLD, reason)}


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (HeldGpu("GPU-1", tax(), neighbours=("other/notebook",)), "GpuKeptHot"),
        (HeldGpu("GPU-1", tax(), neighbours_known=False), "GpuUnknown"),
        (HeldGpu("GPU-1", None), "GpuUnknown"),
        (HeldGpu("GPU-1", tax(0.0)), "NoTax"),
    ],
)
def test_a_gpu_that_saves_nothing_is_left_alone(held: HeldGpu, reason: str) -> None:
    of = model("team/a", "GPU-1", rules=ParkingRules(ParkingPolicy.FIXED, fixed_seconds=60))
    found = only(of, held={"GPU-1": held})
    assert (found.action, found.reason) == (Action.HOLD, reason)
    if reason == "GpuKeptHot":
        assert found.kept_hot_by == ("other/notebook",)
        assert "other/notebook" in found.message


def test_a_gpu_nobody_reported_on_is_unknown() -> None:
    of = model(rules=ParkingRules(ParkingPolicy.FIXED, fixed_seconds=60))
    (found,) = decide([of], FleetState(telemetry_healthy=True), NOW)
    assert found.reason == "GpuUnknown"


def test_one_park_a_pool_the_largest_saving_first() -> None:
    small = model("team/small", "GPU-1")
    large = model("team/large", "GPU-2", "GPU-3")
    other = model("team/other", "GPU-4", pool="other")
    dry = model("team/dry", "GPU-5", rules=ParkingRules(dry_run=True))
    found = decide([small, large, other, dry], fleet(small, large, other, dry), NOW)
    assert [each.action for each in found] == [Action.HOLD, Action.PARK, Action.PARK, Action.REPORT]
    assert found[0].reason == "PoolBusy" and "team/large" in found[0].message


def test_groups_join_over_any_shared_gpu() -> None:
    made = [model("a", "1", "2"), model("b", "3"), model("c", "2", "4"), model("d", "4"), model("e", "5")]
    assert {frozenset(each.name for each in group) for group in groups(made)} == {
        frozenset("acd"),
        frozenset("b"),
        frozenset("e"),
    }


VERDICTS = st.sampled_from([v for v in Verdict if v is not Verdict.IDLE])


@given(
    st.lists(
        st.tuples(
            st.one_of(VERDICTS, st.floats(0, 2000)),
            st.sets(st.sampled_from("12345"), min_size=1, max_size=2),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_nobody_who_isnt_idle_long_enough_ever_goes(
    drawn: list[tuple[Verdict | float, set[str], bool]],
) -> None:
    made = []
    for n, (state, gpus, healthy) in enumerate(drawn):
        of = idle(state) if isinstance(state, float) else idle(verdict=state, reason="Test")
        made.append(model(f"m{n}", *sorted(gpus), of=of, waiting_tokens=healthy))
    at_rest = {gpu: Witness(Verdict.IDLE, "") for gpu in "12345"}
    for decision, of in zip(decide(made, fleet(*made, at_rest=at_rest), NOW), made, strict=True):
        if decision.action is Action.HOLD:
            continue
        assert of.idleness.idle_since is not None and of.waiting_tokens
        assert NOW - of.idleness.idle_since >= (decision.timeout_seconds or math.inf)
        # All that share a GPU with it go too.
        sharing = {each.name for each in made if set(each.gpus) & set(of.gpus)}
        assert sharing <= set(decision.group)
