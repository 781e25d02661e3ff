"""The recipe at work: measured values where there are any, trees elsewhere, bounds on both."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import xgboost

from wattkeeper_predictor.artifact import Artifact
from wattkeeper_predictor.conformal import factor_at, supported_percent
from wattkeeper_predictor.errors import ArtifactError
from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.prediction import Explanation, Prediction, Query

from .envelope import check_kind, check_running, extra_work
from .features import ITL_FEATURES, POWER_FEATURES, Case, Encoding, Feature
from .known import Cell, Known, TrainingMemory
from .load import LoadedFigures, at_load, factor_between, position
from .notes import OFFLINE_NOTE, basis_notes, confidence_notes, extra_work_notes, load_notes
from .trees import FittedPair, Trees

POWER_FILE, ITL_FILE, CELLS_FILE = "power.ubj", "itl.ubj", "cells.json"


class WattGpuRecipe:
    """The recipe loaded from its artifact. Immutable."""

    name = "wattgpu"

    def __init__(self, artifact: Artifact) -> None:
        """Raises ``ArtifactError`` if the manifest lacks what it must hold."""
        try:
            manifest = artifact.manifest
            self._pair = FittedPair(
                power=_trees(POWER_FEATURES, manifest["targets"]["power"], artifact.files[POWER_FILE]),
                itl=_trees(ITL_FEATURES, manifest["targets"]["itl"], artifact.files[ITL_FILE]),
            )
            self._memory = TrainingMemory(
                manifest["trained_models"], manifest["trained_gpus"], json.loads(artifact.files[CELLS_FILE])
            )
            self._intervals = manifest["intervals"]
            self._typical_tokens = {Level[k.upper()]: v for k, v in manifest["typical_output_tokens"].items()}
            self._most_running = float(manifest["most_running"])
            self._growth = manifest["itl_growth_per_sequence"]
        except (KeyError, TypeError, ValueError, xgboost.core.XGBoostError) as broken:
            raise ArtifactError(f"the artifact is damaged ({broken!r}); train again or reinstall") from broken

    def forecast(self, query: Query) -> Prediction:
        """Answer one question; raises ``OutOfPredictorRange`` or ``InvalidInput`` naming the field."""
        check_kind(query)
        known = self._memory.recall(query)
        if query.workload.scenario == "Offline":
            return self._offline(query, known)
        return self._server(query, known)

    def explain(self, query: Query) -> Explanation:
        """The answer, and what each feature adds to it."""
        prediction = self.forecast(query)
        known = self._memory.recall(query)
        level = _nearest_level(query)
        case = Case(known.model, known.gpu, level)
        power = self._pair.power.contributions(case)
        itl = self._pair.itl.contributions(case)
        return Explanation(
            prediction=prediction,
            level=level.name.lower(),
            power_terms_watts={name: value * known.gpu.tdp_watts for name, value in power.items()},
            itl_factors={name: math.exp(value) for name, value in itl.items()},
        )

    def _figures(self, known: Known, levels: Sequence[Level]) -> list[Cell]:
        if known.cells is not None:
            return [known.cells[level] for level in levels]
        cases = [Case(known.model, known.gpu, level) for level in levels]
        power, itl = self._pair.power_watts(cases), self._pair.itl_seconds(cases)
        tokens = [self._typical_tokens[level] for level in levels]
        most = known.gpu.tdp_watts
        return [Cell(min(float(p), most), float(i), t, 0) for p, i, t in zip(power, itl, tokens, strict=True)]

    def _offline(self, query: Query, known: Known) -> Prediction:
        [cell] = self._figures(known, [Level.OFFLINE])
        extra = extra_work(query, cell.itl_seconds, self._tflops(known))
        power_factor, itl_factor = self._factors(query, known, Level.OFFLINE)
        notes = [OFFLINE_NOTE, *self._notes(query, known, [cell], extra.step_share)]
        return Prediction(
            power_watts=cell.power_watts,
            power_upper_watts=_most_power(cell.power_watts, power_factor, known),
            itl_seconds=cell.itl_seconds,
            itl_upper_seconds=cell.itl_seconds * itl_factor * (1 + extra.step_share),
            energy_per_token_joules=cell.power_watts * cell.itl_seconds,
            regime=known.regime,
            notes=tuple(notes),
        )

    def _server(self, query: Query, known: Known) -> Prediction:
        full, low, high = self._figures(known, list(Level))
        if known.cells is None:
            # More sequences never make a step shorter, which trees don't know.
            high = replace(high, itl_seconds=max(low.itl_seconds, high.itl_seconds))
        extra = extra_work(query, high.itl_seconds, self._tflops(known))
        asked_tokens = (query.workload.requests_per_second or 0.0) * query.workload.output_tokens
        low_figures, high_figures = low.at(Level.LOW), high.at(Level.HIGH)
        figures = at_load(
            low_figures,
            high_figures,
            full_power_watts=full.power_watts,
            tokens_per_second=asked_tokens,
            prefill_running=extra.prefill_running,
        )
        check_running(figures.running, self._most_running)
        place = position(low_figures, high_figures, asked_tokens)
        power_factor, itl_factor = self._factors_between(query, known, (low, high), figures)
        # Beyond the measured sequences the slope is a guess, and no error there was ever measured.
        beyond = max(0.0, figures.running - high_figures.running)
        itl_factor *= factor_at(self._growth, query.confidence_percent) ** beyond
        notes = [
            *self._notes(query, known, [low, high], extra.step_share),
            *load_notes(place, low_figures, high_figures, asked_tokens, figures.running),
        ]
        return Prediction(
            power_watts=figures.power_watts,
            power_upper_watts=_most_power(figures.power_watts, power_factor, known),
            itl_seconds=figures.itl_seconds,
            itl_upper_seconds=figures.itl_seconds * itl_factor * (1 + extra.step_share),
            energy_per_token_joules=figures.power_watts / asked_tokens,
            regime=known.regime,
            notes=tuple(notes),
        )

    def _factors(self, query: Query, known: Known, level: Level) -> tuple[float, float]:
        """Factors of the bounds on power and ITL at one level."""
        table = self._intervals[known.interval_table]["factors"][level.name.lower()]
        power, itl = (factor_at(table[target], query.confidence_percent) for target in ("power", "itl"))
        return power, itl

    def _factors_between(
        self, query: Query, known: Known, cells: tuple[Cell, Cell], figures: LoadedFigures
    ) -> tuple[float, float]:
        """The same at a load between the two levels, or beyond one of them."""
        (low, high), rising = cells, known.cells is None
        at_low, at_high = (self._factors(query, known, level) for level in (Level.LOW, Level.HIGH))
        power = (low.power_watts, max(low.power_watts, high.power_watts))
        itl = (low.itl_seconds, high.itl_seconds)
        return (
            factor_between(figures.power_share, power, (at_low[0], at_high[0]), rising=rising),
            factor_between(figures.itl_share, itl, (at_low[1], at_high[1]), rising=rising),
        )

    def _notes(self, query: Query, known: Known, cells: Sequence[Cell], extra_share: float) -> list[str]:
        groups = int(self._intervals[known.interval_table]["groups"])
        return [
            *basis_notes(known, cells),
            *confidence_notes(query.confidence_percent, groups, supported_percent(groups)),
            *extra_work_notes(extra_share),
        ]

    def _tflops(self, known: Known) -> float:
        rate = known.gpu.fp16_dense_tflops
        return self._pair.itl.encoding.means["fp16_dense"] if rate is None else rate


def _most_power(power_watts: float, factor: float, known: Known) -> float:
    """The bound on a board's mean power, which its limit keeps below the TDP."""
    return max(power_watts, min(power_watts * factor, known.gpu.tdp_watts))


def _nearest_level(query: Query) -> Level:
    rate = query.workload.requests_per_second
    if query.workload.scenario == "Offline" or rate is None:
        return Level.OFFLINE
    low, high = Level.LOW.requests_per_second or 0.0, Level.HIGH.requests_per_second or 0.0
    return Level.LOW if abs(math.log(rate / low)) < abs(math.log(rate / high)) else Level.HIGH


def _trees(features: tuple[Feature, ...], target: Mapping[str, Any], content: bytes) -> Trees:
    listed = [entry["name"] for entry in target["features"]]
    if listed != [feature.name for feature in features]:
        raise ArtifactError(f"the artifact was trained on other features ({', '.join(listed)}); train again")
    booster = xgboost.Booster(params={"nthread": 1})
    booster.load_model(bytearray(content))
    categories = {name: tuple(values) for name, values in target["categories"].items()}
    return Trees(features, Encoding(categories, dict(target["means"])), booster)
