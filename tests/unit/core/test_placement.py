from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.cures import TENSOR_PARALLEL_SIZES
from wattkeeper.core.decision import MAX_TABLE_ROWS, Candidate, PlacementDecision
from wattkeeper.core.demand import Demand, LabelRequirement, ModelChoice, Sla, Toleration, WorkloadShape
from wattkeeper.core.filters import Obstacle
from wattkeeper.core.fleet import Assignment, Fleet, Pool, Problem, Reservation, Taint
from wattkeeper.core.forecast import Forecast, GpuKind, MemoryFit, Refusal, RefusalReason
from wattkeeper.core.placement import place, reaffirm

from .placing import (
    A30,
    FITTING,
    H100,
    L4,
    MEASURED,
    OUT_OF_RANGE,
    TOO_LARGE,
    FakeForecaster,
    demand,
    forecast,
    node,
    pool,
)

FLEET = Fleet((H100, A30, L4))


def row(decision: PlacementDecision, name: str) -> Candidate:
    return next(each for each in decision.table if each.pool == name)


def reason(decision: PlacementDecision, name: str) -> str | None:
    rejection = row(decision, name).rejection
    return rejection.reason if rejection else None


def message(decision: PlacementDecision, name: str) -> str:
    rejection = row(decision, name).rejection
    assert rejection is not None
    return rejection.message


# ---- the choice ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sla_ms", "chosen", "order"),
    [
        (70, "l4", ["l4", "a30", "h100-nvl"]),
        (50, "a30", ["a30", "h100-nvl", "l4"]),
        (10, "h100-nvl", ["h100-nvl", "a30", "l4"]),
    ],
)
def test_least_power_that_meets_the_sla(sla_ms: float, chosen: str, order: list[str]) -> None:
    decision = place(demand(sla=Sla(sla_ms / 1000)), FLEET, MEASURED)
    assert decision.reason == "Placed"
    assert decision.chosen is decision.table[0]
    assert [each.pool for each in decision.table] == order
    assert decision.chosen is not None
    assert decision.chosen.pool == chosen
    assert decision.chosen.feasible
    assert decision.pools_considered == 3


def test_the_upper_bound_must_meet_the_sla_not_the_mean() -> None:
    decision = place(demand(sla=Sla(0.065)), FLEET, MEASURED)  # L4: 62 ms, at most 68.2
    assert decision.chosen is not None
    assert decision.chosen.pool == "a30"
    exactly = place(demand(sla=Sla(62 * 1.1 / 1000)), FLEET, MEASURED)
    assert exactly.chosen is not None
    assert exactly.chosen.pool == "l4"


def test_the_message_says_what_it_draws_and_what_comes_next() -> None:
    decision = place(demand(), FLEET, MEASURED)
    assert decision.message == (
        "l4 draws the least of 3 feasible pools (71 W a replica, at most 79 W; 62 ms a token, at most "
        "68.2 ms); next: a30 (139 W a replica, at most 153 W; 20.6 ms a token, at most 22.7 ms)"
    )
    alone = place(demand(), Fleet((L4,)), MEASURED)
    assert alone.message.startswith("l4 is the only feasible pool (71 W")


def test_no_feasible_pool_says_why_for_each_and_which_is_closest() -> None:
    decision = place(demand(sla=Sla(0.005)), FLEET, MEASURED)
    assert decision.chosen is None
    assert decision.reason == "NoFeasiblePool"
    assert [each.pool for each in decision.table] == ["h100-nvl", "a30", "l4"]  # the closest first
    assert "none of 3 pools can be used (3 SLAMissed); closest h100-nvl: predicted mean" in decision.message


def test_no_pools() -> None:
    decision = place(demand(), Fleet(()), MEASURED)
    assert (decision.chosen, decision.table, decision.reason) == (None, (), "NoPools")
    assert "add GPU nodes" in decision.message


def test_a_model_that_cannot_be_forecast_anywhere_is_refused_as_such() -> None:
    refusal = Refusal(RefusalReason.UNKNOWN_MODEL, "spec.model.id", "unknown: give its architecture")
    decision = place(demand(), FLEET, FakeForecaster({}, refuses_model=refusal))
    assert (decision.reason, decision.table) == ("UnknownModel", ())
    assert decision.message == "spec.model.id: unknown: give its architecture"


