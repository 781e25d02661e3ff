"""The adaptive timeout: learns from the gaps between requests how long to keep an idle model.

All is in units of T*: keeping a model idle for T* costs 1, loading it again costs 1. A timeout T on a gap g
costs c(T, g) = g if g ≤ T, else T + 1. Four experts propose a timeout after every gap:

* `break-even`: always 1. Never worse than twice the optimum.
* `recent`: the timeout that would have cost least over the last gaps (half-life 50).
* `rhythm`: the same over more gaps (half-life 200), by the hour of day and by the size of the last gaps.
* `share`: fixed-share weights over a grid of timeouts, quick to follow a change.

The one that lost least against T* so far is followed, within a guard: whatever the gaps, the whole cost stays
within 1.02 times that of T*, plus 2 T*. With T*'s own bound that is at most 2.04 times the optimum plus 2 T*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_POINTS = np.geomspace(0.02, 8.0, 25)
GRID: Floats = np.concatenate([[0.0], _POINTS, [np.inf]])
_SHARE_GRID: Floats = np.concatenate([[0.0], _POINTS, [12.0]])
_LOG_SHARE_GRID: Floats = np.log(np.maximum(_SHARE_GRID, 0.01))
LONGEST = 8.0  # no proposal beyond 8 T*

EXPERTS = ("break-even", "recent", "rhythm", "share")
_FADE_RECENT, _FADE_RHYTHM, _FADE_LOSS = (0.5 ** (1 / half_life) for half_life in (50, 200, 150))
_PSEUDO_GAPS = 5.0
_SHRINK = 10.0  # gaps that an hour or a size class needs to weigh as much as the general table
_ETA, _ALPHA, _LOSS_CAP = 0.5, 0.03, 4.0
_HOURS, _CLASSES = 24, 9
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

    recent: Table
    rhythm: Table
    hours: Mapping[int, Table]
    classes: Mapping[int, Table]
    log_weights: Floats  # of the fixed-share expert
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


def initial() -> AdaptiveState:
    """Nothing learnt yet: the first timeouts are T*'s."""
    table = Table(_PRIOR * _PSEUDO_GAPS, _PSEUDO_GAPS)
    uniform = np.zeros(len(_SHARE_GRID))
    return AdaptiveState(table, table, {}, {}, uniform, (0.0,) * len(EXPERTS), (), 0.0, 0.0)


def propose(state: AdaptiveState, idle_since: float) -> Proposal:
    """The timeout for an idle period that began at `idle_since` (seconds; its hour of day counts)."""
    proposals = _proposals(state, idle_since)
    # T* comes first and wins ties.
    best = min(range(len(EXPERTS)), key=lambda expert: state.losses[expert])
    wanted = proposals[best]
    timeout = _guard(state, wanted)
    return Proposal(timeout, EXPERTS[best], timeout != wanted, proposals)


def observe(state: AdaptiveState, proposal: Proposal, gap: float, idle_since: float) -> AdaptiveState:
    """Learn from an idle period of `gap` T* that began at `idle_since` and was given `proposal`."""
    if not (gap >= 0 and math.isfinite(gap)):
        raise ValueError(f"gap must be a finite number of T*, not negative, got {gap}")
    costs = np.where(gap <= GRID, gap, GRID + 1.0)
    by_break_even = cost(1.0, gap)
    losses = tuple(
        loss * _FADE_LOSS + cost(timeout, gap) - by_break_even
        for loss, timeout in zip(state.losses, proposal.proposals, strict=True)
    )
    hour, size = _hour(idle_since), _size_class(state.last_gaps)
    return AdaptiveState(
        state.recent.add(costs, _FADE_RECENT),
        state.rhythm.add(costs, _FADE_RHYTHM),
        _add(state.hours, hour, costs),
        state.classes if size is None else _add(state.classes, size, costs),
        _share(state.log_weights, gap),
        losses,
        (*state.last_gaps, math.log2(max(gap, 1e-6)))[-3:],
        state.cost + cost(proposal.timeout, gap),
        state.cost_break_even + by_break_even,
    )


def _proposals(state: AdaptiveState, idle_since: float) -> tuple[float, ...]:
    recent = float(GRID[np.argmin(state.recent.costs)])
    table = state.rhythm.costs / state.rhythm.gaps
    size = _size_class(state.last_gaps)
    for part in (state.hours.get(_hour(idle_since)), None if size is None else state.classes.get(size)):
        if part is not None:
            table = (part.costs + _SHRINK * table) / (part.gaps + _SHRINK)
    rhythm = float(GRID[np.argmin(table)])
    weights = np.exp(state.log_weights - state.log_weights.max())
    share = math.exp(float(weights @ _LOG_SHARE_GRID) / float(weights.sum()))
    return tuple(min(timeout, LONGEST) for timeout in (1.0, recent, rhythm, share))


def _guard(state: AdaptiveState, timeout: float) -> float:
    own, break_even = state.cost, state.cost_break_even
    if timeout > 1.0:
        return min(timeout, max(1.0, RHO * (break_even + 1.0) + SLACK - 1.0 - own))
    if timeout < 1.0 and own + timeout + 1.0 > RHO * (break_even + timeout) + SLACK:
        return 1.0
    return timeout


def _share(log_weights: Floats, gap: float) -> Floats:
    costs = np.where(gap <= _SHARE_GRID, gap, _SHARE_GRID + 1.0)
    scaled = log_weights - _ETA * np.minimum(costs - min(gap, 1.0), _LOSS_CAP)
    weights = np.exp(scaled - scaled.max())
    weights = (1 - _ALPHA) * weights / weights.sum() + _ALPHA / len(weights)
    result: Floats = np.log(weights)
    return result


def _add(tables: Mapping[int, Table], key: int, costs: Floats) -> Mapping[int, Table]:
    """The tables with one more gap under `key`; only that one fades, for the others saw no gap."""
    before = tables.get(key, Table(np.zeros(len(GRID)), 0.0))
    return {**tables, key: before.add(costs, _FADE_RHYTHM)}


def _hour(seconds: float) -> int:
    return int(seconds // 3600) % _HOURS


def _size_class(last_gaps: tuple[float, ...]) -> int | None:
    """Size class of the last three gaps; None before there are any."""
    if not last_gaps:
        return None
    mean = sum(last_gaps) / len(last_gaps)
    return min(max(math.floor(mean + 4), 0), _CLASSES - 1)


def to_plain(state: AdaptiveState) -> dict[str, Any]:
    """What was learnt as JSON values, numbers to five digits (some 10 kB at most)."""

    def numbers(values: Any) -> list[float]:
        return [float(f"{value:.5g}") for value in values]

    def table(each: Table) -> list[float]:
        return numbers([each.gaps, *each.costs])

    return {
        "grid": len(GRID),
        "recent": table(state.recent),
        "rhythm": table(state.rhythm),
        "hours": {str(key): table(each) for key, each in state.hours.items()},
        "classes": {str(key): table(each) for key, each in state.classes.items()},
        "logWeights": numbers(state.log_weights),
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
            recent=table(plain["recent"]),
            rhythm=table(plain["rhythm"]),
            hours={int(key): table(values) for key, values in plain["hours"].items()},
            classes={int(key): table(values) for key, values in plain["classes"].items()},
            log_weights=array(plain["logWeights"], len(_SHARE_GRID)),
            losses=tuple(array(plain["losses"], len(EXPERTS)).tolist()),
            last_gaps=tuple(gaps.tolist())[-3:],
            cost=float(plain["cost"]),
            cost_break_even=float(plain["costBreakEven"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a state of the adaptive policy: {error}") from error
