"""What one GPU draws: idle with a context, and more for the share of time that something runs.

    power = idle + busy · cap(alone + batch, TDP − idle)

``alone`` is the rise for a single sequence, which reads weights at some share of the bandwidth; ``batch``
the rise for computing the other sequences. ``cap`` is a soft minimum. Each part grows with the load or
stays, so a higher load never draws less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .batch import Steady
from .columns import Columns
from .parameters import Prior
from .step import gflop_per_token, matrix_tflops, weight_gb_per_gpu

Array = NDArray[np.float64]
_REFERENCE_TDP_WATTS = 300.0
_REFERENCE_READ_SHARE = 0.8
_LEAST_ROOM_WATTS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerParameters:
    """Fitted factors."""

    board: float  # share of the reference board's TDP that a sequence alone adds at full bandwidth
    board_exponent: float  # how that grows with TDP
    bandwidth: float  # watts a GB/s that it adds
    read_exponent: float  # how the rise grows with the share of bandwidth in use
    least_read: float  # what a kernel draws without reading, as a share of bandwidth
    compute: float  # share of TDP that computing at the full dense rate adds
    compute_exponent: float
    cap: float  # how sharply TDP caps

    def vector(self) -> Array:
        """Logarithms, in the order of the fields."""
        return np.log(np.array([getattr(self, field.name) for field in fields(self)], dtype=np.float64))

    def as_dict(self) -> dict[str, float]:
        """By name, as the manifest keeps them."""
        return asdict(self)


POWER_PRIORS: Mapping[str, Prior] = {
    "board": Prior(0.42, 0.3),
    "board_exponent": Prior(1.0, 0.3),
    "bandwidth": Prior(0.04, 0.3),
    "read_exponent": Prior(0.68, 0.3),
    "least_read": Prior(0.02, 1.0),
    "compute": Prior(0.5, 0.7),
    "compute_exponent": Prior(0.8, 0.4),
    "cap": Prior(3.0, 0.5),
}
NAMES: tuple[str, ...] = tuple(field.name for field in fields(PowerParameters))


def from_vector(logarithms: Array) -> PowerParameters:
    """The inverse of ``PowerParameters.vector``."""
    return PowerParameters(**dict(zip(NAMES, np.exp(logarithms).tolist(), strict=True)))


def read_share(c: Columns, single: Array) -> Array:
    """Share of the nominal bandwidth at which a sequence alone reads weights."""
    return weight_gb_per_gpu(c, np.ones(len(c))) / c.bandwidth_gb_s / single


def compute_share(c: Columns, state: Steady) -> Array:
    """Share of the dense rate that the sequences beyond the first take; it never falls with their number.

    Hence without the jump in time where graphs end: launching kernels one by one draws no less.
    """
    gflop = gflop_per_token(c) * np.maximum(state.running - 1, 0)
    return gflop / (1e3 * matrix_tflops(c)) / (state.step - state.terms.uncaptured)


def active_rise(p: PowerParameters, c: Columns, state: Steady, idle_watts: Array) -> Array:
    """Watts above idle while something runs, one GPU."""
    share = (read_share(c, state.single) + p.least_read) / _REFERENCE_READ_SHARE
    board = p.board * _REFERENCE_TDP_WATTS * (c.tdp_watts / _REFERENCE_TDP_WATTS) ** p.board_exponent
    alone = share**p.read_exponent * (board + p.bandwidth * c.bandwidth_gb_s)
    batch = p.compute * c.tdp_watts * compute_share(c, state) ** p.compute_exponent
    return soft_cap(alone + batch, c.tdp_watts - idle_watts, p.cap)


def full_rise(p: PowerParameters, c: Columns, idle_watts: Array) -> Array:
    """Watts above idle of a GPU that reads and computes at half its rates: a scale for shares of it."""
    board = p.board * _REFERENCE_TDP_WATTS * (c.tdp_watts / _REFERENCE_TDP_WATTS) ** p.board_exponent
    batch = p.compute * c.tdp_watts * 0.5**p.compute_exponent
    return soft_cap(board + p.bandwidth * c.bandwidth_gb_s + batch, c.tdp_watts - idle_watts, p.cap)


def busy_share(c: Columns, state: Steady, demand: Array | None = None) -> Array:
    """Share of time that at least one sequence runs: 1 − e^(−demand) for random arrivals, else 1."""
    asked = state.demand if demand is None else demand
    return np.where((c.offline > 0) | ~np.isnan(c.fixed_batch), 1.0, -np.expm1(-asked))


def soft_cap(rise: Array, room: Array, sharpness: float) -> Array:
    """A smooth minimum of both, growing in each."""
    power = 1 + sharpness
    room = np.maximum(room, _LEAST_ROOM_WATTS)
    # Relative to the smaller one, so that no power overflows.
    low = np.maximum(np.minimum(rise, room), 1e-9)
    high = np.maximum(np.maximum(rise, room), low)
    capped: Array = low * (1 + (low / high) ** power) ** (-1 / power)
    return capped
