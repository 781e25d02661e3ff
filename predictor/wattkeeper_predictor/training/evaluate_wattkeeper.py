"""Scores of the recipe ``wattkeeper`` on rows it was not fitted on, as JSON-ready values.

``power`` and ``itl`` are of plain configurations (dense, 16 bits, one GPU) of Watt Counts, by scenario, as
the paper has them; offline ITL is inverse throughput. ``mixtures`` are its mixtures of experts, ``mlenergy``
the rows of batch sweeps. ``coverage`` says how often bounds at 90 % made of other groups' errors hold;
``decisions`` what choosing by the predictions costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.recipes.wattkeeper.figures import plain
from wattkeeper_predictor.recipes.wattkeeper.fitted import Fitted

from .calibrate_wattkeeper import coverage, grouped_errors
from .decisions import decision_figures
from .fit_engine import idle_watts_of
from .fit_recipe import Training, fit_recipe
from .folds import FOLD_PROTOCOLS, Progress, held_out_predictions
from .measured import Measured, Source, cell_keys, mean_cells
from .metrics import Labels, score_labelled
from .predict_rows import Anchors, RowPredictions, predict_rows

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
_SCENARIOS = {"offline": Source.OFFLINE, "server": Source.SERVER}
_GROUPS = {"cv": "cell", "logo": "gpu", "lolo": "model", "lomo": "family", "both": "gpu", "holdout": "gpu"}


def predictions(
    training: Training,
    protocol: str,
    anchors: Anchors,
    fitted: Fitted | None = None,
    progress: Progress = lambda _: None,
) -> RowPredictions:
    """Predictions of all rows, each by a fit that hasn't seen it: ``fitted`` as it is for ``holdout``."""
    if protocol == "holdout":
        if fitted is None:
            raise InvalidInput("train_runs", "missing; holdout needs rows to fit, or a fit")
        return predict_rows(fitted, training.rows, anchors, idle_watts_of(training.rows))
    for known in FOLD_PROTOCOLS:
        if known == protocol:
            return held_out_predictions(
                training, known, {"asked": anchors}, start=fit_recipe(training), progress=progress
            )["asked"]
    raise InvalidInput("protocol", f"{protocol!r} isn't one of {', '.join(FOLD_PROTOCOLS)}, holdout")


def report(training: Training, predicted: RowPredictions, protocol: str) -> dict[str, Any]:
    """All scores of predictions of all rows (NaN where a row was not predicted)."""
    rows = training.rows
    answered = np.isfinite(predicted.itl)
    dense = plain(rows.columns) & answered
    result: dict[str, Any] = {
        **_by_scenario(rows, (predicted.power, predicted.itl), dense),
        "baselines": _baselines(rows, dense),
        "coverage": _coverage(rows, predicted, answered, protocol),
    }
    mixed = (rows.source != Source.SWEEP) & ~plain(rows.columns) & answered
    if mixed.any():
        result["mixtures"] = _by_scenario(rows, (predicted.power, predicted.itl), mixed)
    served = np.flatnonzero(dense & (rows.source == Source.SERVER))
    if len(served):
        result["decisions"] = _decisions(rows, predicted, served)
    swept = (rows.source == Source.SWEEP) & answered
    if swept.any():
        result["mlenergy"] = _sweep_scores(training, predicted, swept)
    return result


def _by_scenario(
    rows: Measured, predicted: tuple[Array | None, Array | None], chosen: Mask
) -> dict[str, dict[str, Any] | None]:
    truth = {"power": rows.power, "itl": rows.itl}
    scores: dict[str, dict[str, Any] | None] = {}
    for (target, true), guess in zip(truth.items(), predicted, strict=True):
        if guess is None:
            scores[target] = None
            continue
        of_target: dict[str, Any] = {}
        for scenario, source in _SCENARIOS.items():
            at = np.flatnonzero(chosen & (rows.source == source))
            if len(at):
                of_target[scenario] = asdict(score_labelled(_labels(rows, at), true[at], guess[at]))
        scores[target] = of_target
    return scores


