"""The optimum of a shared GPU against every way to evict, and against the simple rule for one model."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sim.traces import STEPS, trace
from wattkeeper.core.break_even import Accounting
from wattkeeper.sim import events, renewal
from wattkeeper.sim.events import Rules
from wattkeeper.sim.hardware import hardware
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.renewal import LoneModel
from wattkeeper.sim.residents import SharedModel
from wattkeeper.sim.shared_optimum import optimum

LOADERS = [hardware("H100"), hardware("H100", loader="fast"), hardware("H100", weight_bytes=60e9)]
FEW = st.lists(st.tuples(st.floats(1, 2000), st.floats(0, 60)), min_size=0, max_size=4)


def requests(models: list[SharedModel]) -> list[tuple[float, float, int]]:
    return sorted(
        (float(at), float(service), i)
        for i, model in enumerate(models)
        for chunk in model.trace.chunks()
        for at, service in zip(chunk.arrivals, chunk.services, strict=True)
    )


def every_way(models: list[SharedModel], horizon: float) -> float:
    """The least energy (J) over all choices of idle periods in which to evict."""
    periods: list[tuple[float, set[int]]] = []  # idle seconds, and who is requested next
    busy, end = 0.0, None
    for at, service, i in requests(models):
        if end is None or at > end:
            periods.append((at - (end or 0.0), set()))
        busy += max(0.0, min(at + service, horizon) - max(at, end or 0.0))
        periods[-1][1].add(i)
        end = max(end or 0.0, at + service)
    figures = models[0].hardware.figures
    last = horizon - (end or 0.0)
    best = float("inf")
    for choice in itertools.product((True, False), repeat=max(0, len(periods) - 1)):
        loaded: set[int] = set()
        joules = 0.0
        for (idle, who), evict in zip(periods, (True, *choice), strict=True):
            loaded = set() if evict else loaded
            joules += idle * (figures.bare_watts if evict else figures.context_watts)
            joules += sum(models[i].hardware.load_joules(Accounting.CORRECTED) for i in who - loaded)
            loaded = loaded | who
        best = min(best, joules + busy * figures.context_watts + max(0.0, last) * figures.bare_watts)
    return best


@settings(max_examples=60)
@given(drawn=st.lists(FEW, min_size=1, max_size=3))
def test_no_way_to_evict_is_cheaper(drawn: list[list[tuple[float, float]]]) -> None:
    models = [
        SharedModel(f"m{i}", trace(steps), LOADERS[i], ("gpu-0",)) for i, steps in enumerate(drawn) if steps
    ]
    if not models:
        return
    horizon = 20_000.0
    found = optimum(models, Accounting.CORRECTED, horizon)
    assert found is not None
    assert found.energy_wh * 3600 == pytest.approx(every_way(models, horizon))
    group = events.simulate(models, Rules(Policy(Kind.BREAK_EVEN), Accounting.CORRECTED, horizon))
    assert found.energy_wh <= group.energy_wh + 1e-6
    assert found.ledger.service_joules == pytest.approx(group.ledger.service_joules)


@given(steps=STEPS)
def test_one_model_alone_is_the_simple_rule(steps: list[tuple[float, float]]) -> None:
    horizon = trace(steps).horizon(sum(pause for pause, _ in steps) + 60)
    model = SharedModel("m", trace(steps), LOADERS[0], ("gpu-0",))
    found = optimum([model], Accounting.CORRECTED, horizon)
    lone = LoneModel("m", model.trace, model.hardware)
    (simple,) = renewal.simulate(lone, [Policy(Kind.OPTIMUM)], Accounting.CORRECTED, horizon)
    assert found is not None and found.energy_wh == pytest.approx(simple.energy_wh)


def test_it_is_not_known_for_models_that_share_in_part() -> None:
    models = [
        SharedModel("one", trace([(1, 1)]), LOADERS[0], ("a",)),
        SharedModel("two", trace([(1, 1)]), hardware("H100", gpus=2), ("a", "b")),
    ]
    assert optimum(models, Accounting.CORRECTED, 100.0) is None
