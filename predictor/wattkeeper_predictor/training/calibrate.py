"""Held-out errors of the recipe in each regime, and the bound factors they give.

An error is ln(truth ÷ prediction) of one run. Regimes and what plays the group in them:

* measured: a run against the mean of the other runs of its cell; cells;
* unseen_model: the LLM held out; LLMs;
* unseen_gpu: the GPU held out; GPUs;
* unseen_both: the GPU and a sixth of the LLMs held out; GPUs.

A held-out LLM is described as an unseen one will be: with the parameter count computed from its
architecture, not the advertised one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.catalog import ModelCatalogue
from wattkeeper_predictor.conformal import coverage_by_group, factor_at, upper_factors
from wattkeeper_predictor.errors import UnknownModel
from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.recipes.wattgpu.trees import fit_pair
from wattkeeper_predictor.specs import ModelSpec

from .dataset import Dataset
from .evaluate import Progress, cases_of, targets
from .protocols import groups_of
from .runs import Run

Array = NDArray[np.float64]
_MODEL_FOLDS = 6
_REPORTED_PERCENT = 90
TARGETS = ("power", "itl")


def calibrate(data: Dataset, progress: Progress = lambda _: None) -> dict[str, Any]:
    """For each regime: number of groups, factors by level and target for 50 to 99 %, and coverage at 90 %."""
    gpus, models = groups_of(data.runs, "gpu"), groups_of(data.runs, "model")
    progress("errors within measured cells")
    tables = {"measured": _table(data.runs, _errors_within_cells(data), _cell_of)}
    progress(f"errors of {len(set(models))} LLMs held out one by one")
    errors = _held_out_errors(data, [(models == name, models == name) for name in sorted(set(models))])
    tables["unseen_model"] = _table(data.runs, errors, lambda run: run.model)
    progress(f"errors of {len(set(gpus))} GPUs held out one by one")
    errors = _held_out_errors(data, [(gpus == name, gpus == name) for name in sorted(set(gpus))])
    tables["unseen_gpu"] = _table(data.runs, errors, lambda run: run.gpu)
    progress("errors of GPUs and LLMs held out together")
    errors = _held_out_errors(data, _crossed(gpus, models))
    tables["unseen_both"] = _table(data.runs, errors, lambda run: run.gpu)
    return _never_narrower(tables)


def _never_narrower(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables with each factor at least that of the regime before it, which knows more.

    By the luck of few groups, the errors of less knowledge may come out the smaller.
    """
    before: dict[str, Any] | None = None
    for table in tables.values():
        for level, of_level in table["factors"].items():
            for target, factors in of_level.items():
                if before is not None:
                    known = before["factors"][level][target]
                    of_level[target] = [max(pair) for pair in zip(factors, known, strict=True)]
        before = table
    return tables


def _crossed(gpus: NDArray[Any], models: NDArray[Any]) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Pairs of (rows to predict, rows kept out of training)."""
    names = sorted(set(models.tolist()))
    pairs = []
    for gpu in sorted(set(gpus.tolist())):
        for fold in range(min(_MODEL_FOLDS, len(names))):
            in_fold = np.isin(models, names[fold::_MODEL_FOLDS])
            pairs.append(((gpus == gpu) & in_fold, (gpus == gpu) | in_fold))
    return pairs


def _held_out_errors(
    data: Dataset, splits: Sequence[tuple[NDArray[np.bool_], NDArray[np.bool_]]]
) -> dict[str, Array]:
    cases = cases_of(data)
    as_unseen = [case._replace(model=_as_unseen(case.model)) for case in cases]
    power, itl = targets(data.runs)
    errors = {name: np.full(len(cases), np.nan) for name in TARGETS}
    for wanted, kept_out in splits:
        train_rows, test_rows = np.flatnonzero(~kept_out).tolist(), np.flatnonzero(wanted).tolist()
        if not test_rows or not train_rows:
            continue
        pair = fit_pair([cases[i] for i in train_rows], power[train_rows], itl[train_rows])
        # Where the LLM stays in training it keeps its row there.
        seen = {cases[i].model.id for i in train_rows}
        asked = [cases[i] if cases[i].model.id in seen else as_unseen[i] for i in test_rows]
        errors["power"][test_rows] = np.log(power[test_rows] / pair.power_watts(asked))
        errors["itl"][test_rows] = np.log(itl[test_rows] / pair.itl_seconds(asked))
    return errors


def _as_unseen(model: ModelSpec) -> ModelSpec:
    try:
        return ModelCatalogue.load().get(model.id)
    except UnknownModel:
        return model


def _errors_within_cells(data: Dataset) -> dict[str, Array]:
    rows_of: dict[tuple[str, str, Level], list[int]] = defaultdict(list)
    for index, run in enumerate(data.runs):
        rows_of[run.model, run.gpu, run.level].append(index)
    errors = {name: np.full(len(data.runs), np.nan) for name in TARGETS}
    for name, truth in zip(TARGETS, targets(data.runs), strict=True):
        for rows in rows_of.values():
            if len(rows) < 2:
                continue
            others = (truth[rows].sum() - truth[rows]) / (len(rows) - 1)
            errors[name][rows] = np.log(truth[rows] / others)
    return errors


def _cell_of(run: Run) -> str:
    return f"{run.model} on {run.gpu}"


def _table(runs: Sequence[Run], errors: dict[str, Array], group: Callable[[Run], str]) -> dict[str, Any]:
    factors: dict[str, Any] = {}
    coverage: dict[str, Any] = {}
    counts = []
    for level in Level:
        factors[level.name.lower()] = {}
        coverage[level.name.lower()] = {}
        for target in TARGETS:
            grouped: dict[str, list[float]] = defaultdict(list)
            for run, error in zip(runs, errors[target].tolist(), strict=True):
                if run.level is level and not np.isnan(error):
                    grouped[group(run)].append(error)
            counts.append(len(grouped))
            factors[level.name.lower()][target] = [round(factor, 4) for factor in upper_factors(grouped)]
            coverage[level.name.lower()][target] = _coverage(grouped)
    return {"groups": min(counts), "coverage_90_percent": coverage, "factors": factors}


def _coverage(grouped: dict[str, list[float]]) -> dict[str, float]:
    """Each group's coverage by a bound made of the others: the mean of groups, and the worst group."""
    shares = []
    for name, errors in grouped.items():
        others = {other: values for other, values in grouped.items() if other != name}
        factor = factor_at(upper_factors(others), _REPORTED_PERCENT)
        shares.append(coverage_by_group({name: errors}, factor)[name])
    return {"mean": round(100 * float(np.mean(shares)), 1), "worst_group": round(100 * min(shares), 1)}
