from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.wording import counted, gib, latency, watts


@pytest.mark.parametrize(
    ("seconds", "shown", "upward"),
    [
        (0.0206, "20.6 ms", "20.6 ms"),
        (0.05, "50 ms", "50 ms"),
        (0.050001, "50 ms", "50.1 ms"),  # an upper bound just above an SLA of 50 ms doesn't look like it
        (0.0000123, "0.0123 ms", "0.0123 ms"),
        (0.9994, "999 ms", "1 s"),
        (0.9996, "1 s", "1 s"),
        (1.234, "1.23 s", "1.24 s"),
        (3600, "3600 s", "3600 s"),
    ],
)
def test_latency(seconds: float, shown: str, upward: str) -> None:
    assert latency(seconds) == shown
    assert latency(seconds, upward=True) == upward


@pytest.mark.parametrize(
    ("power", "shown", "upward"),
    [
        (71.0, "71 W", "71 W"),
        (70.96, "71 W", "71 W"),
        (201.34, "201 W", "202 W"),
        (2813.2, "2813 W", "2814 W"),
    ],
)
def test_watts(power: float, shown: str, upward: str) -> None:
    assert watts(power) == shown
    assert watts(power, upward=True) == upward


@given(st.floats(1e-6, 1e6))
def test_an_upper_bound_is_never_shown_below_itself(value: float) -> None:
    assert float(watts(value, upward=True).removesuffix(" W")) >= value * (1 - 1e-11)


def test_sizes_and_counts() -> None:
    assert gib(23_192_823_398) == "21.6 GiB"
    assert (counted(1, "pool"), counted(2, "pool"), counted(0, "node is", "nodes are")) == (
        "1 pool",
        "2 pools",
        "0 nodes are",
    )