# ---- filters ------------------------------------------------------------------------------------

NOT_READY = pool("l4", node("a", schedulable=False))
SPOT = pool("l4", node("a", taints=(Taint("spot", "true"),)))


def only(changed: Pool, forecaster: FakeForecaster = MEASURED, **changes: Any) -> PlacementDecision:
    reservations = changes.pop("reservations", ())
    decision = place(demand(**changes), Fleet((changed,), reservations), forecaster)
    assert decision.chosen is None
    return decision


def test_pool_selector() -> None:
    decision = only(L4, pool_selector=(LabelRequirement("tier", "In", ("gold",)),))
    assert reason(decision, "l4") == "PoolSelectorMismatch"
    assert "spec.placement.poolSelector (tier=gold)" in message(decision, "l4")
    assert row(decision, "l4").forecast is None  # the user excluded it: no figures are made


def test_unusable_pool_keeps_its_own_reason() -> None:
    broken = replace(L4, problem=Problem("GpuShared", "node a: its GPUs are shared: turn sharing off"))
    assert reason(only(broken), "l4") == "GpuShared"
    assert message(only(broken), "l4") == "node a: its GPUs are shared: turn sharing off"


def test_taints() -> None:
    decision = only(SPOT)
    assert reason(decision, "l4") == "TaintNotTolerated"
    assert "the taint spot=true:NoSchedule isn't tolerated: add a toleration" in message(decision, "l4")
    assert row(decision, "l4").forecast == forecast(71, 62)  # shows what it would draw
    tolerant = place(demand(tolerations=(Toleration("spot", "Exists"),)), Fleet((SPOT,)), MEASURED)
    assert tolerant.chosen is not None


def test_nodes_that_are_not_ready() -> None:
    decision = only(NOT_READY)
    assert reason(decision, "l4") == "NodesUnavailable"
    assert message(decision, "l4") == "its 1 node is not ready or cordoned: uncordon or repair, or add nodes"


def test_nodes_before_the_driver_is_up() -> None:
    decision = only(pool("l4", node("a", 0)))
    assert reason(decision, "l4") == "NodesUnavailable"
    assert "wait for the driver and the device plugin" in message(decision, "l4")


def test_node_selector_of_the_template() -> None:
    decision = only(L4, node_selector={"zone": "a"})
    assert reason(decision, "l4") == "NodeSelectorMismatch"
    assert "(zone=a)" in message(decision, "l4")
    east = pool("l4", node("a", labels={"zone": "a"}), node("b"))
    assert place(demand(node_selector={"zone": "a"}), Fleet((east,)), MEASURED).chosen is not None


def test_a_replica_larger_than_any_node() -> None:
    forecaster = FakeForecaster({("NVIDIA-L4", 4): forecast(240, 20)})
    decision = only(pool("l4", node("a", 2)), forecaster, tensor_parallel_size=4)
    assert reason(decision, "l4") == "NodesTooSmall"
    assert "needs 4 GPUs on one node, the largest has 2" in message(decision, "l4")


def test_unknown_gpu() -> None:
    forecaster = FakeForecaster({}, unknown_gpus=frozenset({"NVIDIA-L4"}))
    decision = only(L4, forecaster)
    assert reason(decision, "l4") == "UnknownGpu"
    assert "'NVIDIA-L4' isn't in the catalogue" in message(decision, "l4")
    knows_why = Refusal(RefusalReason.UNKNOWN_GPU, "nvidia.com/gpu.product", "may be two: install GFD")
    forecaster = replace(forecaster, memories={("NVIDIA-L4", 1): knows_why})
    assert message(only(L4, forecaster), "l4") == "nvidia.com/gpu.product: may be two: install GFD"
    assert row(decision, "l4").gpu_name is None


def test_memory_names_the_figures_and_the_cure() -> None:
    forecaster = FakeForecaster({}, memories={("NVIDIA-L4", 1): TOO_LARGE})
    decision = only(L4, forecaster)
    assert reason(decision, "l4") == "InsufficientMemory"
    assert message(decision, "l4") == (
        "each GPU needs 18.0 GiB (weights 16.0 GiB, engine 1.9 GiB, KV cache of one sequence of 512 tokens "
        "0.1 GiB) and offers 14.0 GiB: choose a pool with more memory"
    )


