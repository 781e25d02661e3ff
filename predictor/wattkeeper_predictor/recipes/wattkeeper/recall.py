"""What the training data holds of each asked pair, as arrays for ``figures``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.catalog import GpuCatalogue
from wattkeeper_predictor.engine.columns import Columns
from wattkeeper_predictor.engine.gpu_columns import gpu_row
from wattkeeper_predictor.specs import ModelSpec

from .figures import Known
from .fitted import CellShift, Fitted

Array = NDArray[np.float64]


def architecture(model: ModelSpec) -> str:
    """Text that is equal for equal networks, whatever their id and however their parameters are counted."""
    sizes = (
        model.layers,
        model.hidden_size,
        model.attention_heads,
        model.kv_heads,
        model.intermediate_size,
        model.experts_total or 0,
    )
    return "x".join(map(str, sizes))


_SCALED = ("bandwidth_gb_s", "tflops", "tdp_watts", "boost_ghz", "sm_ghz")


def trained_ratios(fitted: Fitted) -> dict[str, tuple[float, ...]]:
    """By how much training describes GPUs otherwise than the catalogue, in the order of ``_SCALED``.

    Runs of one board came with figures mixed of two; what was fitted to them holds for them. Ratios, not the
    figures themselves, so that a question about a better board of that name still gets a better one.
    """
    ratios = {}
    for name, gpu in fitted.gpus.items():
        spec = GpuCatalogue.load().match(name)
        if spec is None or spec.name != name:
            continue
        listed = gpu_row(spec)
        ratio = tuple(getattr(gpu.row, figure) / getattr(listed, figure) for figure in _SCALED)
        if any(abs(value - 1) > 1e-5 for value in ratio):
            ratios[name] = ratio
    return ratios


def as_trained(c: Columns, gpus: Sequence[str], ratios: Mapping[str, tuple[float, ...]]) -> Columns:
    """The questions with measured GPUs described as in training."""
    if not any(name in ratios for name in gpus):
        return c
    same = (1.0,) * len(_SCALED)
    factors = np.array([ratios.get(name, same) for name in gpus])
    return c.replace(
        **{figure: getattr(c, figure) * factors[:, place] for place, figure in enumerate(_SCALED)}
    )


def cell_key(c: Columns, place: int) -> str:
    """Which measured runs speak for a question: those of its regime, GPUs and weight format."""
    if np.isnan(c.fixed_batch[place]) and c.gpus[place] == 1 and not c.quantized[place]:
        return "offline" if c.offline[place] else "server"
    return f"{c.gpus[place]:g} GPUs at {c.bytes_per_weight[place]:g} bytes"


def known_of(fitted: Fitted, c: Columns, gpus: Sequence[str], models: Sequence[str]) -> Known:
    """Look each pair up; ``gpus`` and ``models`` are '' where a name doesn't stand for what was trained."""
    known_gpus = [fitted.gpus.get(name) for name in gpus]
    cells: list[CellShift | None] = [None] * len(c)
    if fitted.cells:
        cells = [
            fitted.cells.get((model, gpu, cell_key(c, place)))
            for place, (model, gpu) in enumerate(zip(models, gpus, strict=True))
        ]
    rise = [
        (gpu.rise_shift if gpu and not c.offline[place] else 0.0) + (cell.rise if cell else 0.0)
        for place, (gpu, cell) in enumerate(zip(known_gpus, cells, strict=True))
    ]
    return Known(
        trained_gpu=[gpu.row if gpu and gpu.trees else None for gpu in known_gpus],
        itl_shift=np.array([np.nan if cell is None else cell.itl for cell in cells]),
        rise_shift=np.array(rise),
        idle_watts=np.array(
            [np.nan if gpu is None or gpu.idle_watts is None else gpu.idle_watts for gpu in known_gpus]
        ),
        duty=np.full(len(c), np.nan),
        itl_factor=np.zeros(len(c)),
    )