def _labels(rows: Measured, at: NDArray[np.intp]) -> list[Labels]:
    return [Labels(str(rows.model[i]), str(rows.gpu[i]), str(rows.level[i])) for i in at]


def _baselines(rows: Measured, chosen: Mask) -> dict[str, Any]:
    """The paper's: TDP, TDP scaled by least squares for each load level, and the roofline."""
    c = rows.columns
    scaled = np.array(c.tdp_watts)
    for level in np.unique(rows.level[chosen]):
        here = chosen & (rows.level == level)
        scaled[here] *= (c.tdp_watts[here] @ rows.power[here]) / (c.tdp_watts[here] @ c.tdp_watts[here])
    sequences = np.where(rows.source == Source.OFFLINE, 256.0, 1.0)
    read = 2 * c.active_billion / c.bandwidth_gb_s / sequences
    roofline = np.maximum(read, 2 * c.active_billion / (1e3 * c.tflops))
    return {
        "TDP": _by_scenario(rows, (c.tdp_watts, None), chosen),
        "LS-TDP": _by_scenario(rows, (scaled, None), chosen),
        "Roofline": _by_scenario(rows, (None, roofline), chosen),
    }


def groups_by(rows: Measured, protocol: str) -> NDArray[np.str_]:
    """What is exchangeable with a new case under a protocol: one label a row."""
    by = _GROUPS[protocol]
    labels: NDArray[np.str_] = cell_keys(rows) if by == "cell" else getattr(rows, by)
    return labels


def _coverage(rows: Measured, predicted: RowPredictions, answered: Mask, protocol: str) -> dict[str, Any]:
    groups = groups_by(rows, protocol)
    found: dict[str, Any] = {"groups": _GROUPS[protocol]}
    for target, truth, guess in (
        ("power", rows.power, predicted.power),
        ("itl", rows.itl, predicted.itl),
    ):
        with np.errstate(invalid="ignore"):
            errors = np.log(truth / guess)
        found[target] = {}
        for name, source in {**_SCENARIOS, "mlenergy": Source.SWEEP}.items():
            grouped = grouped_errors(errors, groups, answered & (rows.source == source))
            if grouped:
                found[target][name] = coverage(grouped)
    return found


def _decisions(rows: Measured, predicted: RowPredictions, at: NDArray[np.intp]) -> dict[str, Any]:
    picked = rows.take(at)
    cells, _ = mean_cells(picked)
    _, inverse = np.unique(cell_keys(picked), return_inverse=True)

    def of_cells(values: Array) -> Array:
        return np.array([np.median(values[at][inverse == cell]) for cell in range(len(cells))])

    return decision_figures(cells, of_cells(predicted.itl), of_cells(predicted.power))


def _sweep_scores(training: Training, predicted: RowPredictions, swept: Mask) -> dict[str, Any]:
    rows = training.rows
    c = rows.columns
    parts: Mapping[str, Mask] = {
        "dense": (c.mixture == 0) & (c.hybrid == 0),
        "mixture": c.mixture > 0,
        "hybrid": c.hybrid > 0,
        "fp8": (c.quantized > 0) & (c.bytes_per_weight == 1),
        "four_bit": c.bytes_per_weight < 1,
        "one_gpu": c.gpus == 1,
        "several_gpus": c.gpus > 1,
    }
    targets = {
        "itl": (rows.itl, predicted.itl),
        "power": (rows.power, predicted.power),
        "itl_p95": (training.itl_p95, predicted.itl_p95),
    }
    result: dict[str, Any] = {}
    for name, (truth, guess) in targets.items():
        error = np.abs(guess / truth - 1) * 100
        known = swept & np.isfinite(error)
        if not known.any():
            continue
        result[name] = {
            "mdape_percent": float(np.median(error[known])),
            "p90_percent": float(np.percentile(error[known], 90)),
            "n": int(known.sum()),
            "by_kind": {kind: _median(error[known & mask]) for kind, mask in parts.items()},
            "by_family": {
                str(family): _median(error[known & (rows.family == family)])
                for family in np.unique(rows.family[known])
            },
        }
    return result


def _median(errors: Array) -> float | None:
    return float(np.median(errors)) if len(errors) else None