def test_only_what_is_not_refused_in_turn_is_a_cure() -> None:
    two = pool("l4", node("a", 2))
    memories = {("NVIDIA-L4", 1): TOO_LARGE}
    predicted = FakeForecaster({("NVIDIA-L4", 2): forecast(130, 33)}, memories=memories)
    assert message(only(two, predicted), "l4").endswith(
        "choose a pool with more memory or a larger tensorParallelSize"
    )
    refused = FakeForecaster({("NVIDIA-L4", 2): OUT_OF_RANGE}, memories=memories)
    assert message(only(two, refused), "l4").endswith("choose a pool with more memory")


@dataclass
class Int4Fits(FakeForecaster):
    """A forecaster for which int4, and it alone, fits one GPU."""

    def memory(
        self, model: ModelChoice, gpu: GpuKind, workload: WorkloadShape, tensor_parallel_size: int
    ) -> MemoryFit | Refusal:
        return FITTING if model.quantization == "int4" else TOO_LARGE


def test_a_quantization_is_a_cure_where_it_fits_and_is_predicted() -> None:
    predicted = Int4Fits({("NVIDIA-L4", 1): forecast(71, 62)})
    assert message(only(L4, predicted), "l4").endswith("more memory or a smaller quantization")
    assert message(only(L4, Int4Fits({("NVIDIA-L4", 1): OUT_OF_RANGE})), "l4").endswith("with more memory")


@pytest.mark.parametrize("asked", [None, 2])
def test_a_size_that_memory_asks_for_and_nobody_predicts_leads_to_no_smaller(asked: int | None) -> None:
    two = pool("l4", node("a", 2))
    forecaster = FakeForecaster({("NVIDIA-L4", 2): OUT_OF_RANGE}, memories={("NVIDIA-L4", 1): TOO_LARGE})
    decision = only(two, forecaster, tensor_parallel_size=asked)
    assert reason(decision, "l4") == "OutOfPredictorRange"
    assert message(decision, "l4") == (
        "spec.placement.tensorParallelSize: this model needs 2 GPUs of this kind a replica for its memory, "
        "and 2 GPUs a replica aren't predicted by the installed recipe: choose a pool with more memory"
    )


def test_free_gpus() -> None:
    full = pool("l4", node("a", 4, gpus_held=3))
    decision = only(full, replicas=3, reservations=(Reservation("other", "l4", 1, 1),))
    assert reason(decision, "l4") == "InsufficientFreeGpus"
    assert message(decision, "l4") == (
        "3 replicas of 1 GPU needed, 1 GPU free, 1 of them promised to others; room for 0 such replicas now: "
        "free GPUs, add nodes or lower spec.replicas"
    )
    assert row(decision, "l4").gpus_free == 0
    assert row(decision, "l4").forecast == forecast(71, 62)  # a full pool shows what it would draw


def test_refusals_of_the_predictor() -> None:
    decision = only(L4, FakeForecaster({("NVIDIA-L4", 1): OUT_OF_RANGE}))
    assert reason(decision, "l4") == "OutOfPredictorRange"
    assert message(decision, "l4") == "spec.placement.tensorParallelSize: only 1 was trained: set 1"
    unsupported = Refusal(RefusalReason.UNSUPPORTED_BY_GPU, "spec.model.quantization", "no fp8: choose int8")
    decision = only(L4, FakeForecaster({}, memories={("NVIDIA-L4", 1): unsupported}))
    assert reason(decision, "l4") == "UnsupportedByGpu"


def test_a_harder_obstacle_behind_the_first_is_named_too() -> None:
    full = pool("l4", node("a", 1, gpus_held=1))
    decision = only(full, sla=Sla(0.05))
    assert reason(decision, "l4") == "InsufficientFreeGpus"
    assert "lower spec.replicas; besides, SLAMissed: predicted mean" in message(decision, "l4")


def test_sla_missed_shows_the_figures() -> None:
    decision = only(L4, sla=Sla(0.05, confidence_percent=95))
    assert reason(decision, "l4") == "SLAMissed"
    assert message(decision, "l4") == (
        "predicted mean inter-token latency 62 ms, at most 68.2 ms at 95 % confidence; the SLA is 50 ms: "
        "choose a faster pool or raise spec.sla.interTokenLatency"
    )
    assert row(decision, "l4").forecast == forecast(71, 62)


