"""What each protocol holds out of a table of measured rows, and the predictions of fits without it.

* ``cv``: shuffled fifths; ``logo``: each GPU; ``lolo``: each LLM; ``lomo``: each family of models;
* ``both``: each GPU together with a sixth of the LLMs (what an unseen pair is).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.recipes.wattkeeper.fitted import Fitted

from .fit_engine import idle_watts_of
from .fit_recipe import Training, fit_recipe
from .measured import Measured
from .predict_rows import Anchors, RowPredictions, predict_rows

Mask = NDArray[np.bool_]
Progress = Callable[[str], None]
FoldProtocol = Literal["cv", "logo", "lolo", "lomo", "both"]
FOLD_PROTOCOLS: tuple[FoldProtocol, ...] = ("cv", "logo", "lolo", "lomo", "both")
_FOLDS = 5
_MODEL_FOLDS = 6
_SEED = 42
_LABELS = {"logo": "gpu", "lolo": "model", "lomo": "family"}


class Fold(NamedTuple):
    """Rows to predict, and rows that the fit may not see (those and perhaps more)."""

    wanted: Mask
    held_out: Mask


def folds(rows: Measured, protocol: FoldProtocol) -> Iterator[Fold]:
    """The folds in a fixed order; raises ``InvalidInput`` if there is nothing left to fit."""
    if protocol == "cv":
        order = np.random.default_rng(_SEED).permutation(len(rows))
        for part in np.array_split(order, _FOLDS):
            mask = np.zeros(len(rows), dtype=bool)
            mask[part] = True
            yield Fold(mask, mask)
        return
    if protocol == "both":
        yield from _crossed(rows)
        return
    groups = getattr(rows, _LABELS[protocol])
    names = np.unique(groups)
    if len(names) < 2:
        raise InvalidInput(
            "protocol", f"{protocol} needs at least two groups, but the runs have {len(names)}"
        )
    for name in names:
        yield Fold(groups == name, groups == name)


def _crossed(rows: Measured) -> Iterator[Fold]:
    models = np.unique(rows.model)
    for gpu in np.unique(rows.gpu):
        for part in range(min(_MODEL_FOLDS, len(models))):
            in_part = np.isin(rows.model, models[part::_MODEL_FOLDS])
            wanted = (rows.gpu == gpu) & in_part
            if wanted.any():
                yield Fold(wanted, (rows.gpu == gpu) | in_part)


def held_out_predictions(  # noqa: PLR0913 - options by name
    training: Training,
    protocol: FoldProtocol,
    anchors: Mapping[str, Anchors],
    *,
    start: Fitted | None = None,
    only: Mask | None = None,
    progress: Progress = lambda _: None,
) -> dict[str, RowPredictions]:
    """Predictions of every row by a fit without its fold, for each set of anchors; NaN where not ``only``.

    ``start`` (a fit to all rows) saves time; the fits end where they would without it.
    """
    rows = training.rows
    telemetry = idle_watts_of(rows)
    names = [field.name for field in fields(RowPredictions)]
    answers = {key: {name: np.full(len(rows), np.nan) for name in names} for key in anchors}
    for number, (wanted, held_out) in enumerate(folds(rows, protocol), start=1):
        asked = wanted if only is None else wanted & only
        if not asked.any() or held_out.all():
            continue
        progress(
            f"{protocol} fold {number}: {int((~held_out).sum())} rows to fit, {int(asked.sum())} to predict"
        )
        fitted = fit_recipe(training.without(held_out), start)
        picked = rows.take(asked)
        for key, given in anchors.items():
            answer = predict_rows(fitted, picked, given, telemetry)
            for name in names:
                answers[key][name][asked] = getattr(answer, name)
    return {key: RowPredictions(**arrays) for key, arrays in answers.items()}
