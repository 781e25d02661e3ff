"""Predicted figures as a status shows them: whole watts, durations of three digits, no floats.

Upper bounds are rounded up, so that none is shown below itself.
"""

from __future__ import annotations

import math
from typing import Any

from wattkeeper.api.conditions import cut
from wattkeeper.api.quantities import format_duration
from wattkeeper.api.v1alpha1.llmdeployment_status import MAX_MESSAGE
from wattkeeper.core.decision import Candidate
from wattkeeper.core.demand import Sla
from wattkeeper.core.forecast import Forecast


def gpu_shown(candidate: Candidate) -> str:
    """The catalogue's name of the GPU, else the nodes' label."""
    return cut(candidate.gpu_name or candidate.gpu_label or "unknown", 128)


def prediction_of(forecast: Forecast, sla: Sla) -> dict[str, Any]:
    """`status.prediction`."""
    prediction: dict[str, Any] = _figures(forecast)
    if forecast.ttft_seconds is not None:
        prediction["timeToFirstToken"] = format_duration(forecast.ttft_seconds)
    if forecast.ttft_upper_seconds is not None and math.isfinite(forecast.ttft_upper_seconds):
        prediction["timeToFirstTokenUpper"] = format_duration(forecast.ttft_upper_seconds, upward=True)
    prediction["statistic"] = sla.statistic.value
    prediction["confidencePercent"] = sla.confidence_percent
    if forecast.notes:
        prediction["notes"] = [cut(note, MAX_MESSAGE) for note in forecast.notes[:16]]
    return prediction


def _figures(forecast: Forecast) -> dict[str, Any]:
    return {
        "powerWatts": round(forecast.power_watts),
        "powerUpperWatts": math.ceil(forecast.power_upper_watts),
        "interTokenLatency": format_duration(forecast.itl_seconds),
        "interTokenLatencyUpper": format_duration(forecast.itl_upper_seconds, upward=True),
    }


def candidate_row(candidate: Candidate) -> dict[str, Any]:
    """One row of `status.candidates`."""
    row: dict[str, Any] = {
        "pool": candidate.pool,
        "gpu": gpu_shown(candidate),
        "gpusPerReplica": candidate.gpus_per_replica,
        "freeGPUs": max(0, candidate.gpus_free),
        "feasible": candidate.feasible,
    }
    if candidate.forecast is not None:
        row |= _figures(candidate.forecast)
    if candidate.rejection is not None:
        row["reason"] = cut(candidate.rejection.reason, 64)
        row["message"] = cut(candidate.rejection.message, MAX_MESSAGE)
    return row
