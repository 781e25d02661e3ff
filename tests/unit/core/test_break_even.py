"""T* and what it is made of."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.break_even import (
    ENOUGH_COLD_STARTS,
    Accounting,
    LoadObservation,
    break_even,
    group_break_even,
    load_cost,
    observe_load,
    together,
)
from wattkeeper.core.parking_catalogue import (
    FAST_LOAD_SECONDS,
    LOADERS,
    MEASURED,
    STANDARD_LOAD_SECONDS,
    Basis,
    Loader,
    board_slug,
    figures_for,
)
from wattkeeper.core.readings import Sample

QWEN_7B_BYTES = 15.2e9


@pytest.mark.parametrize(
    ("name", "tax", "standard", "fast"),
    [
        ("NVIDIA-H100-80GB-HBM3", 49.9, 270.54, 48.10),
        ("NVIDIA A100 80GB PCIe", 26.3, 427.76, 76.05),
        ("NVIDIA-L40S", 66.4, 189.76, 33.73),
    ],
)
def test_the_seeds_break_even_times(name: str, tax: float, standard: float, fast: float) -> None:
    figures = figures_for(name).figures
    assert figures.tax_watts == pytest.approx(tax)
    for seconds, expected in ((STANDARD_LOAD_SECONDS, standard), (FAST_LOAD_SECONDS, fast)):
        cost = load_cost(
            load_watts=figures.load_watts,
            bare_watts=figures.bare_watts,
            weight_bytes=1.0,
            loader=Loader("test", seconds, math.inf),
        )
        result = break_even(cost, figures.tax_watts)
        assert result.seconds == pytest.approx(expected, abs=0.006)
        assert result.rate_per_hour == pytest.approx(3600 / expected, rel=1e-3)


def test_the_loaders_are_anchored_at_the_seeds_model() -> None:
    assert LOADERS["standard"].seconds(QWEN_7B_BYTES) == pytest.approx(STANDARD_LOAD_SECONDS)
    assert LOADERS["fast"].seconds(QWEN_7B_BYTES) == pytest.approx(FAST_LOAD_SECONDS)
    # A model ten times as large takes longer with both.
    assert LOADERS["standard"].seconds(10 * QWEN_7B_BYTES) == pytest.approx(24 + 210)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED", "h100-80gb-hbm3"),
        ("Tesla-T4-SHARED", "t4"),
        ("A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA-L40S", "l40s"),
    ],
)
def test_board_slug(name: str, slug: str) -> None:
    assert board_slug(name) == slug


@pytest.mark.parametrize(
    ("name", "tdp", "basis", "tax", "load"),
    [
        ("NVIDIA-H100-80GB-HBM3", None, Basis.CATALOGUE, 49.9, 300),
        ("NVIDIA-H100-NVL", None, Basis.PRIOR, 49.9, 300),
        ("NVIDIA-A100-SXM4-80GB", None, Basis.PRIOR, 26.3, 250),
        # Whole tokens: L40 isn't an L40S, A10 no A100.
        ("NVIDIA-L40", 300.0, Basis.PRIOR, 21.3, 249.9),
        ("NVIDIA-A10", 150.0, Basis.PRIOR, 10.65, 124.95),
        ("NVIDIA-L4", None, Basis.PRIOR, 4.97, 300),
        ("NVIDIA-L4", -1.0, Basis.PRIOR, 4.97, 300),
    ],
)
def test_figures_for(name: str, tdp: float | None, basis: Basis, tax: float, load: float) -> None:
    entry = figures_for(name, tdp)
    assert entry.basis is basis
    assert entry.figures.tax_watts == pytest.approx(tax)
    assert entry.figures.load_watts == pytest.approx(load)


@given(tdp=st.floats(30, 1500))
def test_a_gpu_never_measured_parks_no_sooner_than_the_measured_ones(tdp: float) -> None:
    def seconds(name: str, watts: float | None = None) -> float:
        figures = figures_for(name, watts).figures
        return figures.load_watts / figures.tax_watts

    assert seconds("NVIDIA-Unheard-Of", tdp) >= max(seconds(f"NVIDIA-{name}") for name in MEASURED)


def observations(count: int, seconds: float = 30.0, joules: float = 300.0) -> list[LoadObservation]:
    return [LoadObservation(1000.0 * i, seconds, 5 * joules, joules) for i in range(count)]


def test_the_catalogue_speaks_until_enough_cold_starts_were_seen() -> None:
    def cost(seen: int) -> tuple[float, float, float]:
        result = load_cost(
            load_watts=300,
            bare_watts=71.8,
            weight_bytes=QWEN_7B_BYTES,
            loader=LOADERS["standard"],
            gpus=2,
            observed=observations(seen),
        )
        assert result.cold_starts == seen
        return result.seconds, result.total_joules, result.marginal_joules

    before = cost(ENOUGH_COLD_STARTS - 1)
    assert before == pytest.approx((45.0, 27_000.0, 228.2 * 45 * 2))
    # Measured: the paper's load power for the measured time, or what was drawn above bare idle.
    assert cost(ENOUGH_COLD_STARTS) == pytest.approx((30.0, 18_000.0, 300.0))


def test_one_slow_load_among_many_changes_nothing() -> None:
    seen = [*observations(6), LoadObservation(9e6, 1800.0, 1e6, 5e5)]
    cost = load_cost(load_watts=300, bare_watts=70, weight_bytes=1e9, loader=LOADERS["fast"], observed=seen)
    assert (cost.seconds, cost.marginal_joules) == (30.0, 300.0)


@pytest.mark.parametrize("accounting", list(Accounting))
def test_both_ways_of_counting_are_shown_whichever_binds(accounting: Accounting) -> None:
    cost = load_cost(
        load_watts=300,
        bare_watts=70,
        weight_bytes=1e9,
        loader=LOADERS["fast"],
        observed=observations(8),
        host_watts=100,
    )
    result = break_even(cost, 50.0, accounting)
    assert result.total_seconds == pytest.approx((300 + 100) * 30 / 50)
    assert result.marginal_seconds == pytest.approx((300 + 100 * 30) / 50)  # about a minute with the host
    assert result.seconds == (
        result.marginal_seconds if accounting is Accounting.MARGINAL else result.total_seconds
    )


def test_no_tax_no_eviction_and_groups_pay_each_reload() -> None:
    cost = load_cost(load_watts=300, bare_watts=70, weight_bytes=1e9, loader=LOADERS["fast"])
    assert break_even(cost, 0.0).seconds == math.inf
    assert break_even(cost, -3.0).seconds == math.inf
    one = break_even(cost, 50.0)
    assert group_break_even([one] * 4, 50.0) == pytest.approx(4 * one.seconds)


@pytest.mark.parametrize("field", ["load_watts", "weight_bytes"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_absurd_figures_are_refused_by_name(field: str, value: float) -> None:
    arguments = {"load_watts": 300.0, "bare_watts": 70.0, "weight_bytes": 1e9, field: value}
    with pytest.raises(ValueError, match=field):
        load_cost(loader=LOADERS["fast"], **arguments)


def samples(*pairs: tuple[float, float]) -> list[Sample]:
    return [Sample(watts, at) for at, watts in pairs]


def test_a_load_is_integrated_over_its_whole_time() -> None:
    seen = samples((99, 70), (100, 70), (110, 70), (120, 170), (130, 170), (131, 500))
    load = observe_load(seen, started_at=100, ready_at=130, bare_watts=70)
    assert load == LoadObservation(100, 30, 700 + 1200 + 1700, 3600 - 2100)
    assert together([load, load]) == LoadObservation(100, 30, 7200, 3000)


@pytest.mark.parametrize(
    "seen",
    [
        [],
        samples((110, 70)),
        samples((115, 70), (120, 170)),  # the start is missing
        samples((100, 70), (110, 70)),  # the end is missing
        samples((110, 70), (100, 70), (130, 70)),  # unsorted
        samples((100, 70), (100, 70), (130, 70)),  # doubled
        samples((100, math.nan), (130, math.nan)),
    ],
)
def test_a_load_seen_in_part_is_no_observation(seen: list[Sample]) -> None:
    assert observe_load(seen, started_at=100, ready_at=130, bare_watts=70) is None


@pytest.mark.data
def test_the_recorded_h100_load_costs_302_joules_above_bare_idle(data_dir: Path) -> None:
    trace = json.loads((data_dir / "parking-tax" / "h100_cold_start_traces.jsonl").read_text())
    seen = [
        Sample(row["power_w"], datetime.fromisoformat(row["timestamp"]).timestamp())
        for row in trace["samples"]
    ]
    start = seen[0].measured_at
    load = observe_load(seen, started_at=start, ready_at=start + trace["load_time_s"], bare_watts=70.746)
    assert load is not None
    assert load.marginal_joules == pytest.approx(302, abs=6)
    cost = load_cost(
        load_watts=300,
        bare_watts=71.8,
        weight_bytes=QWEN_7B_BYTES,
        loader=LOADERS["standard"],
        observed=[load] * ENOUGH_COLD_STARTS,
    )
    assert break_even(cost, 49.9, Accounting.MARGINAL).seconds == pytest.approx(6, abs=0.2)
