"""How far the truth may lie from a prediction: factors from held-out errors, and which of them applies.

A table holds, for one regime and one target, factors for each whole per cent from 50 to 99: ``upper`` bounds
the truth from above, ``lower`` from below, each one-sided. A two-sided interval at c takes both at (1 + c)/2.
Regimes say what of the question was measured; kinds (mixture, quantized, parallel, hybrid) have their own
tables, from whole families of models held out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattkeeper_predictor.conformal import MOST_CONFIDENCE_PERCENT, factor_at

KINDS = ("mixture", "quantized", "parallel", "hybrid")
#: Where nothing was measured, bounds widen by this much more. A judgement, not data; said in the notes.
UNMEASURED_FACTOR = 1.15


@dataclass(frozen=True, slots=True)
class Bound:
    """Factors on a prediction at one confidence: one-sided above, and a two-sided pair."""

    upper: float
    low: float
    high: float

    def widened(self, factor: float) -> Bound:
        """Wider by a factor on each side."""
        return Bound(self.upper * factor, self.low / factor, self.high * factor)

    def joined(self, other: Bound) -> Bound:
        """The wider of both on each side."""
        return Bound(max(self.upper, other.upper), min(self.low, other.low), max(self.high, other.high))

    def compounded(self, other: Bound) -> Bound:
        """Independent errors on top of each other: roots of summed squares of logarithms."""
        return Bound(
            math.exp(math.hypot(math.log(self.upper), math.log(other.upper))),
            math.exp(-math.hypot(math.log(self.low), math.log(other.low))),
            math.exp(math.hypot(math.log(self.high), math.log(other.high))),
        )


class Intervals:
    """The tables of a manifest: by regime or kind, then by target."""

    def __init__(self, tables: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        self._tables = tables
        self._bounds: dict[tuple[str, str, float], Bound] = {}

    def has(self, table: str, target: str) -> bool:
        """Whether there is such a table."""
        return target in self._tables.get(table, {})

    def groups(self, table: str, target: str) -> int:
        """How many groups the factors rest on."""
        return int(self._tables[table][target]["groups"])

    def bound(self, table: str, target: str, confidence_percent: float) -> Bound:
        """Factors at a confidence between 50 and 99 %."""
        key = (table, target, confidence_percent)
        found = self._bounds.get(key)
        if found is None:
            entry = self._tables[table][target]
            both = min(float(MOST_CONFIDENCE_PERCENT), (100 + confidence_percent) / 2)
            found = self._bounds[key] = Bound(
                upper=factor_at(entry["upper"], confidence_percent),
                low=1 / factor_at(entry["lower"], both),
                high=factor_at(entry["upper"], both),
            )
        return found

    def widest(self, tables: Sequence[str], target: str, confidence_percent: float) -> Bound:
        """The wider of several tables; a factor of two either way where the training data gave none."""
        found = [self.bound(table, target, confidence_percent) for table in tables if self.has(table, target)]
        widest = found[0] if found else NOTHING_KNOWN
        for bound in found[1:]:
            widest = widest.joined(bound)
        return widest


NOTHING_KNOWN = Bound(2.0, 0.5, 2.0)
