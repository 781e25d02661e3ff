"""From figures to answers: bounds, flags and sentences for each question."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wattkeeper_predictor.anchoring import AnchorState
from wattkeeper_predictor.engine.columns import Columns
from wattkeeper_predictor.prediction import Prediction, Query

from .bounds import (
    Bounds,
    BoundTables,
    Situation,
    is_far,
    public_regime,
    regime_note,
    situation_kinds,
)
from .envelope import Checks, filled, gpu_values, model_values, outside
from .figures import Figures
from .fitted import Fitted
from .intervals import Bound, Intervals
from .recall import cell_key

_FILLED_FACTOR = 1.1
_OVER_TDP_NOTE = "the power bound is the boards' limit"


class _OfGpu(NamedTuple):
    outside: tuple[str, ...]
    widening: float
    note: str | None


class Answers:
    """Makes predictions of figures; holds what doesn't change between questions."""

    def __init__(self, fitted: Fitted, intervals: Intervals, ranges: Mapping[str, Sequence[float]]) -> None:
        self._fitted = fitted
        self._bounds = BoundTables(intervals)
        self._ranges = ranges
        self._swept = {gpu for (_, gpu, regime) in fitted.cells if regime not in ("server", "offline")} - {
            name for name, gpu in fitted.gpus.items() if gpu.trees
        }
        self._swept |= {name for name, gpu in fitted.gpus.items() if not gpu.trees}

    def rows(  # noqa: PLR0913, PLR0917 - all that is known of the questions
        self,
        queries: Sequence[Query],
        c: Columns,
        figured: Figures,
        names: tuple[list[str], list[str]],
        anchors: AnchorState,
        checks: Checks,
    ) -> list[Prediction]:
        """One prediction a question, in order."""
        context = (c.prompt + c.output / 2).tolist()
        running = figured.running.tolist()
        kinds = list(
            zip(
                (c.mixture > 0).tolist(), (c.quantized > 0).tolist(), (c.gpus > 1).tolist(),
                (c.hybrid > 0).tolist(), strict=True,
            )
        )  # fmt: skip
        old = (c.old > 0).tolist()
        columns = _Columns(c, figured)
        of_gpu: dict[int, _OfGpu] = {}
        of_model: dict[int, tuple[tuple[str, ...], float]] = {}
        idle_read = bool(anchors.evidence.get("idle"))
        rows = []
        for place, query in enumerate(queries):
            gpu, model = names[0][place], names[1][place]
            about_gpu = of_gpu.get(id(query.gpu)) or of_gpu.setdefault(id(query.gpu), self._of_gpu(query))
            about_model = of_model.get(id(query.model)) or of_model.setdefault(
                id(query.model), outside(model_values(query.model), self._ranges)
            )
            guesses = checks.guesses(query)
            cell = self._fitted.cells.get((model, gpu, cell_key(c, place))) if model and gpu else None
            held = self._fitted.gpus.get(gpu)
            situation = Situation(
                regime=_regime(cell is not None, bool(model), held is not None),
                scenario="offline" if query.workload.scenario == "Offline" else "server",
                kinds=situation_kinds(*kinds[place]),
                swept_gpu=gpu in self._swept,
                old=old[place],
                swept_pair=cell is not None and any(kinds[place]),
                far=is_far(context[place], running[place]),
                idle_known=(held is not None and held.idle_watts is not None)
                or (idle_read and anchors.shift("idle", query.gpu.name, query.model.id).share < 0.5),
                guesses=len(guesses),
            )
            widening = about_gpu.widening * about_model[1]
            bounds = self._bounds.of(situation, query.confidence_percent, widening)
            notes = [regime_note(situation, cell.runs if cell else 0), *guesses]
            if about_gpu.note:
                notes.append(about_gpu.note)
            if anchors.evidence:
                bounds = _tightened(bounds, anchors, query)
                notes += anchors.explain(query.gpu.name, query.model.id)
            if situation.old and "mixture" in situation.kinds:
                notes.append("mixtures on GPUs before compute capability 8.0 were measured many times slower")
            flags = (*about_gpu.outside, *about_model[0])
            rows.append(columns.prediction(place, query, bounds, situation, flags, notes))
        return rows

    def _of_gpu(self, query: Query) -> _OfGpu:
        names, widening = outside(gpu_values(query.gpu), self._ranges)
        note = filled(query.gpu)
        return _OfGpu(names, widening * (_FILLED_FACTOR if note else 1.0), note)


