"""What the paper compares against: TDP, TDP scaled by load, and the roofline.

* ``TDP``: a board draws its thermal design power, whatever it does.
* ``LS-TDP``: a share of TDP for each load level, fitted by least squares.
* ``Roofline``: a step takes the longer of reading the weights once and computing its tokens, at the data
  sheet's rates; one sequence at a time for a user's request, 256 (vLLM's default limit) offline, where
  the time is divided by the sequences to give inverse throughput.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.recipes.wattgpu.features import (
    Case,
    bandwidth_latency_seconds,
    compute_latency_seconds,
)

Array = NDArray[np.float64]
OFFLINE_SEQUENCES = 256


def baseline_predictions(
    cases: Sequence[Case], power_watts: Array
) -> dict[str, tuple[Array | None, Array | None]]:
    """Power in watts and ITL in seconds of each baseline, None where it says nothing of one.

    As in the paper, the shares of LS-TDP are fitted on all rows once: three numbers, whatever the protocol.
    """
    tdp = np.array([case.gpu.tdp_watts for case in cases])
    return {
        "TDP": (tdp, None),
        "LS-TDP": (_scaled_tdp(cases, tdp, power_watts), None),
        "Roofline": (None, np.array([_roofline_seconds(case) for case in cases])),
    }


def _scaled_tdp(cases: Sequence[Case], tdp: Array, power_watts: Array) -> Array:
    levels = np.array([case.level for case in cases])
    scaled = np.empty_like(tdp)
    for level in np.unique(levels):
        rows = levels == level
        scaled[rows] = tdp[rows] * (tdp[rows] @ power_watts[rows] / (tdp[rows] @ tdp[rows]))
    return scaled


def _roofline_seconds(case: Case) -> float:
    sequences = OFFLINE_SEQUENCES if case.level is Level.OFFLINE else 1
    read = bandwidth_latency_seconds(case.model, case.gpu) / sequences
    return max(read, compute_latency_seconds(case.model, case.gpu) or 0.0)