def test_time_to_first_token() -> None:
    asked = Sla(0.07, ttft_seconds=1.0)
    decision = only(L4, sla=asked)
    assert reason(decision, "l4") == "OutOfPredictorRange"
    assert "spec.sla.timeToFirstToken" in message(decision, "l4")
    slow = forecast(71, 62, ttft_seconds=0.9, ttft_upper_seconds=1.2)
    decision = only(L4, FakeForecaster({("NVIDIA-L4", 1): slow}), sla=asked)
    assert reason(decision, "l4") == "SLAMissed"
    assert "at most 1.2 s" in message(decision, "l4")
    quick = forecast(71, 62, ttft_seconds=0.3, ttft_upper_seconds=0.4)
    assert (
        place(demand(sla=asked), Fleet((L4,)), FakeForecaster({("NVIDIA-L4", 1): quick})).chosen is not None
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0])
@pytest.mark.parametrize("field", ["power_watts", "power_upper_watts", "itl_seconds", "itl_upper_seconds"])
def test_no_decision_rests_on_a_figure_that_is_none(field: str, value: float) -> None:
    broken = replace(forecast(71, 62), **{field: value})
    decision = only(L4, FakeForecaster({("NVIDIA-L4", 1): broken}))
    assert reason(decision, "l4") == "InvalidForecast"
    assert row(decision, "l4").forecast is None


def test_the_first_filter_in_order_is_reported() -> None:
    """Selector, taints, availability, GPU, memory, free GPUs, prediction, SLA: mending one shows the next."""
    selector = (LabelRequirement("wattkeeper.dev/gpu", "In", ("l4",)),)
    ask: dict[str, Any] = {"pool_selector": selector, "sla": Sla(0.05), "replicas": 2}
    no_memory = {("NVIDIA-L4", 1): TOO_LARGE}
    unknown = FakeForecaster({}, unknown_gpus=frozenset({"NVIDIA-L4"}), memories=no_memory)
    too_large = FakeForecaster({("NVIDIA-L4", 1): OUT_OF_RANGE}, memories=no_memory)
    refusing = FakeForecaster({("NVIDIA-L4", 1): OUT_OF_RANGE})
    tainted = pool("l4", node("a", taints=(Taint("spot"),), schedulable=False))
    roomy = pool("l4", node("a", 2))
    steps = [
        (only(replace(tainted, labels={}), unknown, **ask), "PoolSelectorMismatch"),
        (only(tainted, unknown, **ask), "TaintNotTolerated"),
        (only(NOT_READY, unknown, **ask), "NodesUnavailable"),
        (only(L4, unknown, **ask), "UnknownGpu"),
        (only(L4, too_large, **ask), "InsufficientMemory"),
        (only(L4, refusing, **ask), "InsufficientFreeGpus"),
        (only(roomy, refusing, **ask), "OutOfPredictorRange"),
        (only(roomy, MEASURED, **ask), "SLAMissed"),
    ]
    assert [reason(decision, "l4") for decision, _ in steps] == [expected for _, expected in steps]


# ---- tensor parallel sizes ----------------------------------------------------------------------


def test_the_size_is_chosen_by_power_of_all_gpus_of_a_replica() -> None:
    forecaster = FakeForecaster(
        {
            ("NVIDIA-L4", 1): forecast(71, 62),
            ("NVIDIA-L4", 2): forecast(130, 33),
            ("NVIDIA-L4", 4): forecast(240, 20),
        }
    )
    fleet = Fleet((pool("l4", node("a", 4)),))
    for sla_ms, size in ((70, 1), (40, 2), (25, 4)):
        decision = place(demand(tensor_parallel_size=None, sla=Sla(sla_ms / 1000)), fleet, forecaster)
        assert decision.chosen is not None
        assert decision.chosen.gpus_per_replica == size
        assert len(decision.table) == 1  # the best variant of the pool


def test_sizes_beyond_the_largest_node_are_not_tried() -> None:
    forecaster = FakeForecaster({("NVIDIA-L4", 1): forecast(71, 62), ("NVIDIA-L4", 2): OUT_OF_RANGE})
    fleet = Fleet((pool("l4", node("a", 3), node("b", 8, schedulable=False)),))
    assert place(demand(tensor_parallel_size=None), fleet, forecaster).chosen is not None


