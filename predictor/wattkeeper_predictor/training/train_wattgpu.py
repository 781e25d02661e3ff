"""Fit the ``wattgpu`` recipe on all rows and pack it with what serving needs."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import xgboost

from wattkeeper_predictor.artifact import Artifact
from wattkeeper_predictor.catalog import GpuCatalogue
from wattkeeper_predictor.conformal import upper_factors
from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.recipes.wattgpu.serve import CELLS_FILE, ITL_FILE, POWER_FILE
from wattkeeper_predictor.recipes.wattgpu.trees import (
    ITL_SETTINGS,
    POWER_SETTINGS,
    Settings,
    Trees,
    fit_pair,
)
from wattkeeper_predictor.specs import GpuSpec, ModelSpec

from .calibrate import calibrate
from .dataset import Dataset
from .evaluate import Progress, cases_of, evaluate_wattgpu, targets
from .protocols import PROTOCOLS
from .runs import Run


def train_wattgpu(data: Dataset, progress: Progress = lambda _: None) -> Artifact:
    """Fit, score by every protocol, calibrate. ``data`` must hold dense models only.

    Raises ``InvalidInput`` if a load level is missing or nothing could be held out.
    """
    _check_breadth(data)
    progress(f"fitting on {len(data.runs)} runs of {len(data.models)} LLMs on {len(data.gpus)} GPUs")
    pair = fit_pair(cases_of(data), *targets(data.runs))
    scores = {protocol: evaluate_wattgpu(data, protocol, progress) for protocol in PROTOCOLS}
    intervals = calibrate(data, progress)
    names = {label: _catalogue_name(label) for label in data.gpus}
    cells = _cells(data.runs, names)
    manifest: dict[str, Any] = {
        "recipe": "wattgpu",
        "xgboost": xgboost.__version__,
        "data": {
            "sha256": data.sha256,
            "runs": len(data.runs),
            "models": len(data.models),
            "gpus": len(data.gpus),
            "left_out": dict(data.skipped),
            "broken_rows": data.broken,
        },
        "targets": {
            "power": _target("board power ÷ TDP", pair.power, POWER_SETTINGS),
            "itl": _target(
                "ln(inter-token latency in s; offline inverse throughput)", pair.itl, ITL_SETTINGS
            ),
        },
        "typical_output_tokens": _typical_tokens(data.runs),
        "most_running": _most_running(cells),
        "itl_growth_per_sequence": _growth(cells),
        "scores": scores,
        "intervals": intervals,
        "trained_models": [_plain(spec) for _, spec in sorted(data.models.items())],
        "trained_gpus": [
            _plain(replace(spec, name=names[label])) for label, spec in sorted(data.gpus.items())
        ],
    }
    return Artifact(
        manifest,
        {
            POWER_FILE: bytes(pair.power.booster.save_raw("ubj")),
            ITL_FILE: bytes(pair.itl.booster.save_raw("ubj")),
            CELLS_FILE: _lines(cells),
        },
    )


def _check_breadth(data: Dataset) -> None:
    missing = [level.name.lower() for level in Level if all(run.level is not level for run in data.runs)]
    if missing:
        raise InvalidInput("runs", f"no run at level {', '.join(missing)}; add some, or correct lambda_qps")
    for what, names in (("GPUs", {r.gpu for r in data.runs}), ("LLMs", {r.model for r in data.runs})):
        if len(names) < 2:
            raise InvalidInput("runs", f"at least two {what} are needed to hold one out; add runs of another")


def _catalogue_name(label: str) -> str:
    spec = GpuCatalogue.load().match(label)
    return spec.name if spec else label


def _target(meaning: str, trees: Trees, settings: Settings) -> dict[str, Any]:
    return {
        "meaning": meaning,
        "settings": asdict(settings),
        "features": [{"name": feature.name, "unit": feature.unit} for feature in trees.features],
        "categories": {name: list(values) for name, values in trees.encoding.categories.items()},
        "means": dict(trees.encoding.means),
    }


def _cells(runs: tuple[Run, ...], names: Mapping[str, str]) -> list[dict[str, Any]]:
    rows_of: dict[tuple[str, str, Level], list[Run]] = defaultdict(list)
    for run in runs:
        rows_of[run.model, names[run.gpu], run.level].append(run)
    return [
        {
            "model": model,
            "gpu": gpu,
            "level": level.name.lower(),
            "power_watts": _mean([run.power_watts for run in rows]),
            "itl_seconds": _mean([run.itl_seconds for run in rows]),
            "output_tokens": _mean([run.output_tokens for run in rows]),
            "runs": len(rows),
        }
        for (model, gpu, level), rows in sorted(rows_of.items())
    ]


def _mean(values: list[float]) -> float:
    return float(f"{sum(values) / len(values):.6g}")


def _typical_tokens(runs: tuple[Run, ...]) -> dict[str, float]:
    """The median over runs of the generated tokens a request, by level."""
    medians = {}
    for level in Level:
        tokens = sorted(run.output_tokens for run in runs if run.level is level)
        medians[level.name.lower()] = tokens[len(tokens) // 2] if tokens else 1.0
    return medians


def _most_running(cells: list[dict[str, Any]]) -> float:
    """The most sequences that ran at once on average, over the measured cells of the higher rate."""
    running = [_running(cell, Level.HIGH) for cell in cells if cell["level"] == Level.HIGH.name.lower()]
    return _mean([max(running)]) if running else 1.0


def _growth(cells: list[dict[str, Any]]) -> list[float]:
    """By how much one more running sequence may stretch a step: factors for 50 to 99 %.

    From the measured cells of both rates, those with at least one more sequence at the higher: elsewhere
    noise exceeds the growth. Where no cell has so many, from those with the most.
    """
    levels: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for cell in cells:
        levels[cell["model"], cell["gpu"]][cell["level"]] = cell
    pairs = [
        (model, _running(both["high"], Level.HIGH) - _running(both["low"], Level.LOW), both)
        for (model, _), both in levels.items()
        if {"low", "high"} <= set(both)
    ]
    least = min(1.0, max((more for _, more, _ in pairs), default=1.0))
    growth: dict[str, list[float]] = defaultdict(list)
    for model, more, both in pairs:
        if more >= least > 0:
            growth[model].append(math.log(both["high"]["itl_seconds"] / both["low"]["itl_seconds"]) / more)
    if not growth:
        raise InvalidInput("runs", "no LLM was measured on a GPU at both rates; add such runs")
    return [round(factor, 4) for factor in upper_factors(growth)]


def _running(cell: Mapping[str, Any], level: Level) -> float:
    return float((level.requests_per_second or 0.0) * cell["output_tokens"] * cell["itl_seconds"])


def _plain(spec: ModelSpec | GpuSpec) -> dict[str, Any]:
    return {name: value for name, value in asdict(spec).items() if name != "sources" and value is not None}


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return ("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n").encode()
