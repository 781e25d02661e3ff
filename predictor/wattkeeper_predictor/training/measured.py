"""Measured runs of all sources as one table that the simulator can be fitted to and scored on.

The sources differ in what they measured, and each row says so: an API server's mean time a token
(``Source.SERVER``), the inverse throughput of a full queue (``OFFLINE``), or the median time between tokens
at a given number of running sequences (``SWEEP``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.engine.columns import Columns, Question, columns_of
from wattkeeper_predictor.errors import UnknownModel
from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.specs import GpuSpec, ModelSpec, ServingConfig, Workload

from .architecture_counts import counted
from .dataset import Dataset
from .families import family_of

Array = NDArray[np.float64]
Labels = NDArray[np.str_]
# Watt Counts stopped every request after this many tokens and asked a thousand of them at once.
LONGEST_OUTPUT = 256
NOMINAL_QUEUE = 1000.0


class Source(IntEnum):
    """How a row was measured."""

    SERVER = 0
    OFFLINE = 1
    SWEEP = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows with what was measured; arrays of shape (n,).

    ``itl`` in seconds, of the kind that the source measured (``with_first`` is 1 where it counts the wait for
    the first token); ``power`` in watts a GPU; ``duty`` the mean number of requests in the system (NaN where
    not known). Labels name what a protocol holds out.
    """

    columns: Columns
    itl: Array
    power: Array
    duty: Array
    with_first: Array
    source: NDArray[np.intp]
    gpu: Labels
    model: Labels
    family: Labels
    level: Labels

    def __len__(self) -> int:
        return len(self.itl)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Measured:
        """The rows at these positions, or where the mask holds."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        columns = parts.pop("columns")
        return Measured(columns=columns.take(rows), **{name: values[rows] for name, values in parts.items()})

    def with_columns(self, columns: Columns) -> Measured:
        """The same rows, otherwise described."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return Measured(**{**parts, "columns": columns})


def joined(first: Measured, second: Measured) -> Measured:
    """Both tables' rows, one after the other."""

    def chained(a: Any, b: Any) -> Any:
        return np.concatenate([a, b])

    columns = Columns(
        **{
            f.name: chained(getattr(first.columns, f.name), getattr(second.columns, f.name))
            for f in fields(Columns)
        }
    )
    names = [field.name for field in fields(Measured) if field.name != "columns"]
    return Measured(
        columns=columns, **{name: chained(getattr(first, name), getattr(second, name)) for name in names}
    )


def from_runs(data: Dataset) -> Measured:
    """Watt Counts' runs, one row each. Models are described as the catalogue knows them."""
    models = {name: true_model(spec) for name, spec in data.models.items()}
    gpus = {name: _described(spec) for name, spec in data.gpus.items()}
    serving = ServingConfig()
    typical = Workload(scenario="Offline", prompt_tokens=15, output_tokens=180)
    questions = [Question(models[run.model], gpus[run.gpu], serving, typical) for run in data.runs]
    columns = columns_of(questions)
    offline = np.array([run.level is Level.OFFLINE for run in data.runs])
    prompts = np.array([run.prompt_tokens for run in data.runs])
    requests = np.array([run.requests for run in data.runs])
    columns = columns.replace(
        offline=offline.astype(np.float64),
        rate=np.array(
            [0.0 if math.isnan(run.requests_per_second) else run.requests_per_second for run in data.runs]
        ),
        prompt=np.where(np.isnan(prompts), 15.0, prompts),
        output=np.array([max(1.0, run.output_tokens) for run in data.runs]),
        queue=np.where(offline, np.where(np.isnan(requests), NOMINAL_QUEUE, requests), np.inf),
        longest_output=np.full(len(questions), float(LONGEST_OUTPUT)),
    )
    return Measured(
        columns=columns,
        itl=np.array([run.itl_seconds for run in data.runs]),
        power=np.array([run.power_watts for run in data.runs]),
        duty=np.array([run.duty for run in data.runs]),
        with_first=np.array([float(run.with_first_token) for run in data.runs]),
        source=np.where(offline, int(Source.OFFLINE), int(Source.SERVER)).astype(np.intp),
        gpu=np.array([catalogue_name(run.gpu) for run in data.runs]),
        model=np.array([run.model for run in data.runs]),
        family=np.array([family_of(run.model, data.models[run.model].model_type) for run in data.runs]),
        level=np.array([run.level.name.lower() for run in data.runs]),
    )


def catalogue_name(label: str) -> str:
    """The catalogue's name of a GPU, or the label itself where it has none."""
    spec = GpuCatalogue.load().match(label)
    return spec.name if spec else label


def true_model(spec: ModelSpec) -> ModelSpec:
    """The model with parameters counted from its architecture: the catalogue's entry, else computed."""
    try:
        known = ModelCatalogue.load().get(spec.id)
    except UnknownModel:
        return counted(spec)
    same = (known.layers, known.hidden_size, known.attention_heads, known.kv_heads)
    return (
        known
        if same == (spec.layers, spec.hidden_size, spec.attention_heads, spec.kv_heads)
        else counted(spec)
    )


def _described(spec: GpuSpec) -> GpuSpec:
    """What the table says of the GPU, blanks from the catalogue (links, 8-bit rates)."""
    known = GpuCatalogue.load().match(spec.name)
    if known is None:
        return spec
    blanks = {
        field.name: getattr(known, field.name)
        for field in fields(GpuSpec)
        if getattr(spec, field.name) is None and getattr(known, field.name) is not None
    }
    described: dict[str, Any] = {field.name: getattr(spec, field.name) for field in fields(GpuSpec)}
    return GpuSpec(**{**described, **blanks, "name": known.name})


def mean_cells(rows: Measured) -> tuple[Measured, Array]:
    """Medians of the runs of each cell (model, GPU, level, sweep point), and each cell's number of runs."""
    keys = cell_keys(rows)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    count = np.bincount(inverse).astype(np.float64)

    def median(values: Array) -> Array:
        return np.array([np.median(values[inverse == cell]) for cell in range(len(first))])

    cells = rows.take(first.astype(np.intp))
    columns = cells.columns.replace(
        prompt=median(rows.columns.prompt),
        output=median(rows.columns.output),
        queue=median(rows.columns.queue),
    )
    medians = {name: median(getattr(rows, name)) for name in ("itl", "power", "duty")}
    parts: dict[str, Any] = {field.name: getattr(cells, field.name) for field in fields(Measured)}
    return Measured(**{**parts, **medians, "columns": columns}), count


def cell_keys(rows: Measured) -> Labels:
    """One text a row, equal for runs of one cell."""
    parts: Sequence[Any] = (rows.model, rows.gpu, rows.level)
    return np.array(["\t".join(map(str, key)) for key in zip(*parts, strict=True)])
