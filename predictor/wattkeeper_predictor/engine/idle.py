"""Watts that a GPU draws with a CUDA context and no work, from its data sheet.

A context holds the clocks up (seed 002), so what leaks grows with multiprocessors × clock and with the size
of the board, for which TDP stands. Memory in use adds nothing measurable (seed 002), hence isn't asked.
One reading of the real GPU is worth more than this: see ``anchoring``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Equal parts of both, a little less than proportional; decides only as far as few GPUs are measured.
_PRIOR_EXPONENTS = np.array([0.5, 0.4])
_RIDGE = 0.1


@dataclass(frozen=True, slots=True)
class IdleModel:
    """watts = e^offset · (multiprocessors·GHz)^clock_exponent · TDP^tdp_exponent."""

    offset: float
    clock_exponent: float
    tdp_exponent: float

    def watts(self, sm_ghz: Array, tdp_watts: Array) -> Array:
        """Context-idle watts of one GPU each, at most 90 % of TDP."""
        drawn: Array = np.exp(self.offset) * sm_ghz**self.clock_exponent * tdp_watts**self.tdp_exponent
        capped: Array = np.minimum(drawn, 0.9 * tdp_watts)
        return capped


def fit_idle(sm_ghz: Array, tdp_watts: Array, idle_watts: Array) -> IdleModel:
    """Ridge regression of logarithms towards the prior exponents; arrays of one value a GPU."""
    features = np.column_stack([np.log(sm_ghz), np.log(tdp_watts)])
    target = np.log(idle_watts) - features @ _PRIOR_EXPONENTS
    design = np.column_stack([np.ones(len(target)), features])
    penalty = _RIDGE * len(target) * np.diag([0.0, 1.0, 1.0])
    offset, *off_prior = np.linalg.solve(design.T @ design + penalty, design.T @ target).tolist()
    exponents = _PRIOR_EXPONENTS + np.array(off_prior)
    return IdleModel(round(offset, 6), round(float(exponents[0]), 6), round(float(exponents[1]), 6))
