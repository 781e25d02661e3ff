"""Traces for the simulator's tests."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from wattkeeper.sim.arrivals import Trace, from_arrays

DAY = 86_400.0


def seed_trace(data_dir: Path, name: str) -> Trace:
    """`low` or `bursty`, of seed 002's published simulation."""
    with (data_dir / "parking-tax" / f"arrivals_{name}.csv").open() as file:
        rows = [(float(row["arrival_s"]), float(row["service_s"])) for row in csv.DictReader(file)]
    return from_arrays(name, *zip(*rows, strict=True))


def trace(steps: Sequence[tuple[float, float]], name: str = "drawn") -> Trace:
    """From the time since the arrival before, and the service."""
    at, arrivals = 0.0, []
    for pause, _ in steps:
        at += pause
        arrivals.append(at)
    return from_arrays(name, arrivals, [service for _, service in steps])


PAUSES = st.one_of(st.floats(0.1, 30), st.floats(30, 1200), st.floats(1200, 50_000), st.just(0.0))
STEPS = st.lists(st.tuples(PAUSES, st.floats(0, 60)), min_size=1, max_size=60)
