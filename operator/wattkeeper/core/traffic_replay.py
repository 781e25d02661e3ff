"""Quiet and busy times over many gaps at once: `core/traffic_states.py` in blocks.

The belief after each gap is the one before it times a 2 × 2 matrix, process by process. Products within
blocks of gaps are computed for all blocks together, so that only every 32nd step waits for the one before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from wattkeeper.core import traffic_states
from wattkeeper.core.adaptive import EXPECTED
from wattkeeper.core.traffic_states import FADE, SIZE, TINY, Belief, Floats, apply, mean_costs, multiply

_BLOCK = 32


def replay(belief: Belief, gaps: Floats, busy: Floats, requests: NDArray[np.int64]) -> tuple[Floats, Belief]:
    """Mean cost of each timeout (n × timeouts) in each idle period, and the belief after the last."""
    serving = traffic_states.while_serving(busy, requests)
    steps = multiply(serving, traffic_states.until_request(gaps))
    largest = steps.max(axis=(0, 1))
    steps /= largest
    states = _states(belief.states, steps)
    after = apply(states, steps)
    chances = after[0] + after[1]
    evidence = np.log(np.maximum(chances * largest, TINY))
    scores = lfilter([1.0], [1.0, -FADE], evidence, axis=0, zi=(FADE * belief.scores)[None])[0]
    before = np.vstack([belief.scores, scores[:-1]])
    learnt = Belief(after[:, -1] / chances[-1], scores[-1] - scores[-1].max())
    return mean_costs(before, apply(states, serving), EXPECTED), learnt


def _states(first: Floats, steps: Floats) -> Floats:
    """States ahead of each step (2 × n × SIZE), each process' summing to 1."""
    count = steps.shape[2]
    blocks = -(-count // _BLOCK)
    padded = np.empty((2, 2, blocks * _BLOCK, SIZE))
    padded[:, :, :count] = steps
    padded[:, :, count:] = np.eye(2)[:, :, None, None]
    products = padded.reshape(2, 2, blocks, _BLOCK, SIZE)
    for i in range(1, _BLOCK):
        products[:, :, :, i] = multiply(products[:, :, :, i - 1], products[:, :, :, i])
    states = np.empty((2, blocks, _BLOCK, SIZE))
    states[:, 0, 0] = first
    for block in range(blocks - 1):
        ended = apply(states[:, block, 0], products[:, :, block, -1])
        states[:, block + 1, 0] = ended / (ended[0] + ended[1])
    states[:, :, 1:] = apply(states[:, :, :1], products[:, :, :, :-1])
    states /= states[0] + states[1]
    return states.reshape(2, -1, SIZE)[:, :count]
