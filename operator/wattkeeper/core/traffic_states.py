"""Is this a quiet time or a busy one? Belief about the rate of requests, and the timeout that follows.

Traffic of one model often alternates between a few requests an hour and one a minute. Such traffic is a
Markov-modulated Poisson process with two states; its parameters aren't known, so a bank of 27 stands for
them, each weighed by how well it foretold the last gaps. An idle model in a busy state is kept, for the next
request is near; the longer it stays idle, the likelier the quiet state, which is when to evict.

Time is in units of T*. Each process has a quiet and a busy rate λ (requests per T*) and a mean period, after
which the next state is busy with a chance of 30 %. With D₀ = Q − diag(λ) the chances b of the states after t
without a request are b·exp(D₀t), and a request multiplies them by λ.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

QUIET_RATES, BUSY_RATES, PERIODS = (1 / 20, 1 / 7, 1 / 2.5), (1.0, 2.5, 6.0), (2.0, 6.0, 18.0)
BUSY_SHARE = 0.3
FADE = 0.5 ** (1 / 300)  # of a process' score, a gap
# Beyond these more evidence changes nothing, and numbers would vanish.
_LONGEST, _MOST_REQUESTS = 150.0, 8
TINY = 1e-290

_QUIET, _BUSY, _PERIOD = (
    np.array(values) for values in zip(*itertools.product(QUIET_RATES, BUSY_RATES, PERIODS), strict=True)
)
SIZE = len(_QUIET)
_RATES = np.stack([_QUIET, _BUSY])
_TO_BUSY, _TO_QUIET = BUSY_SHARE / _PERIOD, (1 - BUSY_SHARE) / _PERIOD
_LEAVE_QUIET, _LEAVE_BUSY = -_TO_BUSY - _QUIET, -_TO_QUIET - _BUSY  # the diagonal of D₀
_MIDDLE, _HALF = (_LEAVE_QUIET + _LEAVE_BUSY) / 2, (_LEAVE_QUIET - _LEAVE_BUSY) / 2
_ROOT = np.sqrt(_HALF**2 + _TO_BUSY * _TO_QUIET)


@dataclass(frozen=True, slots=True)
class Belief:
    """For each process: chances of its states at the last request, and its score (log, up to a constant)."""

    states: Floats  # 2 × SIZE, each column sums to 1
    scores: Floats  # SIZE


def initial() -> Belief:
    """Before the first request."""
    return Belief(np.repeat([[1 - BUSY_SHARE], [BUSY_SHARE]], SIZE, axis=1), np.zeros(SIZE))


def silence(durations: ArrayLike) -> Floats:
    """exp(D₀t) of every process for each of n durations: from × to × n × SIZE."""
    time = np.minimum(np.asarray(durations, dtype=np.float64), _LONGEST).reshape(-1, 1)
    slow, fast = np.exp((_MIDDLE + _ROOT) * time), np.exp((_MIDDLE - _ROOT) * time)
    mean, slope = (slow + fast) / 2, (slow - fast) / (2 * _ROOT)
    tilt = _HALF * slope
    return np.stack([mean + tilt, _TO_BUSY * slope, _TO_QUIET * slope, mean - tilt]).reshape(
        2, 2, *mean.shape
    )


def while_serving(busy: ArrayLike, requests: ArrayLike) -> Floats:
    """From the first of `requests` to the end of `busy` T* of serving; the others came evenly in between."""
    counts = np.minimum(np.asarray(requests, dtype=np.int64).reshape(-1), _MOST_REQUESTS)
    spaces = silence(np.asarray(busy, dtype=np.float64).reshape(-1) / counts)
    another = spaces * _RATES[:, None]
    for served in range(1, _MOST_REQUESTS):
        more = np.flatnonzero(counts > served)
        if not len(more):
            break
        spaces[:, :, more] = multiply(another[:, :, more], spaces[:, :, more])
    return spaces


def until_request(gaps: ArrayLike) -> Floats:
    """From the end of serving through an idle gap to the request that ended it."""
    chances: Floats = np.maximum(silence(gaps) * _RATES[:, None], TINY)
    return chances


def multiply(one: Floats, other: Floats) -> Floats:
    """Products of 2 × 2 matrices along the first two axes."""
    result = np.empty(np.broadcast_shapes(one.shape, other.shape))
    for i in (0, 1):
        for j in (0, 1):
            np.multiply(one[i, 0], other[0, j], out=result[i, j])
            result[i, j] += one[i, 1] * other[1, j]
    return result


def apply(states: Floats, chances: Floats) -> Floats:
    """Row vectors times matrices, process by process."""
    result: Floats = states[0] * chances[0] + states[1] * chances[1]
    return result


def mean_costs(scores: Floats, states: Floats, expected: Floats) -> Floats:
    """Mean cost of each timeout (n × timeouts) from scores (n × SIZE) and states (2 × n × SIZE)."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    quiet, busy = weights * states[0], weights * states[1]
    costs: Floats = quiet @ expected[0] + busy @ expected[1]
    costs /= (quiet + busy).sum(axis=1)[:, None]
    return costs


def expected_costs(grid: Floats) -> Floats:
    """Mean cost of each timeout from each state: ∫ P(still idle) up to it, and a reload if idle at it.

    2 × SIZE × timeouts. An infinite timeout's reload costs nothing, for no gap lasts as long.
    """
    idle = silence(grid).sum(axis=1)  # from × timeouts × SIZE
    matrix = np.empty((SIZE, 2, 2))
    matrix[:, 0, 0], matrix[:, 1, 1] = _LEAVE_QUIET, _LEAVE_BUSY
    matrix[:, 0, 1], matrix[:, 1, 0] = _TO_BUSY, _TO_QUIET
    kept = np.einsum("mij,jtm->itm", np.linalg.inv(matrix), idle - 1.0)
    costs: Floats = np.ascontiguousarray((kept + idle).transpose(0, 2, 1))
    return costs


def heard(belief: Belief, busy: float, requests: int) -> Floats:
    """States (2 × SIZE) after `busy` T* of serving `requests`, not normalised: the sums are their chance."""
    return apply(belief.states, while_serving(busy, requests)[:, :, 0])


def foretell(belief: Belief, states: Floats, expected: Floats) -> Floats:
    """Mean cost of each timeout in the idle period that begins with the `states` just `heard`."""
    costs: Floats = mean_costs(belief.scores[None], states[:, None], expected)[0]
    return costs


def learn(belief: Belief, states: Floats, gap: float) -> Belief:
    """The belief at the request that ended an idle gap; `states` as `heard` at its beginning."""
    states = apply(states, until_request(gap)[:, :, 0])
    chance = states.sum(axis=0)
    scores = belief.scores * FADE + np.log(np.maximum(chance, TINY))
    return Belief(states / chance, scores - scores.max())
