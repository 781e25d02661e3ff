"""The 95th percentile of the time between tokens: a plain step jitters, one that carries prompts is longer.

Prompts join steps at random. Once more than one step in twenty carries one, the 95th percentile is a step
with a prompt; the more prompts a step may have to carry, the longer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .batch import Steady
from .columns import Columns
from .parameters import StepParameters
from .step import prompt_seconds

Array = NDArray[np.float64]
_Z95 = 1.645
# Chosen so that nothing is added below one prompt in twenty steps.
_NONE_BELOW = 0.418


@dataclass(frozen=True, slots=True, kw_only=True)
class TailParameters:
    """Fitted factors, all positive."""

    jitter: float  # share that a plain step's 95th percentile lies above its median
    prompt: float  # a prompt's cost in a mixed step over its operations alone
    mixed_layer: float  # seconds a layer and prompt: a step with prompts runs no captured graph

    def vector(self) -> Array:
        """Logarithms, in the order of the fields."""
        return np.log(np.array([getattr(self, field.name) for field in fields(self)], dtype=np.float64))

    def as_dict(self) -> dict[str, float]:
        """By name, as the manifest keeps them."""
        return asdict(self)


PRIOR_MEDIANS = np.array([0.05, 1.5, 30e-6])
PRIOR_WIDTHS = np.array([0.5, 0.7, 1.0])


def from_vector(logarithms: Array) -> TailParameters:
    """The inverse of ``TailParameters.vector``."""
    names = [field.name for field in fields(TailParameters)]
    return TailParameters(**dict(zip(names, np.exp(logarithms).tolist(), strict=True)))


def itl_p95(t: TailParameters, p: StepParameters, c: Columns, state: Steady) -> Array:
    """Seconds; never below the mean, never falling with the load."""
    arriving = np.where(
        (c.offline == 0) & np.isnan(c.fixed_batch), c.rate * state.itl, state.running / c.output
    )
    prompts = np.maximum(arriving + _Z95 * np.sqrt(arriving) - _NONE_BELOW, 0)
    carried = prompts * (t.prompt * prompt_seconds(p, c) + t.mixed_layer * c.layers)
    plain: Array = np.maximum(state.step * (1 + t.jitter) + carried, state.itl)
    return plain
