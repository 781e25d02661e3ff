"""Telemetry's corrections of predictions: learnt by GPU, by model and by pair, with shrinkage.

A reading is the logarithm of observed ÷ predicted, of one quantity: ``itl``, ``rise`` (watts above idle) or
``idle``. It is taken as ``gpu + model + pair + noise``, each normal around 0 with the spread that held-out
data showed (``Priors``), and the parts are estimated together: the posterior of a Bayesian linear model,
which is ridge regression. So a GPU's first readings correct all models on it a little, and many of them
fully; one odd model doesn't correct the GPU.

*Robust*: against what a pair has learnt already, a reading counts the less, the further off it is (Huber).
*Drift*: odd readings that keep coming from the same side are no outliers; their cumulative sum raises an
alarm, and from then on the pair learns afresh. States are immutable and go to and from JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from .errors import InvalidInput

Quantity = Literal["itl", "rise", "idle"]
QUANTITIES: tuple[Quantity, ...] = ("itl", "rise", "idle")
SCHEMA = 1
_HUBER = 2.0
# A two-sided CUSUM: half a standard deviation of slack, alarm at six.
_SLACK, _ALARM = 0.5, 6.0
# Old readings fade: a pair never counts as more than so many.
_MOST_READINGS = 50.0


@dataclass(frozen=True, slots=True)
class Priors:
    """Standard deviations of logarithms for one quantity; ``gpu_seen`` is of a GPU that training measured."""

    gpu: float
    gpu_seen: float
    model: float
    pair: float
    noise: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one pair's readings add up to: effective number, mean, and the sums that watch for drift."""

    readings: float
    mean: float
    above: float = 0.0
    below: float = 0.0
    drifts: int = 0


@dataclass(frozen=True, slots=True)
class Drift:
    """A pair whose readings have left what was learnt, and which has begun to learn afresh."""

    quantity: Quantity
    gpu: str
    model: str
    times: int
    message: str


@dataclass(frozen=True, slots=True)
class Shift:
    """Posterior of ln(truth ÷ prediction) of one quantity for one pair; ``share``: prior spread left."""

    mean: float
    deviation: float
    share: float


_Pairs = Mapping[tuple[str, str], Evidence]


@dataclass(frozen=True)
class AnchorState:
    """All evidence, by quantity and (GPU, model). ``seen_gpus`` are the training data's, by name."""

    priors: Mapping[Quantity, Priors]
    seen_gpus: frozenset[str] = frozenset()
    evidence: Mapping[Quantity, _Pairs] = field(default_factory=dict)

    def learn(self, quantity: Quantity, gpu: str, model: str, error: float, samples: int = 1) -> AnchorState:
        """Take in one reading, ln(observed ÷ unanchored prediction) as the mean of ``samples``."""
        if quantity not in self.priors or not math.isfinite(error):
            return self
        pairs = self.evidence.get(quantity, {})
        known = self.shift(quantity, gpu, model)
        updated = _updated(pairs.get((gpu, model)), known, self.priors[quantity], error, samples)
        return replace(self, evidence={**self.evidence, quantity: {**pairs, (gpu, model): updated}})

    def shift(self, quantity: Quantity, gpu: str, model: str) -> Shift:
        """What is believed of a pair; an unheard-of GPU or model has its prior."""
        prior = self.priors.get(quantity)
        if prior is None:
            return Shift(0.0, 0.0, 1.0)
        return self._posteriors[quantity].shift(gpu, model, prior, gpu in self.seen_gpus)

    def drifts(self) -> tuple[Drift, ...]:
        """Every pair that has drifted so far."""
        return tuple(
            Drift(
                quantity,
                gpu,
                model,
                one.drifts,
                f"{quantity} of {model} on {gpu} has left what was learnt {one.drifts} time(s); last mean "
                f"{math.exp(one.mean) - 1:+.1%} against the prediction",
            )
            for quantity, pairs in self.evidence.items()
            for (gpu, model), one in sorted(pairs.items())
            if one.drifts
        )

    def explain(self, gpu: str, model: str) -> tuple[str, ...]:
        """A sentence for each quantity that telemetry corrects for this pair."""
        lines = []
        for quantity in QUANTITIES:
            readings = sum(
                one.readings for (of_gpu, of_model), one in self.evidence.get(quantity, {}).items()
                if gpu == of_gpu or model == of_model
            )  # fmt: skip
            if readings:
                shift = self.shift(quantity, gpu, model)
                lines.append(
                    f"telemetry: {quantity} {math.exp(shift.mean) - 1:+.1%} ± {shift.deviation:.1%}, from "
                    f"{readings:.0f} readings of this GPU or model ({1 - shift.share:.0%} of the doubt gone)"
                )
        return tuple(lines)

    def to_json(self) -> str:
        """Deterministic text; priors are the artifact's and not kept."""
        rows = [
            [quantity, gpu, model, one.readings, one.mean, one.above, one.below, one.drifts]
            for quantity in QUANTITIES
            for (gpu, model), one in sorted(self.evidence.get(quantity, {}).items())
        ]
        return json.dumps({"schema": SCHEMA, "evidence": rows})

    def with_json(self, text: str) -> AnchorState:
        """This state's priors with the evidence of ``to_json``; raises ``InvalidInput`` if it isn't that."""
        try:
            data = json.loads(text)
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']} isn't {SCHEMA}")
            evidence: dict[Quantity, dict[tuple[str, str], Evidence]] = {}
            for quantity, gpu, model, *figures in data["evidence"]:
                if quantity not in QUANTITIES:
                    raise ValueError(f"{quantity!r} isn't a quantity")
                one = Evidence(*figures)
                numbers = (one.readings, one.mean, one.above, one.below)
                if not all(map(math.isfinite, numbers)) or one.readings <= 0:
                    raise ValueError(f"the figures of {model} on {gpu} aren't finite")
                evidence.setdefault(quantity, {})[str(gpu), str(model)] = one
        except (KeyError, TypeError, ValueError) as broken:
            raise InvalidInput(
                "anchors", f"not a saved state ({broken}); delete it to learn afresh"
            ) from broken
        return replace(self, evidence=evidence)

    @cached_property
    def _posteriors(self) -> dict[Quantity, _Posterior]:
        return {
            quantity: _Posterior(dict(sorted(self.evidence.get(quantity, {}).items())), prior, self.seen_gpus)
            for quantity, prior in self.priors.items()
        }


