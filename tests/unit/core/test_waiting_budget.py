"""The budget for waiting: kept on long traces of every kind."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from wattkeeper.core.waiting_budget import (
    DAY,
    WaitingBudget,
    from_plain,
    note_request,
    to_plain,
    waiting_timeout_seconds,
)


def poisson(rng: random.Random, days: float) -> Iterator[float]:
    at = 0.0
    while (at := at + rng.expovariate(5 / 3600)) < days * DAY:
        yield at


def bursts(rng: random.Random, days: float) -> Iterator[float]:
    at = 0.0
    while at < days * DAY:
        at += rng.expovariate(1 / 7200)
        for _ in range(rng.randint(1, 40)):
            at += rng.expovariate(1 / 30)
            yield at


def diurnal(rng: random.Random, days: float) -> Iterator[float]:
    at = 0.0
    while (at := at + rng.expovariate(20 / 3600)) < days * DAY:
        if rng.random() < max(0.02, math.sin(2 * math.pi * at / DAY)):
            yield at


def pareto(rng: random.Random, days: float) -> Iterator[float]:
    at = 0.0
    while (at := at + 60 * rng.paretovariate(1.2)) < days * DAY:
        yield at


def periodic(rng: random.Random, days: float) -> Iterator[float]:
    for n in range(int(days * DAY / 900)):
        yield 900.0 * n + rng.uniform(0, 20)


@pytest.mark.parametrize("trace", [poisson, bursts, diurnal, pareto, periodic])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_no_more_than_the_share_waits(trace: type, share: float) -> None:
    rng = random.Random(f"{trace.__name__} {share}")
    arrivals = list(trace(rng, 21))
    budget, delayed = note_request(WaitingBudget(share), arrivals[0], None, False), 0
    for before, at in pairwise(arrivals):
        timeout = max(270.5, waiting_timeout_seconds(budget, before)) if budget.may_evict else math.inf
        waits = at - before > timeout
        delayed += waits
        budget = note_request(budget, at, at - before, waits)
    assert delayed / len(arrivals) <= share + 0.001 + 1.0 / len(arrivals)
    if share == 0.2 and trace is poisson:
        assert delayed > 0.05 * len(arrivals), "a budget that is never spent saves nothing"


def test_the_timeout_is_the_gap_that_the_budget_has_no_room_for() -> None:
    budget = WaitingBudget(0.5)
    gaps = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0]
    at = 0.0
    for gap in gaps:
        at += gap
        budget = note_request(budget, at, gap, False)
    # Four of eight may wait: the fifth largest gap, rounded up by 5 % at most.
    assert 80.0 <= waiting_timeout_seconds(budget, at) <= 80.0 * 1.05
    # A week later nothing is known any more, and caution rules.
    assert waiting_timeout_seconds(budget, at + 9 * DAY) == 1800.0


def test_with_few_requests_caution_rules() -> None:
    budget = note_request(WaitingBudget(0.05), 100.0, None, False)
    assert waiting_timeout_seconds(budget, 100.0) == 1800.0
    assert budget.may_evict
    budget = note_request(budget, 4000.0, 3900.0, True)
    assert not budget.may_evict
    assert waiting_timeout_seconds(budget, 4000.0) >= 3900.0


def test_tokens_are_earned_up_to_a_cap_and_the_memory_is_bounded() -> None:
    budget = WaitingBudget(0.5)
    for n in range(20_000):
        budget = note_request(budget, 100.0 * n, 90.0 + n % 700, False)
    assert budget.tokens == pytest.approx(0.5 * 3 * 864, rel=0.5)
    plain = json.loads(json.dumps(to_plain(budget)))
    assert len(json.dumps(plain)) < 10_000
    again = from_plain(plain, 0.5)
    assert to_plain(again) == plain
    assert waiting_timeout_seconds(again, 2e6) == waiting_timeout_seconds(budget, 2e6)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="maxDelayedRequests"):
        WaitingBudget(share)


@pytest.mark.parametrize("plain", [{}, {"days": [[1]], "tokens": 1}, {"days": None, "tokens": 1}])
def test_a_budget_of_another_form_is_refused(plain: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        from_plain(plain, 0.05)
