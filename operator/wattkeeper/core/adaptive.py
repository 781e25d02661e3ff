"""The adaptive timeout: learns from the gaps between requests how long to keep an idle model.

All is in units of T*: keeping a model idle for T* costs 1, loading it again costs 1. A timeout T on a gap g
costs c(T, g) = g if g ≤ T, else T + 1. Four experts propose a timeout after every gap:

* `break-even`: always 1. Never worse than twice the optimum.
* `steady`: the timeout that would have cost least over many gaps (half-life 1000).
* `rhythm`: the least of three mean costs together: by the hour of day, by the size of the last gaps (both of
  half-life 200), and what `states` foretells.
* `states`: the timeout that quiet and busy times call for (`core/traffic_states.py`), which knows most while
  there is little to learn from.

The one that lost least against T* so far is followed (`states` with a head start, once there was a gap),
within a guard: whatever the gaps, the whole cost stays within 1.02 times that of T*, plus 2 T*. With T*'s own
bound that is at most 2.04 times the optimum plus 2 T*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wattkeeper.core import traffic_states
from wattkeeper.core.traffic_states import SIZE, Belief, Floats

GRID: Floats = np.concatenate([[0.0], np.geomspace(0.02, 8.0, 25), [np.inf]])
LONGEST = 8.0  # no proposal beyond 8 T*

EXPERTS = ("break-even", "steady", "rhythm", "states")
FADE_STEADY, FADE_RHYTHM, FADE_LOSS = (0.5 ** (1 / half_life) for half_life in (1000, 200, 400))
_PSEUDO_GAPS = 5.0
SHRINK = 10.0  # gaps that an hour or a size class needs to weigh as much as the general table
HEAD_START = 3.0  # T*, of `states`
HOURS, CLASSES = 24, 9
# The guard: cost ≤ RHO · cost of T* + SLACK.
RHO, SLACK = 1.02, 2.0


def cost(timeout: float, gap: float) -> float:
    """What a timeout costs on a gap, both in T*, in units of one reload."""
    return gap if gap <= timeout else timeout + 1.0


def _prior_table() -> Floats:
    """Mean cost of each timeout on the grid if gaps were log-uniform on [1/30, 30]."""
    low, high = 1 / 30, 30.0
    ends = np.clip(GRID, low, high)
    kept = ends - low  # ∫ g · dg/g up to the timeout
    evicted = np.log(high / ends)
    reload = np.where(np.isinf(GRID), 0.0, GRID + 1.0)
    table: Floats = (kept + reload * evicted) / math.log(high / low)
    return table


_PRIOR = _prior_table()
EXPECTED: Floats = traffic_states.expected_costs(GRID)


@dataclass(frozen=True, slots=True)
class Table:
    """Discounted cost of each timeout on the grid, and how many gaps it stands for."""

    costs: Floats
    gaps: float

    def add(self, costs: Floats, fade: float) -> Table:
        return Table(self.costs * fade + costs, self.gaps * fade + 1.0)


@dataclass(frozen=True, slots=True)
class AdaptiveState:
    """What was learnt of one model. Arrays are never changed in place."""

    steady: Table
    hours: Mapping[int, Table]
    classes: Mapping[int, Table]
    traffic: Belief
    losses: tuple[float, ...]  # discounted, of each expert against T*
    last_gaps: tuple[float, ...]  # up to three, log2 of T*
    cost: float  # own, so far
    cost_break_even: float  # what T* would have cost


@dataclass(frozen=True, slots=True)
class Proposal:
    """The timeout to use for the idle period that begins now, and whose it is, in T*."""

    timeout: float
    expert: str
    guarded: bool  # the guard moved it
    proposals: tuple[float, ...]  # of each expert, in EXPERTS' order
    traffic: Floats  # belief when the idle period began


def initial() -> AdaptiveState:
    """Nothing learnt yet: the first timeouts are T*'s."""
    table = Table(_PRIOR * _PSEUDO_GAPS, _PSEUDO_GAPS)
    losses = (0.0, 0.0, 0.0, -HEAD_START)
    return AdaptiveState(table, {}, {}, traffic_states.initial(), losses, (), 0.0, 0.0)


def propose(state: AdaptiveState, idle_since: float, busy: float = 0.0, requests: int = 1) -> Proposal:
    """The timeout for an idle period that began at `idle_since` (seconds; its hour of day counts).

    `requests` were served in the `busy` T* before it, without an idle moment; where that isn't known, a
    single one at once is assumed.
    """
    traffic = traffic_states.heard(state.traffic, busy, requests)
    proposals = _proposals(state, idle_since, traffic)
    # T* comes first and wins ties.
    best = min(range(len(EXPERTS)), key=lambda expert: state.losses[expert]) if state.last_gaps else 0
    wanted = proposals[best]
    timeout = guard(wanted, state.cost, state.cost_break_even)
    return Proposal(timeout, EXPERTS[best], timeout != wanted, proposals, traffic)