def test_the_size_that_is_asked_for_is_the_only_one_tried() -> None:
    forecaster = FakeForecaster({("NVIDIA-L4", 2): forecast(130, 33)})
    decision = place(demand(tensor_parallel_size=2), Fleet((pool("l4", node("a", 8)),)), forecaster)
    assert decision.chosen is not None
    assert decision.chosen.gpus_per_replica == 2


# ---- waiting for bindings -----------------------------------------------------------------------

TWO_SIZES = FakeForecaster({("NVIDIA-L4", 2): forecast(130, 33), ("NVIDIA-A30", 2): forecast(250, 12)})
L4_PAIRS = pool("l4", node("a", 2), node("b", 2))
A30_PAIR = pool("a30", node("c", 2, label="NVIDIA-A30"), label="NVIDIA-A30")
SCATTERED = (Reservation("other", "l4", 1, 2),)


def test_a_better_pool_that_settles_defers_the_decision() -> None:
    fleet = Fleet((L4_PAIRS, A30_PAIR), SCATTERED)
    decision = place(demand(tensor_parallel_size=2), fleet, TWO_SIZES)
    assert decision.deferred
    assert decision.reason == "CapacitySettling"
    assert decision.settling is not None
    assert decision.settling.pool == "l4"
    assert decision.chosen is not None
    assert decision.chosen.pool == "a30"
    assert "waiting for l4 (130 W" in decision.message
    assert "without waiting it would be a30" in decision.message
    assert reason(decision, "l4") == "CapacitySettling"


def test_nothing_is_waited_for_where_a_better_pool_has_room() -> None:
    cheap = FakeForecaster({("NVIDIA-L4", 2): forecast(130, 33), ("NVIDIA-A30", 2): forecast(100, 12)})
    decision = place(demand(tensor_parallel_size=2), Fleet((L4_PAIRS, A30_PAIR), SCATTERED), cheap)
    assert not decision.deferred
    assert decision.chosen is not None
    assert decision.chosen.pool == "a30"


def test_nothing_is_waited_for_that_would_miss_the_sla() -> None:
    decision = place(
        demand(tensor_parallel_size=2, sla=Sla(0.02)), Fleet((L4_PAIRS, A30_PAIR), SCATTERED), TWO_SIZES
    )
    assert not decision.deferred
    assert reason(decision, "l4") == "CapacitySettling"  # the first filter that rejects it


def test_a_lone_settling_pool_defers_with_nothing_chosen() -> None:
    decision = place(demand(tensor_parallel_size=2), Fleet((L4_PAIRS,), SCATTERED), TWO_SIZES)
    assert (decision.deferred, decision.chosen) == (True, None)


# ---- looking again ------------------------------------------------------------------------------


def test_a_running_replica_is_never_moved_though_the_table_is_new() -> None:
    decision = reaffirm(demand(), FLEET, MEASURED, Assignment("h100-nvl", 1, bound_replicas=1))
    assert decision.chosen is not None
    assert decision.chosen.pool == "h100-nvl"
    assert [each.pool for each in decision.table] == ["h100-nvl", "l4", "a30"]
    assert decision.reason == "Placed"
    assert "l4 (71 W a replica" in decision.message
    assert "would draw less" in decision.message


def test_its_own_gpus_do_not_count_against_it() -> None:
    full = pool("l4", node("a", 1, gpus_held=1))
    decision = reaffirm(demand(), Fleet((full,)), MEASURED, Assignment("l4", 1, bound_replicas=1))
    assert decision.chosen is not None
    assert decision.chosen.feasible
    assert decision.message.startswith("stays on l4 (71 W")


@pytest.mark.parametrize("home", [NOT_READY, SPOT])
def test_the_state_of_nodes_does_not_count_against_what_runs(home: Pool) -> None:
    decision = reaffirm(demand(), Fleet((home,)), MEASURED, Assignment("l4", 1, bound_replicas=1))
    assert decision.chosen is not None
    assert decision.chosen.feasible


