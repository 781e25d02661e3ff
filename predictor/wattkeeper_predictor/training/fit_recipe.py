"""Fit the recipe ``wattkeeper`` to a table of measured rows.

In order: the simulator online and offline; power physics at simulated times; what each GPU draws idle and how
far its rise is off; the trees; what each measured pair says beyond. Everything is fitted to medians of cells,
so that a cell counts once however often it was run. Mixtures of experts outside batch sweeps are few and
unlike each other: they are not fitted to, only remembered as measured pairs (and used to judge the bounds).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import xgboost
from numpy.typing import NDArray

from wattkeeper_predictor.engine.batch import Steady, steady
from wattkeeper_predictor.engine.gpu_columns import GpuRow
from wattkeeper_predictor.engine.parameters import StepParameters
from wattkeeper_predictor.engine.power import PowerParameters, active_rise, busy_share, full_rise
from wattkeeper_predictor.recipes.wattkeeper.corrections import (
    TREE_KINDS,
    fit_trees,
    gpu_features,
    loaded_power_features,
    model_features,
    offline_power_features,
)
from wattkeeper_predictor.recipes.wattkeeper.figures import figures, plain
from wattkeeper_predictor.recipes.wattkeeper.fitted import CellShift, Fitted, KnownGpu, KnownModel
from wattkeeper_predictor.recipes.wattkeeper.recall import cell_key, known_of

from .fit_engine import (
    fit_idle_model,
    fit_offline,
    fit_online,
    fit_power,
    idle_watts_of,
    simulated_itl,
    take_state,
)
from .fit_tail import fit_tail
from .measured import Measured, Source, mean_cells

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
_MOST_RESIDUAL = 1.0
# How many cells, or runs of a cell, it takes to believe half of what they say.
_GPU_PRIOR_CELLS = 5.0
_CELL_PRIOR_RUNS = 0.3
# Where no run was free to end.
_UNKNOWN_OUTPUT = 200.0


@dataclass(frozen=True, slots=True)
class Training:
    """Rows to fit, the 95th percentile between tokens of each (NaN unknown), and architectures by model."""

    rows: Measured
    itl_p95: Array
    architectures: Mapping[str, str]

    def without(self, held_out: Mask) -> Training:
        """The same without these rows."""
        return Training(self.rows.take(~held_out), self.itl_p95[~held_out], self.architectures)


def fit_recipe(training: Training, start: Fitted | None = None) -> Fitted:
    """Fit everything; ``start`` (a fit to more or fewer rows) only saves time."""
    rows = training.rows.take(fitted_to(training.rows))
    all_cells, runs = mean_cells(training.rows)
    cells = all_cells.take(fitted_to(all_cells))
    online = fit_online(cells, start.online if start else None)
    offline = fit_offline(cells, start.offline if start else None)
    present = {str(gpu): _row_of(cells, str(gpu)) for gpu in np.unique(cells.gpu)}
    watts = {name: value for name, value in idle_watts_of(rows).items() if name in present}
    idle_model = fit_idle_model(watts, {name: (row.sm_ghz, row.tdp_watts) for name, row in present.items()})
    state = steady(online, cells.columns)
    idle = idle_model.watts(cells.columns.sm_ghz, cells.columns.tdp_watts)
    idle = np.array([watts.get(str(gpu), guess) for gpu, guess in zip(cells.gpu, idle.tolist(), strict=True)])
    power = fit_power(cells, state, idle, start.power if start else None)
    rise = busy_share(cells.columns, state) * active_rise(power, cells.columns, state, idle)
    fitted = Fitted(
        online=online,
        offline=offline,
        power=power,
        tail=fit_tail(training.rows, training.itl_p95, online),
        idle=idle_model,
        gpus={name: _known_gpu(cells, rise, name, row, watts.get(name)) for name, row in present.items()},
        models=_known_models(training.rows, training.architectures),
        typical_output_tokens=_typical_output(rows),
        cells={},
        trees={
            **_latency_trees("online", cells.take(cells.source == Source.SERVER), online, present),
            **_latency_trees("offline", cells.take(cells.source == Source.OFFLINE), offline, present),
            **_offline_power_trees(cells.take(cells.source == Source.OFFLINE), offline),
            **_loaded_power_trees(cells, state, idle, power),
        },
    )
    return replace(fitted, cells=_cell_shifts(fitted, all_cells, runs))


def fitted_to(rows: Measured) -> Mask:
    """Rows that parameters and trees are fitted to."""
    mask: Mask = (rows.source == Source.SWEEP) | plain(rows.columns)
    return mask


def _row_of(cells: Measured, gpu: str) -> GpuRow:
    first = int(np.flatnonzero(cells.gpu == gpu)[0])
    return GpuRow(*(float(getattr(cells.columns, name)[first]) for name in GpuRow._fields))


def _known_gpu(cells: Measured, rise: Array, name: str, row: GpuRow, watts: float | None) -> KnownGpu:
    """The GPU's idle watts and rise, each the median of what its server cells ask for, shrunk."""
    here = (cells.gpu == name) & (cells.source == Source.SERVER)
    high, low = here & (cells.level == "high"), here & (cells.level == "low")
    if watts is None or not high.any():
        return KnownGpu(row, watts, 0.0, trees=bool((cells.gpu[cells.source != Source.SWEEP] == name).any()))
    shift, base = 0.0, watts
    for _ in range(2):
        asked = np.log(np.maximum(cells.power[high] - base, 1e-3) / rise[high])
        shift = float(np.median(asked)) * len(asked) / (len(asked) + _GPU_PRIOR_CELLS)
        if low.any():
            base = float(np.median(cells.power[low] - rise[low] * np.exp(shift)))
            base = min(max(base, 0.9 * watts), 1.15 * watts)
    return KnownGpu(row, round(base, 3), round(shift, 5), trees=True)


