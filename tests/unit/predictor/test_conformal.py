"""Bounds cover what they claim, by group."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper_predictor.conformal import coverage_by_group, factor_at, supported_percent, upper_factors


def test_factors_start_at_one_and_never_fall() -> None:
    factors = upper_factors({"a": [-0.5, -0.4, 0.1], "b": [0.0, 0.2]})
    assert len(factors) == 50
    assert factors[0] >= 1.0
    assert factors == sorted(factors)


def test_too_few_groups_take_the_largest_of_their_own() -> None:
    factors = upper_factors({"a": [0.01] * 20, "b": [0.5] * 20})
    assert factor_at(factors, 90) == pytest.approx(math.exp(0.5))
    assert supported_percent(8) == 88
    assert supported_percent(36) == 97


def test_confidence_is_rounded_up() -> None:
    factors = upper_factors({str(i): [i / 100] for i in range(100)})
    assert factor_at(factors, 89.2) == factor_at(factors, 90)
    assert factor_at(factors, 90.0) < factor_at(factors, 90.1)


def test_a_new_group_is_covered_as_often_as_claimed() -> None:
    """Simulated: groups with their own bias; a new group's runs stay below in 90 % of draws."""
    random = np.random.default_rng(1)
    covered = []
    for _ in range(400):
        bias = random.normal(0, 0.2, 31)
        runs = {str(i): (bias[i] + random.normal(0, 0.05, 10)).tolist() for i in range(30)}
        new = (bias[30] + random.normal(0, 0.05, 10)).tolist()
        factor = factor_at(upper_factors(runs), 90)
        covered.append(coverage_by_group({"new": new}, factor)["new"])
    assert 0.88 <= float(np.mean(covered)) <= 0.97


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.lists(st.floats(-3, 3), min_size=1, max_size=8),
        min_size=1,
        max_size=12,
    )
)
def test_the_highest_confidence_covers_nearly_all_that_was_seen(groups: dict[str, list[float]]) -> None:
    factor = factor_at(upper_factors(groups), 99)
    assert all(share == 1.0 for share in coverage_by_group(groups, factor).values())
