"""Error and calibration plots of held-out predictions. Needs matplotlib, a development dependency."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.conformal import (
    LEAST_CONFIDENCE_PERCENT,
    MOST_CONFIDENCE_PERCENT,
    coverage_by_group,
    factor_at,
    upper_factors,
)
from wattkeeper_predictor.errors import InvalidInput

from .calibrate_wattkeeper import grouped_errors
from .evaluate_wattkeeper import groups_by
from .fit_recipe import Training
from .measured import Source
from .predict_rows import RowPredictions

Array = NDArray[np.float64]
_TARGETS = {"itl": "latency, seconds", "power": "power of a GPU, watts"}


def draw(folder: Path, training: Training, predicted: RowPredictions, protocol: str) -> list[Path]:
    """Write the plots as PNG and SVG; raises ``InvalidInput`` where matplotlib isn't installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - a development dependency

        mpl.use("Agg")
        # Equal figures give equal bytes.
        mpl.rcParams["svg.hashsalt"] = "wattkeeper"
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError as missing:
        raise InvalidInput(
            "plots", f"needs matplotlib ({missing}); install the development dependencies"
        ) from missing
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for target, shown in _TARGETS.items():
        for name, figure in (
            (f"{target}-errors", _errors(plt, training, predicted, target, shown)),
            (f"{target}-calibration", _calibration(plt, training, predicted, target, protocol)),
        ):
            for suffix in ("png", "svg"):
                path = folder / f"{protocol}-{name}.{suffix}"
                metadata = {"Date": None} if suffix == "svg" else {"Software": None}
                figure.savefig(path, dpi=120, metadata=metadata)
                written.append(path)
            plt.close(figure)
    return written


def _errors(plt: Any, training: Training, predicted: RowPredictions, target: str, shown: str) -> Any:
    """Measured against predicted, and the spread of errors by source and GPU."""
    rows = training.rows
    truth, guess = getattr(rows, target), getattr(predicted, target)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for source in Source:
        known = (rows.source == source) & np.isfinite(guess)
        if known.any():
            left.plot(guess[known], truth[known], ".", markersize=3, label=source.name.lower())
    ends = [float(np.nanmin(truth)), float(np.nanmax(truth))]
    left.plot(ends, ends, color="0.4", linewidth=0.8)
    left.set(xscale="log", yscale="log", xlabel=f"predicted {shown}", ylabel="measured")
    left.legend()
    labels, spreads = [], []
    for label, errors in _by_gpu(training, np.log(guess / truth)):
        labels.append(label)
        spreads.append(100 * np.expm1(errors))
    right.boxplot(spreads, orientation="horizontal", whis=(5, 95), showfliers=False)
    right.set_yticks(range(1, len(labels) + 1), labels, fontsize=7)
    right.axvline(0, color="0.4", linewidth=0.8)
    right.set(xlabel="predicted against measured, %")
    return figure


def _by_gpu(training: Training, errors: Array) -> Iterator[tuple[str, Array]]:
    rows = training.rows
    for source in Source:
        for gpu in np.unique(rows.gpu):
            known = (rows.source == source) & (rows.gpu == gpu) & np.isfinite(errors)
            if known.any():
                yield f"{gpu}, {source.name.lower()}", errors[known]


def _calibration(plt: Any, training: Training, predicted: RowPredictions, target: str, protocol: str) -> Any:
    """Nominal confidence of upper bounds made of the other groups, against how often they held."""
    rows = training.rows
    groups = groups_by(rows, protocol)
    errors = np.log(getattr(rows, target) / getattr(predicted, target))
    figure, axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
    levels = np.arange(LEAST_CONFIDENCE_PERCENT, MOST_CONFIDENCE_PERCENT + 1)
    for source in Source:
        grouped = grouped_errors(errors, groups, rows.source == source)
        if len(grouped) < 2:
            continue
        held = np.zeros((len(grouped), len(levels)))
        for place, (name, own) in enumerate(grouped.items()):
            factors = upper_factors({other: values for other, values in grouped.items() if other != name})
            for at, level in enumerate(levels):
                held[place, at] = coverage_by_group({name: own}, factor_at(factors, float(level)))[name]
        axes.plot(levels, 100 * held.mean(axis=0), label=f"{source.name.lower()}, mean of groups")
        axes.plot(levels, 100 * held.min(axis=0), ":", label=f"{source.name.lower()}, worst group")
    axes.plot(levels, levels, color="0.4", linewidth=0.8)
    axes.set(xlabel="nominal confidence, %", ylabel="bounds that held, %")
    axes.legend(fontsize=7)
    return figure
