"""From telemetry to figures: readings as errors to learn from, and learnt shifts as corrections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wattkeeper_predictor.anchoring import AnchorState, Quantity
from wattkeeper_predictor.engine.columns import Columns
from wattkeeper_predictor.observation import Observed
from wattkeeper_predictor.prediction import Query

from .figures import Figures, Known
from .fitted import Fitted

_LEAST_RISE_WATTS = 1.0


def errors_of(observed: Observed, c: Columns, figured: Figures) -> dict[Quantity, float]:
    """ln(observed ÷ predicted) of each quantity that was read; one question."""
    errors: dict[Quantity, float] = {}
    idle = float(figured.idle_watts[0])
    if observed.itl_seconds is not None:
        errors["itl"] = math.log(observed.itl_seconds / float(figured.itl[0]))
    if observed.context_idle_watts is not None:
        errors["idle"] = math.log(observed.context_idle_watts / idle)
        idle = observed.context_idle_watts
    if observed.active_watts is not None:
        rise = max(observed.active_watts - idle, _LEAST_RISE_WATTS)
        errors["rise"] = math.log(rise / max(float(figured.active_rise[0]), _LEAST_RISE_WATTS))
    return errors


def anchored(
    known: Known, queries: Sequence[Query], c: Columns, fitted: Fitted, anchors: AnchorState
) -> Known:
    """``known`` with what evidence says of each question, and with the duty that was read of it."""
    if not anchors.evidence and all(query.observed is None for query in queries):
        return known
    idle = np.where(np.isnan(known.idle_watts), fitted.idle.watts(c.sm_ghz, c.tdp_watts), known.idle_watts)
    itl = known.itl_factor.copy()
    rise = known.rise_shift.copy()
    duty = known.duty.copy()
    shifts: dict[tuple[str, str], tuple[float, float, float]] = {}
    for place, query in enumerate(queries):
        key = (query.gpu.name, query.model.id)
        if key not in shifts:
            shifts[key] = (
                anchors.shift("itl", *key).mean,
                anchors.shift("rise", *key).mean,
                anchors.shift("idle", *key).mean,
            )
        of_itl, of_rise, of_idle = shifts[key]
        itl[place] += of_itl
        rise[place] += of_rise
        idle[place] *= math.exp(of_idle)
        if query.observed is not None and query.observed.duty is not None:
            duty[place] = query.observed.duty
    idle = np.minimum(idle, 0.98 * c.tdp_watts)
    touched = bool(anchors.evidence.get("idle"))
    return replace(
        known,
        itl_factor=itl,
        rise_shift=rise,
        duty=duty,
        idle_watts=idle if touched else known.idle_watts,
    )
