"""The fleet estimate: seed 002's figures from its inputs, and its published rows as they are in the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattkeeper.sim.fleet_estimate import (
    ALWAYS_ON_WH,
    PUBLISHED,
    Inputs,
    Range,
    estimate,
    saved_percent,
    tax_share_saved,
    with_inputs,
)


def test_the_seeds_figures() -> None:
    found = estimate()
    # 3.76 M GPUs that idle 35 % of 8,760 h at 40 W: 461.1, published as 462.
    assert found.base.gwh == pytest.approx(3.76e6 * 0.35 * 40 * 8760 / 1e9)
    assert found.base.gwh == pytest.approx(462, rel=0.002)
    assert found.base.co2_kilotonnes == pytest.approx(180, rel=0.002)
    assert found.least.gwh == pytest.approx(92, abs=0.5)
    assert found.most.gwh == pytest.approx(1745, abs=0.5)


def test_each_input_alone() -> None:
    found = estimate()
    for name in ("gpus", "tax_watts"):
        low, high = found.alone[name]
        each: Range = getattr(found.inputs, name)
        assert low.gwh / found.base.gwh == pytest.approx(each.low / each.base)
        assert high.gwh / found.base.gwh == pytest.approx(each.high / each.base)
    busy, idle = found.alone["utilisation"]
    assert busy.gwh > found.base.gwh > idle.gwh  # the low value means more idle time
    for year in found.alone["carbon_kg_per_kwh"]:
        assert year.gwh == found.base.gwh


def test_a_fleet_of_ones_own() -> None:
    exact = with_inputs({"gpus": Range(100, 100, 100), "utilisation": Range(0.5, 0.5, 0.5)})
    found = estimate(exact)
    assert found.base.gwh == pytest.approx(100 * 0.5 * 40 * 8760 / 1e9)
    assert found.alone["gpus"][0] == found.alone["gpus"][1] == found.base


@pytest.mark.parametrize(
    "values", [(2, 1, 3), (1, 2, 1), (-1, 0, 1), (0, 1, float("inf")), (0, float("nan"), 1)]
)
def test_ranges_that_make_no_sense_are_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError):
        Range(*values)


def test_more_than_always_busy_is_refused() -> None:
    with pytest.raises(ValueError, match="utilisation"):
        Inputs(utilisation=Range(0.5, 0.6, 1.1))


@pytest.mark.data
def test_the_published_rows_are_those_of_the_data(data_dir: Path) -> None:
    text = (data_dir / "parking-tax" / "published_scheduler_results.json").read_text()
    data = [rows for rows in json.loads(text).values() if "always_on" in rows]
    assert len(data) == len(PUBLISHED)
    keys = [*(f"ttl_{m}min" for m in (1, 2, 5, 10, 15, 30, 60)), "breakeven_standard", "breakeven_fast"]
    for rows, published in zip(data, PUBLISHED.values(), strict=True):
        assert rows["always_on"]["total_energy_wh"] == pytest.approx(ALWAYS_ON_WH)
        for key, row in zip(keys, published, strict=True):
            assert row.energy_wh == pytest.approx(rows[key]["total_energy_wh"], abs=0.006), key
            assert row.cold_starts == rows[key]["cold_starts"], key


def test_what_a_policy_takes_off() -> None:
    low = {row.policy: row for row in PUBLISHED["low (5 requests/h)"]}
    assert saved_percent(low["T*"]) == pytest.approx(18.1, abs=0.05)
    assert tax_share_saved(low["T*"]) == pytest.approx(0.442, abs=0.001)
