"""The bank of quiet-and-busy processes: against other ways to compute it, and what it learns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import expm

from wattkeeper.core import traffic_states as states
from wattkeeper.core.adaptive import EXPECTED, GRID, cheapest

PROCESSES = list(itertools.product(states.QUIET_RATES, states.BUSY_RATES, states.PERIODS))


def generator(process: int) -> tuple[np.ndarray, np.ndarray]:
    """D₀ and the rates of one process."""
    quiet, busy, period = PROCESSES[process]
    to_busy, to_quiet = states.BUSY_SHARE / period, (1 - states.BUSY_SHARE) / period
    rates = np.array([quiet, busy])
    return np.array([[-to_busy, to_busy], [to_quiet, -to_quiet]]) - np.diag(rates), rates


@pytest.mark.parametrize("process", [0, 13, 26])
@pytest.mark.parametrize("time", [0.0, 0.3, 2.0, 40.0])
def test_silence_is_the_matrix_exponential(process: int, time: float) -> None:
    without_request, rates = generator(process)
    assert states.silence(time)[:, :, 0, process] == pytest.approx(expm(without_request * time), abs=1e-12)
    ended = states.until_request(time)[:, :, 0, process]
    assert ended == pytest.approx(expm(without_request * time) * rates, abs=1e-12)


def test_serving_spaces_the_requests_evenly() -> None:
    without_request, rates = generator(5)
    third = expm(without_request * 0.2)
    expected = third @ np.diag(rates) @ third @ np.diag(rates) @ third
    assert states.while_serving(0.6, 3)[:, :, 0, 5] == pytest.approx(expected)
    assert states.while_serving(0.0, 1)[:, :, 0, 5] == pytest.approx(np.eye(2))
    # Beyond some number more requests are no more evidence, and nothing overflows.
    assert np.isfinite(states.while_serving([1e6, 0.1], [10**6, 10**6])).all()


@pytest.mark.parametrize("process", [0, 13, 26])
@pytest.mark.parametrize("timeout", [0, 9, 20, 26])
def test_expected_costs_are_the_integral(process: int, timeout: int) -> None:
    without_request, _ = generator(process)

    def idle(time: float, state: int) -> float:
        return float(expm(without_request * time)[state].sum())

    for state in (0, 1):
        end = min(float(GRID[timeout]), 300.0)
        kept = quad(idle, 0, end, args=(state,), limit=200)[0]
        reload = 0.0 if np.isinf(GRID[timeout]) else idle(end, state)
        assert EXPECTED[state, process, timeout] == pytest.approx(kept + reload, abs=1e-3)


def timeouts(gaps: list[float], busy: float = 0.0, requests: int = 1) -> list[float]:
    belief, found = states.initial(), []
    for gap in gaps:
        heard = states.heard(belief, busy, requests)
        found.append(float(cheapest(states.foretell(belief, heard, EXPECTED))))
        belief = states.learn(belief, heard, gap)
    return found


def test_it_keeps_longer_in_busy_times_than_in_quiet_ones() -> None:
    bursts = [*([0.1] * 10), 9.0, 9.0] * 5
    found = timeouts([*bursts, *([0.1] * 10), 9.0, 9.0, 0.1, 0.1, 0.1])
    assert 0.2 < found[69] < 1.0  # busy: the next request should be near, but not for long
    assert found[72] < found[69]  # quiet
    assert found[74] > 0.2  # busy again, after two short gaps


def test_requests_while_serving_are_evidence_of_a_busy_time() -> None:
    single, several = timeouts([9.0, 9.0]), timeouts([9.0, 9.0], busy=0.3, requests=4)
    assert several[1] > single[1]


@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e9])
def test_no_gap_breaks_it(gap: float) -> None:
    belief = states.initial()
    for _ in range(2000):
        belief = states.learn(belief, states.heard(belief, 0.0, 1), gap)
    assert np.isfinite(belief.scores).all() and belief.states.sum(axis=0) == pytest.approx(1.0)