def observe(state: AdaptiveState, proposal: Proposal, gap: float, idle_since: float) -> AdaptiveState:
    """Learn from an idle period of `gap` T* that began at `idle_since` and was given `proposal`."""
    if not (gap >= 0 and math.isfinite(gap)):
        raise ValueError(f"gap must be a finite number of T*, not negative, got {gap}")
    costs = np.where(gap <= GRID, gap, GRID + 1.0)
    by_break_even = cost(1.0, gap)
    losses = tuple(
        loss * FADE_LOSS + cost(timeout, gap) - by_break_even
        for loss, timeout in zip(state.losses, proposal.proposals, strict=True)
    )
    hour, size = hour_of_day(idle_since), size_class(state.last_gaps)
    return AdaptiveState(
        state.steady.add(costs, FADE_STEADY),
        _add(state.hours, hour, costs),
        state.classes if size is None else _add(state.classes, size, costs),
        traffic_states.learn(state.traffic, proposal.traffic, gap),
        losses,
        (*state.last_gaps, log_gap(gap))[-3:],
        state.cost + cost(proposal.timeout, gap),
        state.cost_break_even + by_break_even,
    )


def _proposals(state: AdaptiveState, idle_since: float, traffic: Floats) -> tuple[float, ...]:
    steady = state.steady.costs / state.steady.gaps
    size = size_class(state.last_gaps)
    by_hour = _drawn(steady, state.hours.get(hour_of_day(idle_since)))
    by_size = _drawn(steady, None if size is None else state.classes.get(size))
    foretold = traffic_states.foretell(state.traffic, traffic, EXPECTED)
    curves = np.stack([steady, by_hour + by_size + foretold, foretold])
    return (1.0, *cheapest(curves).tolist())


def _drawn(steady: Floats, part: Table | None) -> Floats:
    """Mean costs of a part of the gaps, drawn towards those of all."""
    return steady if part is None else (part.costs + SHRINK * steady) / (part.gaps + SHRINK)


def cheapest(costs: Floats) -> Floats:
    """The timeout of least cost in each row; the shortest of those that differ by rounding alone."""
    best = np.argmax(costs <= costs.min(axis=-1, keepdims=True) + 1e-9, axis=-1)
    timeouts: Floats = np.minimum(GRID[best], LONGEST)
    return timeouts


def guard(timeout: float, own: float, break_even: float) -> float:
    """The timeout, moved as far as the bound needs; `own` cost so far, and what T* would have cost."""
    if timeout > 1.0:
        return min(timeout, max(1.0, RHO * (break_even + 1.0) + SLACK - 1.0 - own))
    if timeout < 1.0 and own + timeout + 1.0 > RHO * (break_even + timeout) + SLACK:
        return 1.0
    return timeout


def _add(tables: Mapping[int, Table], key: int, costs: Floats) -> Mapping[int, Table]:
    """The tables with one more gap under `key`; only that one fades, for the others saw no gap."""
    before = tables.get(key, Table(np.zeros(len(GRID)), 0.0))
    return {**tables, key: before.add(costs, FADE_RHYTHM)}


def log_gap(gap: float) -> float:
    """log2 of a gap, as `last_gaps` keeps it."""
    return math.log2(max(gap, 1e-6))


def hour_of_day(seconds: float) -> int:
    """0 to 23."""
    return int(seconds // 3600) % HOURS


def size_class(last_gaps: tuple[float, ...]) -> int | None:
    """Size class of the last three gaps; None before there are any."""
    if not last_gaps:
        return None
    mean = sum(last_gaps) / len(last_gaps)
    return min(max(math.floor(mean + 4), 0), CLASSES - 1)


def to_plain(state: AdaptiveState) -> dict[str, Any]:
    """What was learnt as JSON values, numbers to five digits (some 10 kB at most)."""

    def numbers(values: Any) -> list[float]:
        return [float(f"{value:.5g}") for value in values]

    def table(each: Table) -> list[float]:
        return numbers([each.gaps, *each.costs])

    return {
        "grid": len(GRID),
        "steady": table(state.steady),
        "hours": {str(key): table(each) for key, each in state.hours.items()},
        "classes": {str(key): table(each) for key, each in state.classes.items()},
        "traffic": {
            "states": numbers(state.traffic.states.ravel()),
            "scores": numbers(state.traffic.scores),
        },
        "losses": numbers(state.losses),
        "lastGaps": numbers(state.last_gaps),
        "cost": float(f"{state.cost:.9g}"),
        "costBreakEven": float(f"{state.cost_break_even:.9g}"),
    }


def from_plain(plain: Mapping[str, Any]) -> AdaptiveState:
    """The state that `to_plain` gave; ValueError where it is of another form."""

    def array(values: Any, size: int) -> Floats:
        result = np.asarray(values, dtype=np.float64)
        if result.shape != (size,) or not np.isfinite(result).all():
            raise ValueError(f"expected {size} finite numbers, got {values!r:.80}")
        return result

    def table(values: Any) -> Table:
        numbers = array(values, len(GRID) + 1)
        return Table(numbers[1:], float(numbers[0]))

    try:
        if plain["grid"] != len(GRID):
            raise ValueError(f"made for a grid of {plain['grid']} timeouts, this one has {len(GRID)}")
        gaps = array(plain["lastGaps"], len(plain["lastGaps"]))
        return replace(
            initial(),
            steady=table(plain["steady"]),
            hours={int(key): table(values) for key, values in plain["hours"].items()},
            classes={int(key): table(values) for key, values in plain["classes"].items()},
            traffic=Belief(
                array(plain["traffic"]["states"], 2 * SIZE).reshape(2, SIZE),
                array(plain["traffic"]["scores"], SIZE),
            ),
            losses=tuple(array(plain["losses"], len(EXPERTS)).tolist()),
            last_gaps=tuple(gaps.tolist())[-3:],
            cost=float(plain["cost"]),
            cost_break_even=float(plain["costBreakEven"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a state of the adaptive policy: {error}") from error
