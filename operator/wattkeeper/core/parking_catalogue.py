"""Parking figures per GPU until the cluster has measured its own: the one place that holds them.

Source of the measured rows: seed 002 (dose-response of 20 minutes a level on one board of each kind). Its
load powers and load times are its scheduler's constants. Everything else here is derived, and says how.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from wattkeeper.core.gpu_names import gpu_slug, same_family

# Seed 002's scheduler charges one load time to every model: 45 s, or 8 s with a fast loader.
STANDARD_LOAD_SECONDS = 45.0
FAST_LOAD_SECONDS = 8.0
# Its rule of thumb from the industry: an idle GPU draws a fifth of its TDP.
IDLE_TDP_YARDSTICK = 0.20


@dataclass(frozen=True, slots=True)
class ParkingFigures:
    """One board: watts without any context, with an idle context, and while a model loads."""

    bare_watts: float
    context_watts: float
    load_watts: float
    tdp_watts: float
    bare_sm_clock_mhz: float | None = None
    context_sm_clock_mhz: float | None = None

    @property
    def tax_watts(self) -> float:
        """The parking tax: what an idle context costs above the bare board."""
        return self.context_watts - self.bare_watts


MEASURED: dict[str, ParkingFigures] = {
    "h100-80gb-hbm3": ParkingFigures(71.8, 121.7, 300.0, 700.0, 345.0, 1980.0),  # tax 49.9 W
    "a100-80gb-pcie": ParkingFigures(53.7, 80.0, 250.0, 300.0, 210.0, 1410.0),  # tax 26.3 W
    "l40s": ParkingFigures(35.6, 102.0, 280.0, 350.0, 210.0, 2520.0),  # tax 66.4 W
}

# How far another board of the same kind may lie from the measured one, as one standard deviation. The
# production profile of seed 002 has bare boards from 71.6 to 99.0 W and idle contexts from 127 to 155 W.
CATALOGUE_SPREAD = 0.20
PRIOR_SPREAD = 0.50
# For GPUs never measured: the smallest tax and the largest load power as shares of TDP among the measured
# boards, so that a wrong guess parks too late rather than too early.
PRIOR_TAX_SHARE = 0.071  # H100: 49.9 of 700 W
PRIOR_BARE_SHARE = 0.128  # the three boards' mean
PRIOR_LOAD_SHARE = 0.833  # A100: 250 of 300 W
# Without even a TDP: the smallest datacentre board (70 W) for the tax, the largest load power measured.
UNKNOWN_TDP_WATTS = 70.0
UNKNOWN_LOAD_WATTS = 300.0


class Basis(StrEnum):
    """Where a figure comes from, best first."""

    MEASURED = "Measured"  # on this very GPU
    POOL = "Pool"  # on this pool's other GPUs
    CATALOGUE = "Catalogue"  # this board, in seed 002
    PRIOR = "Prior"  # the same chip on another board, or a conservative share of TDP


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """Figures for a GPU with the spread to expect of the tax (one standard deviation, in W)."""

    figures: ParkingFigures
    tax_spread_watts: float
    basis: Basis
    note: str


def figures_for(gpu_name: str, tdp_watts: float | None = None) -> CatalogueEntry:
    """The figures to start from for a GPU, by NVML's name or its node label's form of it.

    `tdp_watts` (the board's default power limit) is used for GPUs that seed 002 didn't measure.
    """
    name = board_slug(gpu_name)
    if figures := MEASURED.get(name):
        spread = CATALOGUE_SPREAD * figures.tax_watts
        return CatalogueEntry(figures, spread, Basis.CATALOGUE, f"seed 002 measured {name}")
    for measured, figures in MEASURED.items():
        if same_family(measured, name):  # nearer than any rule of thumb, though not measured
            spread = PRIOR_SPREAD * figures.tax_watts
            return CatalogueEntry(figures, spread, Basis.PRIOR, f"{measured} stands in for {name}")
    known = tdp_watts is not None and tdp_watts > 0
    tdp = tdp_watts if tdp_watts is not None and known else UNKNOWN_TDP_WATTS
    load = PRIOR_LOAD_SHARE * tdp if known else UNKNOWN_LOAD_WATTS
    bare, tax = PRIOR_BARE_SHARE * tdp, PRIOR_TAX_SHARE * tdp
    note = f"{PRIOR_TAX_SHARE:.1%} of {tdp:g} W, the smallest share measured"
    return CatalogueEntry(ParkingFigures(bare, bare + tax, load, tdp), PRIOR_SPREAD * tax, Basis.PRIOR, note)


def board_slug(gpu_name: str) -> str:
    """`NVIDIA H100 80GB HBM3` and `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED` → `h100-80gb-hbm3`."""
    return gpu_slug(re.sub(r"(-MIG-[^-]+)?(-SHARED)?$", "", gpu_name.strip()))


@dataclass(frozen=True, slots=True)
class Loader:
    """How fast weights reach the GPU: a constant (process, context, graphs) and bytes a second."""

    name: str
    constant_seconds: float
    bytes_per_second: float

    def seconds(self, weight_bytes: float) -> float:
        return self.constant_seconds + weight_bytes / self.bytes_per_second


# Anchored at seed 002's model of 15.2 GB (Qwen2.5-7B in fp16). Its recorded H100 load spends 24 s before the
# first byte reaches the GPU; 45 s in all then means 0.72 GB/s. The fast loader's 8 s leave no such start:
# 2 s and 2.5 GB/s, a snapshot restored or weights streamed from local NVMe.
LOADERS: dict[str, Loader] = {
    "standard": Loader("standard", 24.0, 15.2e9 / (STANDARD_LOAD_SECONDS - 24.0)),
    "fast": Loader("fast", 2.0, 15.2e9 / (FAST_LOAD_SECONDS - 2.0)),
}
