"""A GPU's figures as the simulator needs them, with what stands in where a data sheet is silent.

A blank is filled from the GPUs of the same compute capability: how many tensor operations a multiprocessor
does each cycle, the process, the usual boost clock. What was filled is named, so that bounds can widen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from wattkeeper_predictor.specs import GpuSpec

_GIB = 1024**3
_LARGE_BYTES = 70 * _GIB
# One direction of the link that GPUs of one node share where they have no NVLink, by PCIe generation (x16).
_PCIE_GB_S = {3: 16.0, 4: 32.0, 5: 64.0, 6: 128.0}
_DEFAULT_PCIE_GENERATION = 4


class GpuRow(NamedTuple):
    """One GPU. ``tflops`` is dense FP16/BF16; ``fp8_speedup`` what 8-bit operands multiply it by."""

    bandwidth_gb_s: float
    tflops: float
    fp8_speedup: float
    tdp_watts: float
    process_nm: float
    boost_ghz: float
    sm_ghz: float  # streaming multiprocessors × boost clock
    old: float  # 1 before compute capability 8.0: no BF16, vLLM's earlier engine and attention kernels
    gddr: float  # 1 for GDDR, 0 for stacked memory
    hopper: float  # 1 for compute capability 9.x
    link_gb_s: float  # one direction between GPUs of a replica
    pcie: float  # 1 where that link is PCIe
    memory_gb: float
    large: float  # 1 where vLLM takes the batch limits of large GPUs


@dataclass(frozen=True, slots=True)
class _Generation:
    """What GPUs of one compute capability have in common."""

    process_nm: float
    boost_ghz: float
    tflops_per_sm_ghz: float
    tflops_per_watt: float
    gddr: bool
    fp8_speedup: float


_GENERATIONS: dict[tuple[int, int], _Generation] = {
    (7, 0): _Generation(12, 1.53, 1.02, 0.42, gddr=False, fp8_speedup=1),
    (7, 5): _Generation(12, 1.59, 1.02, 0.90, gddr=True, fp8_speedup=1),
    (8, 0): _Generation(7, 1.41, 2.05, 0.80, gddr=False, fp8_speedup=1),
    (8, 6): _Generation(8, 1.74, 1.02, 0.50, gddr=True, fp8_speedup=1),
    (8, 9): _Generation(5, 2.50, 1.01, 1.00, gddr=True, fp8_speedup=2),
    (9, 0): _Generation(5, 1.85, 3.70, 1.40, gddr=False, fp8_speedup=2),
    (10, 0): _Generation(5, 1.97, 7.70, 2.20, gddr=False, fp8_speedup=2),
    (10, 3): _Generation(5, 2.03, 7.60, 2.00, gddr=False, fp8_speedup=2),
    (12, 0): _Generation(5, 2.43, 1.02, 0.75, gddr=True, fp8_speedup=2),
}
_UNKNOWN_CAPABILITY = (8, 6)


@lru_cache(4096)
def gpu_row(gpu: GpuSpec) -> GpuRow:
    """The GPU's figures, blanks filled."""
    capability = gpu.capability or _UNKNOWN_CAPABILITY
    generation = _generation(capability)
    boost = gpu.boost_clock_mhz / 1e3 if gpu.boost_clock_mhz else generation.boost_ghz
    sm_ghz = gpu.sm_count * boost if gpu.sm_count else None
    tflops = gpu.fp16_dense_tflops
    if tflops is None:
        tflops = (
            sm_ghz * generation.tflops_per_sm_ghz if sm_ghz else gpu.tdp_watts * generation.tflops_per_watt
        )
    nvlink = gpu.nvlink_gb_s
    generation_of_pcie = int(gpu.pcie_generation or _DEFAULT_PCIE_GENERATION)
    return GpuRow(
        bandwidth_gb_s=gpu.memory_bandwidth_gb_s,
        tflops=tflops,
        fp8_speedup=gpu.fp8_dense_tflops / tflops if gpu.fp8_dense_tflops else generation.fp8_speedup,
        tdp_watts=gpu.tdp_watts,
        process_nm=gpu.process_nm or generation.process_nm,
        boost_ghz=boost,
        sm_ghz=sm_ghz or tflops / generation.tflops_per_sm_ghz,
        old=float(capability < (8, 0)),
        gddr=float(gpu.memory_type.startswith("GDDR") if gpu.memory_type else generation.gddr),
        hopper=float(capability[0] == 9),
        # Data sheets give both directions of NVLink together.
        link_gb_s=nvlink / 2 if nvlink else _PCIE_GB_S.get(generation_of_pcie, _PCIE_GB_S[3]),
        pcie=0.0 if nvlink else 1.0,
        memory_gb=gpu.memory_bytes / 1e9,
        large=float(gpu.memory_bytes >= _LARGE_BYTES and "a100" not in gpu.name.lower()),
    )


def filled_in(gpu: GpuSpec) -> tuple[str, ...]:
    """Names of the figures that matter to speed or power and had to be filled."""
    needed = ("compute_capability", "fp16_dense_tflops", "boost_clock_mhz", "sm_count", "memory_type")
    return tuple(name for name in needed if getattr(gpu, name) is None)


def _generation(capability: tuple[int, int]) -> _Generation:
    exact = _GENERATIONS.get(capability)
    if exact is not None:
        return exact
    earlier = [known for known in _GENERATIONS if known <= capability]
    return _GENERATIONS[max(earlier)] if earlier else _GENERATIONS[min(_GENERATIONS)]
