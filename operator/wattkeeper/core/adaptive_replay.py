"""The adaptive timeout over many gaps at once, for simulations: the same timeouts as gap by gap.

What the experts propose depends on the gaps alone, not on what was decided before, so their tables are linear
recurrences over the gaps; only the guard goes step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from wattkeeper.core import traffic_replay
from wattkeeper.core.adaptive import (
    CLASSES,
    FADE_LOSS,
    FADE_RHYTHM,
    FADE_STEADY,
    GRID,
    HOURS,
    RHO,
    SHRINK,
    SLACK,
    AdaptiveState,
    Table,
    cheapest,
    cost,
    guard,
)
from wattkeeper.core.traffic_states import Floats

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Idle periods in their order, all ended by a request. Times in T*, `idle_since` in seconds."""

    gaps: Floats
    idle_since: Floats
    busy: Floats  # of serving before each
    requests: Integers  # served then


def replay(state: AdaptiveState, periods: Gaps) -> tuple[Floats, AdaptiveState]:
    """The timeout (T*) of each idle period, and the state after them."""
    gaps = periods.gaps
    if not len(gaps):
        return np.empty(0), state
    if not (np.isfinite(gaps).all() and gaps.min() >= 0):
        raise ValueError("gaps must be finite numbers of T*, none negative")
    costs = np.where(gaps[:, None] <= GRID, gaps[:, None], GRID + 1.0)
    sizes, last_gaps = _size_classes(state.last_gaps, gaps)
    hours = ((periods.idle_since // 3600).astype(np.int64)) % HOURS

    sums, counts, steady = _filter(state.steady, costs, FADE_STEADY)
    means = sums / counts[:, None]
    by_hour, hour_tables = _drawn(means, state.hours, hours, costs)
    by_size, class_tables = _drawn(means, state.classes, sizes, costs)
    foretold, traffic = traffic_replay.replay(state.traffic, gaps, periods.busy, periods.requests)
    proposals = np.ones((len(gaps), 4))
    for expert, curve in enumerate((means, by_hour + by_size + foretold, foretold), start=1):
        proposals[:, expert] = cheapest(curve)

    by_break_even = np.where(gaps <= 1.0, gaps, 2.0)
    own = np.where(gaps[:, None] <= proposals, gaps[:, None], proposals + 1.0)
    losses = np.empty((len(gaps) + 1, 4))
    losses[0] = state.losses
    losses[1:] = _recur(own - by_break_even[:, None], FADE_LOSS, losses[0])
    leaders = np.argmin(losses[:-1], axis=1)
    if not state.last_gaps:
        leaders[0] = 0
    wanted = proposals[np.arange(len(gaps)), leaders]
    timeouts, spent, spent_break_even = _guarded(state, wanted, gaps)
    return timeouts, AdaptiveState(
        steady,
        hour_tables,
        class_tables,
        traffic,
        tuple(losses[-1].tolist()),
        last_gaps,
        spent,
        spent_break_even,
    )


def _guarded(state: AdaptiveState, wanted: Floats, gaps: Floats) -> tuple[Floats, float, float]:
    """The timeouts within the guard, and what they and T* cost in all.

    The guard seldom binds: all is done at once up to where it does, and step by step from there.
    """
    costs = np.where(gaps <= wanted, gaps, wanted + 1.0)
    own = np.cumsum(np.concatenate([[state.cost], costs]))
    break_even = np.cumsum(np.concatenate([[state.cost_break_even], np.where(gaps <= 1.0, gaps, 2.0)]))
    most = np.maximum(1.0, RHO * (break_even[:-1] + 1.0) + SLACK - 1.0 - own[:-1])
    too_long = (wanted > 1.0) & (wanted > most)
    too_short = (wanted < 1.0) & (own[:-1] + wanted + 1.0 > RHO * (break_even[:-1] + wanted) + SLACK)
    bound = np.flatnonzero(too_long | too_short)
    if not len(bound):
        return wanted, float(own[-1]), float(break_even[-1])
    first = int(bound[0])
    timeouts, spent, spent_break_even = wanted.copy(), float(own[first]), float(break_even[first])
    remaining = zip(wanted[first:].tolist(), gaps[first:].tolist(), strict=True)
    for i, (timeout, gap) in enumerate(remaining, start=first):
        timeouts[i] = allowed = guard(timeout, spent, spent_break_even)
        spent += cost(allowed, gap)
        spent_break_even += cost(1.0, gap)
    return timeouts, spent, spent_break_even


def _recur(values: Floats, fade: float, before: Floats) -> Floats:
    """y[i] = values[i] + fade · y[i − 1] along the first axis; `before` is y[−1]."""
    result: Floats = lfilter([1.0], [1.0, -fade], values, axis=0, zi=(fade * before)[None])[0]
    return result


def _filter(table: Table, costs: Floats, fade: float) -> tuple[Floats, Floats, Table]:
    """Discounted costs and numbers of gaps ahead of each gap, and the table after all."""
    after = _recur(costs, fade, table.costs)
    gaps = _recur(np.ones((len(costs), 1)), fade, np.array([table.gaps]))[:, 0]
    return (
        np.vstack([table.costs, after[:-1]]),
        np.concatenate([[table.gaps], gaps[:-1]]),
        Table(after[-1], float(gaps[-1])),
    )


def _drawn(
    general: Floats, tables: Mapping[int, Table], keys: Integers, costs: Floats
) -> tuple[Floats, Mapping[int, Table]]:
    """The general means drawn towards those of each gap's key; a key below 0 has none."""
    learnt, result = dict(tables), general.copy()
    for key in np.unique(keys[keys >= 0]).tolist():
        chosen = np.flatnonzero(keys == key)
        known = tables.get(key)
        table = known or Table(np.zeros(len(GRID)), 0.0)
        sums, gaps, learnt[key] = _filter(table, costs[chosen], FADE_RHYTHM)
        if known is None:  # nothing to draw towards yet
            sums, gaps, chosen = sums[1:], gaps[1:], chosen[1:]
        result[chosen] = (sums + SHRINK * general[chosen]) / (gaps[:, None] + SHRINK)
    return result, learnt


def _size_classes(last: tuple[float, ...], gaps: Floats) -> tuple[Integers, tuple[float, ...]]:
    """The class of the last three gaps ahead of each gap, −1 before there are any."""
    logs = np.concatenate([last, np.log2(np.maximum(gaps, 1e-6))])
    padded = np.concatenate([np.zeros(3), logs])
    # Positions of the gaps in `logs` are len(last) …; each looks at up to three before it.
    positions = np.arange(len(last), len(logs))
    counts = np.minimum(positions, 3)
    sums = padded[positions] * (counts >= 3)
    sums += padded[positions + 1] * (counts >= 2)
    sums += padded[positions + 2] * (counts >= 1)
    classes = np.clip(np.floor(sums / np.maximum(counts, 1) + 4), 0, CLASSES - 1)
    return np.where(counts > 0, classes, -1).astype(np.int64), tuple(logs[-3:].tolist())