def test_an_sla_that_is_no_longer_feasible_is_said() -> None:
    decision = reaffirm(demand(sla=Sla(0.05)), FLEET, MEASURED, Assignment("l4", 1, bound_replicas=1))
    assert decision.chosen is not None
    assert decision.chosen.pool == "l4"
    assert decision.chosen.rejection is not None
    assert decision.chosen.rejection.reason == "SLAMissed"
    assert decision.table[0] == decision.chosen
    assert "stays on l4, as replicas aren't moved, but SLAMissed" in decision.message
    assert "which a30 would do" in decision.message


def test_a_selector_changed_later_is_said_with_figures() -> None:
    changed = demand(pool_selector=(LabelRequirement("tier", "Exists"),))
    decision = reaffirm(changed, FLEET, MEASURED, Assignment("l4", 1, bound_replicas=1))
    assert decision.chosen is not None
    assert decision.chosen.rejection is not None
    assert decision.chosen.rejection.reason == "PoolSelectorMismatch"
    assert decision.chosen.forecast == forecast(71, 62)


def test_its_size_stays_too() -> None:
    forecaster = FakeForecaster({("NVIDIA-L4", 1): forecast(71, 62), ("NVIDIA-L4", 2): forecast(130, 33)})
    fleet = Fleet((pool("l4", node("a", 8)),))
    decision = reaffirm(demand(tensor_parallel_size=None), fleet, forecaster, Assignment("l4", 2, 1))
    assert decision.chosen is not None
    assert decision.chosen.gpus_per_replica == 2


def test_replicas_without_room_are_counted() -> None:
    nearly_full = pool("l4", node("a", 2, gpus_held=1))
    grown = demand(replicas=4)
    decision = reaffirm(grown, Fleet((nearly_full,)), MEASURED, Assignment("l4", 1, bound_replicas=1))
    assert decision.message.endswith(
        "3 of 4 replicas may wait for free GPUs there: free some, add nodes or lower spec.replicas."
    )
    decision = reaffirm(demand(replicas=2), Fleet((nearly_full,)), MEASURED, Assignment("l4", 1, 1))
    assert "may wait" not in decision.message


def test_a_model_that_is_refused_now_is_said_and_nothing_is_moved() -> None:
    refusal = Refusal(RefusalReason.INVALID_MODEL, "spec.model", "contradicts itself: mend it")
    decision = reaffirm(demand(), FLEET, FakeForecaster({}, refuses_model=refusal), Assignment("l4", 1, 1))
    assert (decision.chosen, decision.reason) == (None, "InvalidModel")


def test_a_pool_that_is_gone_is_said_and_nothing_is_moved() -> None:
    decision = reaffirm(demand(), FLEET, MEASURED, Assignment("gone", 1, 1))
    assert (decision.chosen, decision.reason) == (None, "PoolGone")
    assert len(decision.table) == 3


# ---- properties ---------------------------------------------------------------------------------


def test_the_table_ends_after_what_a_status_holds_and_keeps_the_best() -> None:
    many = [
        pool(f"p{index:03}", node(f"n{index}", label=f"G{index}"), label=f"G{index}") for index in range(50)
    ]
    forecaster = FakeForecaster({(f"G{index}", 1): forecast(100 + index, 62 + index) for index in range(50)})
    decision = place(demand(sla=Sla(0.08)), Fleet(tuple(reversed(many))), forecaster)
    assert len(decision.table) == MAX_TABLE_ROWS
    assert decision.pools_considered == 50
    assert [each.pool for each in decision.table] == [f"p{index:03}" for index in range(MAX_TABLE_ROWS)]
    assert [each.feasible for each in decision.table] == [index <= 10 for index in range(MAX_TABLE_ROWS)]


POOLS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans(), st.sampled_from([50, 71, 71, 139])),
    max_size=6,
)


def world(specs: list[tuple[int, int, bool, int]]) -> tuple[tuple[Pool, ...], FakeForecaster]:
    """Pools of two nodes each, with power and latency that follow from the spec and the size."""
    pools, table = [], {}
    for index, (one, two, tainted, watts) in enumerate(specs):
        label = f"G{index}"
        taints = (Taint("spot"),) if tainted else ()
        nodes = [node(f"{label}-{n}", gpus, label=label, taints=taints) for n, gpus in enumerate((one, two))]
        pools.append(pool(f"p{index}", *nodes, label=label))
        for size in TENSOR_PARALLEL_SIZES:
            refused = size == 4 and index % 2
            table[label, size] = OUT_OF_RANGE if refused else forecast(watts * size * 0.9, 60 / size + index)
    return tuple(pools), FakeForecaster(table)