def priors_from(manifest: Mapping[str, Any]) -> dict[Quantity, Priors]:
    """The manifest's ``anchoring`` entry."""
    return {quantity: Priors(**manifest[quantity]) for quantity in QUANTITIES if quantity in manifest}


class _Posterior:
    """Normal posterior of all GPUs', models' and pairs' parts, given the pairs' mean readings."""

    def __init__(self, pairs: _Pairs, prior: Priors, seen: frozenset[str]) -> None:
        self._places: dict[tuple[str, str], int] = {}
        for gpu, model in pairs:
            for key in (("gpu", gpu), ("model", model), ("pair", f"{gpu}\t{model}")):
                self._places.setdefault(key, len(self._places))
        size = len(self._places)
        precision = np.zeros((size, size))
        weighted = np.zeros(size)
        for (kind, name), place in self._places.items():
            spread = _spread(kind, name, prior, seen)
            precision[place, place] += 1 / spread**2
        for (gpu, model), one in pairs.items():
            parts = [self._places[key] for key in _parts(gpu, model)]
            certainty = one.readings / prior.noise**2
            precision[np.ix_(parts, parts)] += certainty
            weighted[parts] += certainty * one.mean
        self._covariance = np.linalg.inv(precision) if size else precision
        self._mean = self._covariance @ weighted

    def shift(self, gpu: str, model: str, prior: Priors, seen: bool) -> Shift:
        known = [self._places[key] for key in _parts(gpu, model) if key in self._places]
        mean = float(self._mean[known].sum())
        variance = float(self._covariance[np.ix_(known, known)].sum())
        before = 0.0
        for kind, name in _parts(gpu, model):
            spread = _spread(kind, name, prior, frozenset({gpu}) if seen else frozenset())
            before += spread**2
            if (kind, name) not in self._places:
                variance += spread**2
        return Shift(mean, math.sqrt(variance), math.sqrt(variance / before))


def _parts(gpu: str, model: str) -> tuple[tuple[str, str], ...]:
    return ("gpu", gpu), ("model", model), ("pair", f"{gpu}\t{model}")


def _spread(kind: str, name: str, prior: Priors, seen: frozenset[str]) -> float:
    if kind == "gpu":
        return prior.gpu_seen if name in seen else prior.gpu
    return prior.model if kind == "model" else prior.pair


def _updated(one: Evidence | None, known: Shift, prior: Priors, error: float, samples: int) -> Evidence:
    """The pair's evidence with one more reading, robust and watched for drift."""
    if one is None:
        # The first reading of a pair is judged against what its GPU and model promise.
        spread = math.hypot(known.deviation, prior.noise / math.sqrt(samples))
        weight = samples * min(1.0, _HUBER * 2 * spread / max(abs(error - known.mean), 1e-12))
        return Evidence(weight, error)
    spread = prior.noise * math.sqrt(1 / samples + 1 / one.readings)
    score = (error - one.mean) / spread
    above = max(0.0, one.above + score - _SLACK)
    below = max(0.0, one.below - score - _SLACK)
    if max(above, below) > _ALARM:
        # What was learnt no longer holds: forget it.
        return Evidence(float(samples), error, drifts=one.drifts + 1)
    weight = samples * min(1.0, _HUBER / max(abs(score), 1e-12))
    readings = one.readings + weight
    mean = one.mean + weight / readings * (error - one.mean)
    return Evidence(min(readings, _MOST_READINGS), mean, above, below, one.drifts)
