"""Predict measured rows as a user would: with a workload hint or without, with telemetry or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.engine.columns import Columns
from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.recipes.wattkeeper.figures import figures
from wattkeeper_predictor.recipes.wattkeeper.fitted import Fitted
from wattkeeper_predictor.recipes.wattkeeper.recall import known_of

from .measured import NOMINAL_QUEUE, Measured, Source

Array = NDArray[np.float64]
ANCHORS = ("idle", "length", "duty")


@dataclass(frozen=True, slots=True)
class Anchors:
    """What is known of rows besides public metadata.

    ``length``: the mean output length (and how many requests an offline run had). ``idle``: each GPU's
    context-idle watts, as telemetry reads them. ``duty``: the realised mean number of requests.
    """

    idle: bool = False
    length: bool = False
    duty: bool = False


def parse_anchors(text: str | None) -> Anchors:
    """From ``idle,length,duty`` in any order; raises ``InvalidInput`` for another word."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word not in ANCHORS:
            raise InvalidInput("anchored", f"{word!r} isn't one of {', '.join(ANCHORS)}")
    return Anchors(idle="idle" in words, length="length" in words, duty="duty" in words)


@dataclass(frozen=True, slots=True)
class RowPredictions:
    """One value a row: seconds of the kind that the row measured, watts a GPU, and a sequence's latency."""

    itl: Array
    power: Array
    itl_p95: Array
    latency: Array


def predict_rows(
    fitted: Fitted, rows: Measured, anchors: Anchors, idle_watts: Mapping[str, float]
) -> RowPredictions:
    """Predict; ``idle_watts`` (telemetry) are used with ``anchors.idle`` where the GPU is unseen."""
    c = rows.columns
    if not anchors.length:
        c = _without_hint(fitted, rows)
    known = known_of(fitted, c, rows.gpu.tolist(), rows.model.tolist())
    if anchors.idle:
        read = np.array([idle_watts.get(gpu, np.nan) for gpu in rows.gpu.tolist()])
        known = replace(known, idle_watts=np.where(np.isnan(known.idle_watts), read, known.idle_watts))
    if anchors.duty:
        known = replace(known, duty=rows.duty)
    answer = figures(fitted, c, known)
    server = np.where(rows.with_first > 0, answer.per_token, answer.itl)
    swept = np.where(rows.source == Source.SWEEP, answer.step, server)
    itl = np.where(rows.source == Source.OFFLINE, answer.inverse_throughput, swept)
    return RowPredictions(itl, answer.power, answer.itl_p95, answer.itl)


def _without_hint(fitted: Fitted, rows: Measured) -> Columns:
    """Output lengths as training knows them: the model's own where it was seen, else a typical one's."""
    seen = {name: model.output_tokens for name, model in fitted.models.items() if model.output_tokens}
    typical = fitted.typical_output_tokens
    lengths = np.array([seen.get(model, typical) for model in rows.model.tolist()])
    swept = rows.source == Source.SWEEP
    return rows.columns.replace(
        output=np.where(swept, rows.columns.output, lengths),
        queue=np.where(np.isinf(rows.columns.queue), np.inf, NOMINAL_QUEUE),
    )
