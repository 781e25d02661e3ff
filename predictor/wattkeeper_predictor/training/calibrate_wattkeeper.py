"""Interval tables and coverage of the recipe ``wattkeeper``, from held-out predictions.

An error is ln(truth ÷ prediction) of a row, output lengths known (a workload always says them). Groups are
what a new case is one more of: runs of a cell for a measured pair, LLMs, GPUs, or families of models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.conformal import coverage_by_group, factor_at, upper_factors
from wattkeeper_predictor.recipes.wattkeeper.figures import plain
from wattkeeper_predictor.recipes.wattkeeper.intervals import KINDS

from .fit_recipe import Training
from .measured import Labels, Measured, Source, cell_keys
from .predict_rows import RowPredictions

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
_REPORTED_PERCENT = 90
_SCENARIOS = {"server": Source.SERVER, "offline": Source.OFFLINE}
_GROUPED_BY = {"measured": "cell", "unseen_model": "model", "unseen_gpu": "gpu", "unseen_both": "gpu"}


def interval_tables(
    training: Training, held_out: Mapping[str, Mapping[str, RowPredictions]]
) -> dict[str, dict[str, Any]]:
    """All tables. ``held_out``: by regime (and ``sweep``), then by anchors: ``length`` and ``idle``."""
    rows = training.rows
    tables: dict[str, dict[str, Any]] = {}
    for regime, by in _GROUPED_BY.items():
        if regime not in held_out:
            continue
        groups = cell_keys(rows) if by == "cell" else getattr(rows, by)
        for scenario, source in _SCENARIOS.items():
            wanted = (rows.source == source) & plain(rows.columns)
            table = _targets(rows, held_out[regime]["length"], groups, wanted)
            if "idle" in held_out[regime]:
                known = _targets(rows, held_out[regime]["idle"], groups, wanted)
                table |= {"power_idle_known": known["power"]} if "power" in known else {}
            if table:
                tables[f"{regime}/{scenario}"] = table
    if "sweep" in held_out:
        tables |= _sweep_tables(training, held_out["sweep"]["length"], held_out)
    return tables


def _sweep_tables(
    training: Training, families_out: RowPredictions, held_out: Mapping[str, Mapping[str, RowPredictions]]
) -> dict[str, dict[str, Any]]:
    rows = training.rows
    c = rows.columns
    swept = rows.source == Source.SWEEP
    kinds = {
        "mixture": c.mixture > 0,
        "quantized": c.quantized > 0,
        "parallel": c.gpus > 1,
        "hybrid": c.hybrid > 0,
    }
    tables = {}
    for kind in KINDS:
        wanted = swept & kinds[kind]
        predicted, groups = families_out, rows.family
        if kind == "mixture" and "unseen_model" in held_out:
            # Mixtures on other GPUs than the sweep's, held out as models.
            others = (rows.source == Source.SERVER) & kinds[kind] & (c.old == 0)
            predicted = _merged(families_out, held_out["unseen_model"]["length"], others)
            groups = np.where(others, rows.model, rows.family)
            wanted |= others
        table = _targets(rows, predicted, groups, wanted, training.itl_p95)
        if table:
            tables[f"sweep/{kind}"] = table
        if kind == "mixture" and "unseen_model" in held_out:
            elsewhere = held_out["unseen_model"]["length"]
            queued = (rows.source == Source.OFFLINE) & kinds[kind] & (c.old == 0)
            # Before compute capability 8.0 mixtures run several times slower than anything here says.
            old = (rows.source != Source.SWEEP) & kinds[kind] & (c.old > 0)
            for name, chosen in (("offline/mixture", queued), ("old/mixture", old)):
                found = _targets(rows, elsewhere, rows.model, chosen)
                tables |= {name: found} if found else {}
    single = _targets(rows, families_out, rows.family, swept & plain(c), training.itl_p95)
    tables |= {"sweep/plain": single} if single else {}
    if "measured" in held_out:
        tables["measured/sweep"] = _targets(
            rows, held_out["measured"]["length"], rows.model, swept, training.itl_p95
        )
    return tables


def _merged(first: RowPredictions, second: RowPredictions, where_second: Mask) -> RowPredictions:
    def chosen(name: str) -> Array:
        merged: Array = np.where(where_second, getattr(second, name), getattr(first, name))
        return merged

    return RowPredictions(chosen("itl"), chosen("power"), chosen("itl_p95"), chosen("latency"))


def _targets(
    rows: Measured, predicted: RowPredictions, groups: Labels, wanted: Mask, itl_p95: Array | None = None
) -> dict[str, Any]:
    """Tables of ITL and power, and of the 95th percentile where it was measured; none without rows."""
    errors = {"itl": np.log(rows.itl / predicted.itl), "power": np.log(rows.power / predicted.power)}
    if itl_p95 is not None:
        errors["itl_p95"] = np.log(itl_p95 / predicted.itl_p95)
    tables = {}
    for target, values in errors.items():
        grouped = grouped_errors(values, groups, wanted)
        if grouped:
            tables[target] = table_of(grouped)
    return tables


def grouped_errors(values: Array, groups: Labels, wanted: Mask) -> dict[str, list[float]]:
    """Finite errors of the wanted rows, by group."""
    grouped: dict[str, list[float]] = defaultdict(list)
    for place in np.flatnonzero(wanted & np.isfinite(values)).tolist():
        grouped[str(groups[place])].append(float(values[place]))
    return dict(grouped)


def table_of(grouped: Mapping[str, list[float]]) -> dict[str, Any]:
    """Factors from 50 to 99 %, both sides, with the groups they rest on and how well they cover others."""
    mirrored = {name: [-error for error in errors] for name, errors in grouped.items()}
    upper, lower = upper_factors(grouped), upper_factors(mirrored)
    return {
        "groups": len(grouped),
        "coverage_90_percent": coverage(grouped),
        "upper": [round(factor, 4) for factor in upper],
        "lower": [round(factor, 4) for factor in lower],
    }


def coverage(grouped: Mapping[str, list[float]]) -> dict[str, Any]:
    """Each group's coverage by bounds made of the others: mean over groups, worst group, and the factor.

    ``two_sided`` is of the interval at the same confidence.
    """
    if len(grouped) < 2:
        return {"mean": None, "worst_group": None, "two_sided_mean": None, "two_sided_worst_group": None}
    above, between = [], []
    for name, errors in grouped.items():
        others = {other: values for other, values in grouped.items() if other != name}
        mirrored = {other: [-error for error in values] for other, values in others.items()}
        factor = factor_at(upper_factors(others), _REPORTED_PERCENT)
        above.append(coverage_by_group({name: errors}, factor)[name])
        both = (100 + _REPORTED_PERCENT) / 2
        high, low = factor_at(upper_factors(others), both), factor_at(upper_factors(mirrored), both)
        values = np.asarray(errors)
        between.append(float(np.mean((values <= np.log(high) + 1e-12) & (values >= -np.log(low) - 1e-12))))
    return {
        "mean": round(100 * float(np.mean(above)), 1),
        "worst_group": round(100 * min(above), 1),
        "two_sided_mean": round(100 * float(np.mean(between)), 1),
        "two_sided_worst_group": round(100 * min(between), 1),
    }
