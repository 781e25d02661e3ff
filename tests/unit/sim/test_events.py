"""Event by event: the same as in arrays where both apply, groups as the operator has them, long loads."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sim.traces import DAY, STEPS, trace
from wattkeeper.core.break_even import Accounting, group_break_even
from wattkeeper.core.eviction import Action, FleetState, ModelState, decide
from wattkeeper.core.idleness import Idleness
from wattkeeper.core.parking_catalogue import Basis
from wattkeeper.core.parking_tax import HeldGpu, ParkingTax
from wattkeeper.core.witnesses import IdleMemory, Verdict, Witness
from wattkeeper.sim import events, renewal
from wattkeeper.sim.arrivals import from_arrays
from wattkeeper.sim.events import Rules
from wattkeeper.sim.hardware import hardware
from wattkeeper.sim.outcome import Outcome
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.renewal import LoneModel
from wattkeeper.sim.residents import Residence, Resident, SharedModel

H100 = hardware("H100")
BREAK_EVEN = Policy(Kind.BREAK_EVEN)
POLICIES = [
    Policy(Kind.NEVER),
    BREAK_EVEN,
    Policy(Kind.BREAK_EVEN, min_idle_seconds=600.0),
    Policy(Kind.FIXED, 0.0),
    Policy(Kind.ADAPTIVE),
    Policy(Kind.ADAPTIVE, max_delayed=0.1),
    Policy(Kind.FIXED, 60.0, max_delayed=0.3),
]


@settings(max_examples=25)
@given(steps=STEPS, accounting=st.sampled_from([Accounting.CORRECTED, Accounting.MARGINAL]))
def test_a_model_alone_is_the_same_in_arrays(
    steps: list[tuple[float, float]], accounting: Accounting
) -> None:
    requests = trace(steps)
    horizon = requests.horizon(sum(pause for pause, _ in steps) + 60) + 1000.0
    in_arrays = renewal.simulate(LoneModel("drawn", requests, H100), POLICIES, accounting, horizon)
    for policy, expected in zip(POLICIES, in_arrays, strict=True):
        model = SharedModel("drawn", requests, H100, ("gpu-0",))
        found = events.simulate([model], Rules(policy, accounting, horizon), profile=True)
        assert found.ledger.cold_starts == expected.ledger.cold_starts, policy.label
        assert found.ledger.delayed == expected.ledger.delayed
        assert found.energy_wh == pytest.approx(expected.energy_wh), policy.label
        assert found.ledger.service_joules == pytest.approx(expected.ledger.service_joules)
        assert found.profile is not None
        drawn = found.profile.watts.sum() * found.profile.step_seconds / 3600
        assert drawn == pytest.approx(found.energy_wh)


def share(*arrivals: list[float], gpus: list[tuple[str, ...]] | None = None) -> list[SharedModel]:
    """Models named m0, m1 … on one GPU unless said otherwise; each request takes 10 s."""
    held = gpus or [("gpu-0",)] * len(arrivals)
    return [
        SharedModel(f"m{i}", from_arrays(f"m{i}", at, [10.0] * len(at)), H100, on)
        for i, (at, on) in enumerate(zip(arrivals, held, strict=True))
    ]


def run(models: list[SharedModel], policy: Policy = BREAK_EVEN, **rules: Any) -> Outcome:
    accounting = rules.pop("accounting", Accounting.CORRECTED)
    return events.simulate(models, Rules(policy, accounting, rules.pop("horizon", 10_000.0), **rules))


def test_a_group_leaves_together_after_the_time_that_all_its_loads_are_worth() -> None:
    together = group_break_even([H100.break_even(Accounting.CORRECTED)] * 2, H100.tax_watts)
    assert together == pytest.approx(2 * 270.54, abs=0.01)
    # Both idle from 110 s on; the next request comes a moment before and after the group is due.
    for after, loads in ((together - 0.1, 2), (together, 2), (together + 0.1, 3)):
        found = run(share([0.0, 110.0 + after], [100.0]))
        assert found.ledger.cold_starts == loads
        last = together if loads == 2 else 270.54  # m0 came back alone
        assert found.ledger.kept_joules / 121.7 == pytest.approx(90 + after + last, abs=0.2)


def test_a_neighbour_at_work_keeps_the_gpu_and_nobody_leaves_it() -> None:
    busy = [float(at) for at in range(0, 10_000, 400)]
    found = run(share([0.0, 9_900.0], busy))
    assert found.ledger.cold_starts == 2  # the idle model stays, for leaving would save nothing
    apart = run(share([0.0, 9_900.0], busy), Policy(Kind.BREAK_EVEN, group=False))
    assert apart.ledger.cold_starts > 2  # by its own T* it leaves in vain
    assert apart.energy_wh > found.energy_wh


def test_only_what_is_loaded_counts_in_a_group() -> None:
    # m1 comes once; after both left, m0 comes back alone and is worth its own T* only.
    found = run(share([0.0, 2000.0, 2000.0 + 10 + 280], [5.0]))
    assert found.ledger.cold_starts == 4
    found = run(share([0.0, 2000.0, 2000.0 + 10 + 260], [5.0]))
    assert found.ledger.cold_starts == 3


def test_models_are_linked_through_gpus_that_others_hold() -> None:
    gpus = [("a",), ("a", "b"), ("b",)]
    models = share([0.0], [0.0], [0.0], gpus=gpus)
    models[1] = SharedModel("m1", models[1].trace, hardware("H100", gpus=2), ("a", "b"))
    found = run(models)
    # Four loads' worth of energy against two GPUs' tax.
    assert found.ledger.kept_joules / 121.7 == pytest.approx(2 * 2 * 270.54, rel=1e-3)
    assert found.always_on_wh == pytest.approx(2 * 121.7 * 10_000 / 3600)


def test_requests_wait_for_a_load_that_takes_time() -> None:
    found = run(share([100.0, 120.0, 144.9, 145.1]), loads_take_time=True)
    assert (found.ledger.cold_starts, found.ledger.delayed) == (1, 3)
    assert found.ledger.waited_seconds == pytest.approx(45 + 25 + 0.1)
    # Bare, 45 s at the load's power, 10.1 s of service, T* with the context, and bare again.
    hot = 10.1 + 270.54
    expected = 300 * 45 + 121.7 * hot + 71.8 * (10_000 - 45 - hot)
    assert found.energy_wh * 3600 == pytest.approx(expected, rel=1e-5)
    marginal = run(share([100.0]), loads_take_time=True, accounting=Accounting.MARGINAL)
    hot = 10 + marginal.break_even_seconds if marginal.break_even_seconds else math.nan
    expected = 71.8 * 10_000 + (300 - 71.8) * 45 + 49.9 * hot
    assert marginal.energy_wh * 3600 == pytest.approx(expected, rel=1e-5)


def test_a_load_on_a_hot_gpu_is_charged_what_it_takes_beyond_the_context() -> None:
    alone = run(share([0.0]), Policy(Kind.FIXED, 1e9), loads_take_time=True, horizon=1000.0)
    beside = run(share([0.0], [500.0]), Policy(Kind.FIXED, 1e9), loads_take_time=True, horizon=1000.0)
    assert (beside.energy_wh - alone.energy_wh) * 3600 == pytest.approx((300 - 121.7) * 45)


def test_a_load_that_the_horizon_cuts_is_charged_in_part() -> None:
    found = run(share([90.0]), loads_take_time=True, horizon=100.0)
    assert found.energy_wh * 3600 == pytest.approx(71.8 * 90 + 300 * 10)


def test_what_it_cannot_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="Corrected"):
        Rules(BREAK_EVEN, Accounting.TOTAL, DAY)
    with pytest.raises(ValueError, match="optimum"):
        Rules(Policy(Kind.OPTIMUM), Accounting.CORRECTED, DAY)
    models = share([0.0], [0.0])
    models[1] = SharedModel("m1", models[1].trace, hardware("A100"), ("gpu-0",))
    with pytest.raises(ValueError, match="gpu-0 is given different watts"):
        run(models)


@settings(max_examples=15)
@given(drawn=st.lists(STEPS, min_size=2, max_size=4), policy=st.sampled_from(POLICIES[1:4]))
def test_evictions_are_those_that_the_operator_decides(
    drawn: list[list[tuple[float, float]]], policy: Policy
) -> None:
    """At every eviction `core.eviction.decide` says Park for exactly the group, and a second before Hold."""
    models = [
        SharedModel(f"m{i}", trace(steps), H100, ("gpu-0",) if i < 3 else ("gpu-1",))
        for i, steps in enumerate(drawn)
    ]
    watched = _Watched(models, Rules(policy, Accounting.CORRECTED, 3 * DAY), profile=False)
    watched.run(None)
    for now, states, group in watched.evictions:
        parked = {d.model for d in decide(states, FLEET, now + 1e-3) if d.action is Action.PARK}
        # The model on the other GPU may be due at the same moment.
        assert {name for name in parked if (name == "m3") == ("m3" in group)} == group
        if all(now - (state.idleness.idle_since or 0.0) > 1.0 for state in states if state.name in group):
            before = decide(states, FLEET, now - 1.0)
            assert all(d.action is Action.HOLD for d in before if d.model in group)


EPOCH = 1.76e9  # an operator counts Unix seconds
TAX = ParkingTax(49.9, 49.9, 49.9, Basis.CATALOGUE, 71.8, 121.7, 0.0, True)
FLEET = FleetState(
    telemetry_healthy=True,
    held_gpus={name: HeldGpu(name, TAX) for name in ("gpu-0", "gpu-1")},
    at_rest={name: Witness(Verdict.IDLE, "at rest") for name in ("gpu-0", "gpu-1")},
)


class _Watched(events._Simulation):
    """Notes what an operator would have seen at each eviction."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.evictions: list[tuple[float, list[ModelState], set[str]]] = []

    def _evict(self, group: tuple[Resident, ...], now: float) -> None:
        loaded = [each for each in self._residents if each.residence is not Residence.PARKED]
        states = [
            ModelState(
                each.model.name,
                each.model.gpus[0],
                each.policy.rules,
                Idleness(
                    Verdict.BUSY if each.working else Verdict.IDLE,
                    None if each.working or each.idle_since is None else EPOCH + each.idle_since,
                    "Seen",
                    "seen",
                    True,
                    IdleMemory(),
                ),
                each.break_even,
                each.model.gpus,
            )
            for each in loaded
        ]
        self.evictions.append((EPOCH + now, states, {each.model.name for each in group}))
        super()._evict(group, now)
