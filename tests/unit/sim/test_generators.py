"""Generated arrivals: in order, seeded, of the rate that was asked for, and in chunks of bounded size."""

from __future__ import annotations

import numpy as np
import pytest

from wattkeeper.sim.arrivals import CHUNK_REQUESTS, DAY
from wattkeeper.sim.generators import (
    PROCESSES,
    Diurnal,
    Lognormal,
    Mmpp,
    Pareto,
    Periodic,
    Poisson,
    Process,
    check,
    generate,
)


def arrivals(process: Process, days: float, seed: int = 1) -> np.ndarray:
    chunks = list(generate("t", process, days * DAY, seed=seed).chunks())
    assert max(len(chunk.arrivals) for chunk in chunks) <= 4 * CHUNK_REQUESTS
    return np.concatenate([chunk.arrivals for chunk in chunks])


@pytest.mark.parametrize("kind", PROCESSES)
def test_any_process_is_in_order_seeded_and_ends_at_the_horizon(kind: str) -> None:
    process = PROCESSES[kind]()
    one, again, other = (arrivals(process, 20, seed) for seed in (1, 1, 2))
    assert (one == again).all() and len(one) > 100
    assert len(one) != len(other) or (one != other).any()
    assert (np.diff(one) >= 0).all() and one[0] >= 0 and one[-1] < 20 * DAY
    assert one[-1] > 18 * DAY


@pytest.mark.parametrize(
    ("process", "per_day"),
    [
        (Poisson(30), 720),
        (Mmpp(2, 60, 900, 600), 24 * (2 * 0.6 + 60 * 0.4)),
        (Diurnal(30, night=0.2), 720 * (0.2 + 0.8 / np.pi)),
        (Diurnal(30, night=1.0, weekend=0.0), 720 * 5 / 7),
        (Lognormal(600, 1.0), 144),
        (Periodic(900, 20), 96),
    ],
)
def test_the_rate_is_the_one_asked_for(process: Process, per_day: float) -> None:
    assert len(arrivals(process, 700)) / 700 == pytest.approx(per_day, rel=0.03)


def test_services_are_exponential_and_do_not_change_the_arrivals() -> None:
    short, long = (
        np.concatenate(
            [chunk.services for chunk in generate("t", Poisson(60), 50 * DAY, mean_service=s).chunks()]
        )
        for s in (10.0, 20.0)
    )
    assert short.mean() == pytest.approx(10.0, rel=0.05) and long == pytest.approx(2 * short)


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (Poisson(0.0), "per_hour must be above 0"),
        (Poisson(float("nan")), "per_hour"),
        (Diurnal(10, night=1.5), "night must be from 0 to 1"),
        (Mmpp(quiet=-1.0), "quiet must be not negative"),
        (Periodic(10, 6), "jitter must be at most half of every"),
        (Pareto(alpha=0.0), "alpha must be above 0"),
    ],
)
def test_figures_that_make_no_sense_are_refused(process: Process, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(process)