def _known_models(rows: Measured, architectures: Mapping[str, str]) -> dict[str, KnownModel]:
    """Each model's architecture, and the median length of its outputs where it was free to end them."""
    free = rows.source != Source.SWEEP
    known = {}
    for name in np.unique(rows.model).tolist():
        lengths = rows.columns.output[free & (rows.model == name)]
        typical = round(float(np.median(lengths)), 2) if len(lengths) else None
        known[name] = KnownModel(architectures.get(name, ""), typical)
    return known


def _typical_output(rows: Measured) -> float:
    """The median over plain models of the median length of their outputs."""
    free = rows.take((rows.source != Source.SWEEP) & plain(rows.columns))
    medians = [np.median(free.columns.output[free.model == name]) for name in np.unique(free.model)]
    return round(float(np.median(medians)), 2) if medians else _UNKNOWN_OUTPUT


def _latency_trees(
    regime: str, cells: Measured, parameters: StepParameters, present: Mapping[str, GpuRow]
) -> dict[str, xgboost.Booster]:
    """Trees on ln(measured ÷ simulated): with the GPU's figures, and with each GPU's mean taken off."""
    if not len(cells):
        return {}
    state = steady(parameters, cells.columns)
    residual = np.clip(np.log(cells.itl / simulated_itl(state, cells)), -_MOST_RESIDUAL, _MOST_RESIDUAL)
    shape = model_features(cells.columns, state.running)
    seen = np.hstack([shape, gpu_features([present[str(gpu)] for gpu in cells.gpu])])
    demeaned = residual.copy()
    for gpu in np.unique(cells.gpu):
        demeaned[cells.gpu == gpu] -= residual[cells.gpu == gpu].mean()
    return {
        f"{regime}_seen": fit_trees(TREE_KINDS[f"{regime}_seen"], seen, residual),
        f"{regime}_unseen": fit_trees(TREE_KINDS[f"{regime}_unseen"], shape, demeaned),
    }


def _offline_power_trees(cells: Measured, parameters: StepParameters) -> dict[str, xgboost.Booster]:
    """Trees on the share of TDP that a full queue draws."""
    if not len(cells):
        return {}
    features = offline_power_features(cells.columns, steady(parameters, cells.columns))
    share = cells.power / cells.columns.tdp_watts
    return {"offline_power": fit_trees(TREE_KINDS["offline_power"], features, share)}


def _loaded_power_trees(
    cells: Measured, state: Steady, idle: Array, power: PowerParameters
) -> dict[str, xgboost.Booster]:
    """Trees on a loaded GPU's rise over its full rise."""
    swept = np.flatnonzero(cells.source == Source.SWEEP)
    if not len(swept):
        return {}
    picked = cells.take(swept)
    share = (picked.power - idle[swept]) / full_rise(power, picked.columns, idle[swept])
    features = loaded_power_features(picked.columns, take_state(state, swept))
    return {"loaded_power": fit_trees(TREE_KINDS["loaded_power"], features, share)}


def _cell_shifts(fitted: Fitted, cells: Measured, runs: Array) -> dict[tuple[str, str, str], CellShift]:
    """What each measured pair says beyond physics and trees, as far as its runs can be believed."""
    c = cells.columns
    known = known_of(fitted, c, cells.gpu.tolist(), cells.model.tolist())
    guess = figures(fitted, c, known)
    base = np.where(cells.with_first > 0, guess.per_token, guess.itl)
    base = np.where(cells.source == Source.OFFLINE, guess.inverse_throughput, base)
    base = np.where(cells.source == Source.SWEEP, guess.step, base)
    itl = np.log(cells.itl / base)
    rise = np.log(
        np.maximum(cells.power - guess.idle_watts, 1e-3) / np.maximum(guess.power - guess.idle_watts, 1e-3)
    )
    grouped: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for place, (model, gpu) in enumerate(zip(cells.model.tolist(), cells.gpu.tolist(), strict=True)):
        grouped[model, gpu, cell_key(c, place)].append(place)
    return {key: _shift(places, cells, runs, guess.correction, itl, rise) for key, places in grouped.items()}


def _shift(  # noqa: PLR0913, PLR0917 - one pair's part of the arrays
    places: list[int], cells: Measured, runs: Array, correction: Array, itl: Array, rise: Array
) -> CellShift:
    at = np.array(places)
    total = float(runs[at].sum())
    belief = total / (total + _CELL_PRIOR_RUNS)
    # At the low rate nearly all power is idle: it says nothing of the rise.
    telling = at[cells.level[at] != "low"]
    return CellShift(
        itl=round(float(np.average(correction[at] + belief * itl[at], weights=runs[at])), 5),
        rise=round(belief * float(np.average(rise[telling], weights=runs[telling])), 5)
        if len(telling)
        else 0.0,
        runs=int(total),
    )
