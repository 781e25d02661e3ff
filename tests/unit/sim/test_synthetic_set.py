"""The adaptive policy and the budget for waiting on two weeks of every kind of traffic.

The policy was designed on seeds 1 to 4 of these processes; what is asserted here comes from other seeds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import pytest

from wattkeeper.core.adaptive import RHO, SLACK
from wattkeeper.core.break_even import Accounting
from wattkeeper.sim.arrivals import DAY
from wattkeeper.sim.generators import (
    Diurnal,
    Lognormal,
    Mmpp,
    Pareto,
    Periodic,
    Poisson,
    Process,
    generate,
)
from wattkeeper.sim.hardware import Hardware, hardware
from wattkeeper.sim.outcome import Outcome
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.renewal import LoneModel, simulate

DESIGN_SEEDS = (1, 2, 3, 4)
HELD_OUT_SEEDS = (101, 102, 103, 104, 105)
SET: Mapping[str, Process] = {
    **{f"Poisson {rate}/h": Poisson(rate) for rate in (1, 2, 5, 10, 20, 30, 60)},
    "bursts 2 and 60/h": Mmpp(2, 60, 900, 600),
    "bursts 1 and 120/h": Mmpp(1, 120, 3600, 900),
    "bursts 5 and 40/h": Mmpp(5, 40, 1800, 1800),
    "diurnal, 10/h at noon": Diurnal(10),
    "diurnal, 30/h at noon": Diurnal(30),
    "weekdays, 20/h at noon": Diurnal(20, night=0.05, weekend=0.05),
    "weekdays, 60/h at noon": Diurnal(60, night=0.05, weekend=0.05),
    "lognormal, mean 6 min": Lognormal(360, 1.5),
    "lognormal, mean 15 min": Lognormal(900, 1.0),
    "Pareto 1.2": Pareto(60, 1.2),
    "Pareto 1.6": Pareto(120, 1.6),
    "every 15 min": Periodic(900, 20),
    "every hour": Periodic(3600, 60),
}
LENGTH = 14 * DAY
# H100 with the standard loader, and with loads of 52 s of its tax.
KINDS = {270: hardware("H100"), 52: hardware("H100", load_seconds=52 * 49.9 / 300)}
POLICIES = (Policy(Kind.BREAK_EVEN), Policy(Kind.OPTIMUM), Policy(Kind.ADAPTIVE))


@functools.cache
def outcomes(break_even: int, seed: int, name: str) -> list[Outcome]:
    trace = generate(name, SET[name], LENGTH, seed=(seed, list(SET).index(name)))
    return simulate(LoneModel(name, trace, KINDS[break_even]), POLICIES, Accounting.CORRECTED, LENGTH)


def closed_percent(break_even: int, seed: int, name: str) -> float:
    """How much of the gap between T* and the optimum the adaptive policy closes."""
    by_break_even, best, by_adaptive = (each.energy_wh for each in outcomes(break_even, seed, name))
    return 100 * (by_break_even - by_adaptive) / (by_break_even - best)


@pytest.mark.parametrize(("break_even", "asked"), [(270, 50.0), (52, 75.0)])
def test_it_closes_most_of_the_gap_on_seeds_it_was_not_designed_on(
    break_even: int, asked: float, record_property: pytest.RecordProperty
) -> None:
    closed = {(seed, name): closed_percent(break_even, seed, name) for seed in HELD_OUT_SEEDS for name in SET}
    mean = sum(closed.values()) / len(closed)
    record_property(f"gap closed at {break_even} s, percent", mean)
    assert mean >= asked, closed
    assert min(closed.values()) > -7.0, min(closed.items(), key=lambda each: each[1])


@pytest.mark.parametrize("name", SET)
def test_the_guard_s_bound_holds_on_every_trace(name: str) -> None:
    for break_even, figures in KINDS.items():
        for seed in HELD_OUT_SEEDS:
            by_break_even, best, by_adaptive = (
                policy_cost(each, figures) for each in outcomes(break_even, seed, name)
            )
            assert by_adaptive <= RHO * by_break_even + SLACK
            assert by_break_even <= 2 * best + 1e-6


def policy_cost(outcome: Outcome, figures: Hardware) -> float:
    """What a policy spends in loads and in idle contexts, in units of one load."""
    kept = outcome.ledger.kept_joules / figures.context_watts * figures.tax_watts
    return (kept + outcome.ledger.load_joules) / figures.load.total_joules


@pytest.mark.parametrize(("share", "days"), [(0.01, 7), (0.05, 7), (0.05, 14), (0.1, 7), (0.2, 14)])
def test_the_budget_for_waiting_is_met(share: float, days: int) -> None:
    policies = [Policy(Kind.BREAK_EVEN, max_delayed=share), Policy(Kind.ADAPTIVE, max_delayed=share)]
    spent = 0
    for index, (name, process) in enumerate(SET.items()):
        trace = generate(name, process, days * DAY, seed=(201, index))
        model = LoneModel(name, trace, KINDS[270])
        for found in simulate(model, policies, Accounting.CORRECTED, days * DAY):
            assert found.delayed_percent <= 100 * share + 0.5, (name, found.policy)
            spent += found.delayed_percent > 50 * share
    assert spent > len(SET)  # a budget that is never used saves nothing
