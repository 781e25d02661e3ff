"""Fit the recipe ``wattkeeper``, score it by every protocol, calibrate its intervals, and pack all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xgboost

from wattkeeper_predictor.artifact import Artifact
from wattkeeper_predictor.recipes.wattkeeper.corrections import TREE_KINDS
from wattkeeper_predictor.recipes.wattkeeper.fitted import Fitted, to_parts

from .anchoring_priors import anchoring_priors
from .calibrate_wattkeeper import grouped_errors, interval_tables, table_of
from .evaluate_wattkeeper import report
from .fit_recipe import Training, fit_recipe
from .folds import FoldProtocol, Progress, held_out_predictions
from .load import Loaded
from .measured import Source
from .predict_rows import Anchors, RowPredictions
from .prompts import PromptTimes, prompt_errors

#: What is scored under each protocol: public metadata alone, and with what telemetry and a workload add.
ANCHORED: Mapping[str, Anchors] = {
    "public": Anchors(),
    "length": Anchors(length=True),
    "idle": Anchors(idle=True, length=True),
    "duty": Anchors(idle=True, length=True, duty=True),
}
_REGIMES: Mapping[str, FoldProtocol] = {
    "measured": "cv",
    "unseen_model": "lolo",
    "unseen_gpu": "logo",
    "unseen_both": "both",
    "sweep": "lomo",
}
_DIGITS = 6


def train_wattkeeper(
    loaded: Loaded, prompts: PromptTimes | None = None, progress: Progress = lambda _: None
) -> Artifact:
    """Everything from measured rows to an artifact; equal rows and versions give equal bytes."""
    training = loaded.training
    progress(f"fitting to {loaded.runs} runs and {loaded.sweeps} sweep rows")
    fitted = fit_recipe(training)
    held_out = _held_out(training, fitted, progress)
    tables = interval_tables(training, held_out)
    if prompts is not None:
        tables |= _prompt_tables(fitted, prompts)
    values, files = to_parts(fitted)
    manifest = {
        "recipe": "wattkeeper",
        "xgboost": xgboost.__version__,
        "data": {
            "sha256": loaded.sha256,
            "prompts_sha256": prompts.sha256 if prompts else None,
            "runs": loaded.runs,
            "sweep_rows": loaded.sweeps,
            "models": len(np.unique(training.rows.model)),
            "gpus": len(np.unique(training.rows.gpu)),
            "notes": list(loaded.notes),
        },
        **values,
        "ranges": _ranges(training),
        "trees": {name: _tree_entry(name) for name in fitted.trees},
        "scores": {
            _REGIMES[regime]: {
                name: _brief(report(training, answer, _REGIMES[regime])) for name, answer in answers.items()
            }
            for regime, answers in held_out.items()
        },
        "anchoring": anchoring_priors(training, held_out),
        "intervals": tables,
    }
    return Artifact(_rounded(manifest), files)


def _held_out(training: Training, fitted: Fitted, progress: Progress) -> dict[str, dict[str, RowPredictions]]:
    """Predictions under each protocol; a protocol without enough groups is left out."""
    swept = training.rows.source == Source.SWEEP
    found: dict[str, dict[str, RowPredictions]] = {}
    for regime, protocol in _REGIMES.items():
        only = swept if protocol == "lomo" else ~swept
        if protocol == "cv":
            only = np.ones_like(swept)
        groups = {"logo": training.rows.gpu, "both": training.rows.gpu, "lomo": training.rows.family}
        if len(np.unique(groups.get(protocol, training.rows.model)[only])) < 2:
            continue
        anchors = {"length": ANCHORED["length"]} if protocol == "lomo" else ANCHORED
        found[regime] = held_out_predictions(
            training, protocol, anchors, start=fitted, only=only, progress=progress
        )
    return found


def _prompt_tables(fitted: Fitted, prompts: PromptTimes) -> dict[str, Any]:
    errors = prompt_errors(fitted, prompts)
    kinds = {"prompt/single": prompts.parallel <= 2, "prompt/parallel": prompts.parallel > 1}
    tables = {}
    for name, wanted in kinds.items():
        grouped = grouped_errors(errors, prompts.group, wanted)
        if grouped:
            tables[name] = {"first_token": table_of(grouped)}
    return tables


def _ranges(training: Training) -> dict[str, list[float]]:
    """Least and greatest of what training holds; outside of it answers are flagged and bounds widen."""
    c = training.rows.columns
    named = {
        "gpu.memory_bandwidth_gb_s": c.bandwidth_gb_s,
        "gpu.tdp_watts": c.tdp_watts,
        "gpu.fp16_dense_tflops": c.tflops,
        "model.parameters_total_billion": c.dense_billion + c.expert_billion,
        "model.layers": c.layers,
        "model.hidden_size": c.hidden,
        "serving.tensor_parallel_size": c.gpus,
        "workload.output_tokens": c.output,
        "workload.prompt_tokens": c.prompt,
    }
    return {name: [float(values.min()), float(values.max())] for name, values in named.items()}


def _tree_entry(name: str) -> dict[str, Any]:
    kind = TREE_KINDS[name]
    return {
        "features": [{"name": feature, "unit": unit} for feature, unit in kind.features],
        "settings": dict(kind.settings),
        "trees": kind.trees,
        "objective": kind.objective,
        "never_falls_in": list(kind.rising),
    }


def _brief(scores: dict[str, Any]) -> dict[str, Any]:
    """Without the baselines, which don't depend on the protocol."""
    return {name: value for name, value in scores.items() if name != "baselines"}


def _rounded(value: Any) -> Any:
    """Six significant digits throughout: enough for every use, and free of the machine's last bits."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return value