@given(POOLS, st.integers(1, 3), st.sampled_from([None, 1, 2, 4]), st.floats(0.01, 0.08))
def test_the_choice_is_the_brute_force_minimum(
    specs: list[tuple[int, int, bool, int]], replicas: int, size: int | None, sla: float
) -> None:
    pools, forecaster = world(specs)
    wanted = demand(replicas=replicas, tensor_parallel_size=size, sla=Sla(sla))
    decision = place(wanted, Fleet(pools), forecaster)
    best = math.inf
    for each in pools:
        if each.nodes[0].taints:
            continue
        for gpus in (size,) if size else TENSOR_PARALLEL_SIZES:
            figures = forecaster.forecasts[each.gpu.label, gpus]
            fits = sum(n.gpus_allocatable // gpus for n in each.nodes) >= replicas
            if isinstance(figures, Forecast) and fits and figures.itl_upper_seconds <= sla:
                best = min(best, figures.power_watts)
    if decision.chosen is None:
        assert best == math.inf
    else:
        assert decision.chosen.forecast is not None
        assert decision.chosen.forecast.power_watts == best
        assert decision.chosen.feasible
        assert decision.table[0] == decision.chosen
    assert all(each.feasible or each.rejection for each in decision.table)
    assert len({each.pool for each in decision.table}) == len(decision.table) == len(pools)
    feasible = [each.feasible for each in decision.table]
    assert feasible == sorted(feasible, reverse=True)


@given(POOLS, st.integers(0, 2**32), st.sampled_from([None, 2]))
def test_the_order_of_the_input_changes_nothing(
    specs: list[tuple[int, int, bool, int]], seed: int, size: int | None
) -> None:
    pools, forecaster = world(specs)
    promises = tuple(
        Reservation(f"r{index}", each.name, 1 + index % 2, 1) for index, each in enumerate(pools) if index % 3
    )
    random = Random(seed)

    def shuffled(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(random.sample(items, len(items)))

    other = Fleet(
        shuffled(tuple(replace(each, nodes=shuffled(each.nodes)) for each in pools)), shuffled(promises)
    )
    wanted: Demand = demand(tensor_parallel_size=size)
    assert place(wanted, other, forecaster) == place(wanted, Fleet(pools, promises), forecaster)
    if pools:
        assignment = Assignment("p0", 1, 0)
        assert reaffirm(wanted, other, forecaster, assignment) == reaffirm(
            wanted, Fleet(pools, promises), forecaster, assignment
        )


def test_obstacles_are_ordered_by_how_hard_they_are_to_remove() -> None:
    """A pool that only lacks room is closer than one that is too slow, and that closer than one too small."""
    forecaster = FakeForecaster(
        {
            ("NVIDIA-L4", 1): forecast(71, 30),
            ("NVIDIA-A30", 1): forecast(139, 90),
            ("NVIDIA-T4", 1): OUT_OF_RANGE,
        },
        memories={("NVIDIA-A10", 1): TOO_LARGE, ("NVIDIA-L4", 1): FITTING},
    )
    pools = (
        pool("full", node("a", 1, gpus_held=1)),
        pool("slow", node("b", 1, label="NVIDIA-A30"), label="NVIDIA-A30"),
        pool("refused", node("c", 1, label="NVIDIA-T4"), label="NVIDIA-T4"),
        pool("small", node("d", 1, label="NVIDIA-A10"), label="NVIDIA-A10"),
        replace(L4, name="broken", problem=Problem("GpuShared", "shared: turn it off")),
        replace(L4, name="excluded", labels={}),
    )
    wanted = demand(pool_selector=(LabelRequirement("wattkeeper.dev/gpu", "Exists"),))
    decision = place(wanted, Fleet(pools), forecaster)
    assert [each.pool for each in decision.table] == [
        "full",
        "slow",
        "refused",
        "small",
        "broken",
        "excluded",
    ]
    assert Obstacle.FULL < Obstacle.SLA < Obstacle.PREDICTION < Obstacle.MEMORY < Obstacle.POOL