def _regime(measured: bool, model: bool, gpu: bool) -> str:
    if measured:
        return "measured"
    if gpu:
        return "unseen_model"
    return "unseen_gpu" if model else "unseen_both"


def _tightened(bounds: Bounds, anchors: AnchorState, query: Query) -> Bounds:
    """Bounds shrink with the share of doubt that evidence has removed."""
    pair = (query.gpu.name, query.model.id)
    itl, rise = anchors.shift("itl", *pair).share, anchors.shift("rise", *pair).share
    return Bounds(
        itl=_power_of(bounds.itl, itl),
        power=_power_of(bounds.power, rise),
        p95=_power_of(bounds.p95, itl),
        first_token=_power_of(bounds.first_token, itl),
    )


def _power_of(bound: Bound, share: float) -> Bound:
    return Bound(bound.upper**share, bound.low**share, bound.high**share)


class _Columns:
    """Figures as lists: taking one number out of an array at a time is slow."""

    def __init__(self, c: Columns, f: Figures) -> None:
        gpus = c.gpus
        self.tdp = (c.tdp_watts * gpus).tolist()
        self.power = (f.power * gpus).tolist()
        self.full = (f.full_power * gpus).tolist()
        self.idle = (f.idle_watts * gpus).tolist()
        self.itl = f.itl.tolist()
        self.p95 = f.itl_p95.tolist()
        self.first = f.first_token.tolist()
        self.inverse = f.inverse_throughput.tolist()
        self.running = f.running.tolist()
        self.sequences = f.max_sequences.astype(np.int64).tolist()

    def prediction(  # noqa: PLR0913, PLR0917 - the parts of an answer
        self,
        at: int,
        query: Query,
        bounds: Bounds,
        of: Situation,
        flags: tuple[str, ...],
        notes: list[str],
    ) -> Prediction:
        power, itl, p95, first, tdp = self.power[at], self.itl[at], self.p95[at], self.first[at], self.tdp[at]
        if self.sequences[at] < 1:
            notes.append("not even one sequence of prompt + output fits in memory")
        upper = power * bounds.power.upper
        if upper > tdp:
            notes.append(_OVER_TDP_NOTE)
        inverse = self.inverse[at]
        return Prediction(
            power_watts=power,
            power_upper_watts=min(upper, max(tdp, power)),
            itl_seconds=itl,
            itl_upper_seconds=itl * bounds.itl.upper,
            energy_per_token_joules=power * inverse,
            regime=public_regime(of),
            notes=tuple(notes),
            power_interval_watts=(power * bounds.power.low, min(power * bounds.power.high, max(tdp, power))),
            itl_interval_seconds=(itl * bounds.itl.low, itl * bounds.itl.high),
            itl_p95_seconds=p95,
            itl_p95_upper_seconds=p95 * bounds.p95.upper,
            ttft_seconds=first,
            ttft_upper_seconds=first * bounds.first_token.upper,
            inverse_throughput_seconds=inverse,
            throughput_tokens_per_second=1 / inverse if inverse and math.isfinite(inverse) else None,
            running_sequences=self.running[at],
            max_sequences=self.sequences[at],
            idle_watts=self.idle[at],
            worst_case_power_watts=max(min(self.full[at] * bounds.power.upper, tdp), power),
            out_of_range=flags,
        )
