"""Measured rows from any number of files, each of a format known by its columns.

Watt Counts' runs (summary or upstream) take models and GPUs from WattGPU's two tables or, without them, from
the catalogues. Batch sweeps (``sweeps``) and our own format (``own_format``) carry what they need.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.recipes.wattkeeper.recall import architecture

from .dataset import Dataset, load_dataset
from .fit_recipe import Training
from .measured import Measured, Source, from_runs, joined, true_model
from .own_format import is_own, read_own
from .sweeps import SWEEP_COLUMNS, SweepTable, read_sweeps


@dataclass(frozen=True, slots=True)
class Loaded:
    """Rows ready to fit, the sources they came from, and what a user should be told."""

    training: Training
    runs: int
    sweeps: int
    notes: tuple[str, ...]
    sha256: str


def load_measured(
    files: Sequence[Path], models: Path | None = None, gpus: Path | None = None, *, strict: bool = False
) -> Loaded:
    """Read all files; raises ``InvalidInput`` naming the file, or with ``strict`` the first broken row."""
    parts: list[tuple[Measured, NDArray[np.float64]]] = []
    architectures: dict[str, str] = {}
    notes: list[str] = []
    digests: list[str] = []
    runs = sweeps = 0
    for file in files:
        header = _header(file)
        if is_own(header):
            own = read_own(file, strict=strict)
            parts.append((own.rows, own.itl_p95))
            notes += [f"{file.name}: {own.complaint()}"] if own.broken else []
            digests.append(own.sha256)
            architectures |= own.architectures
            swept = int((own.rows.source == Source.SWEEP).sum())
            sweeps, runs = sweeps + swept, runs + len(own.rows) - swept
        elif header >= SWEEP_COLUMNS:
            table = read_sweeps(file, strict=strict)
            parts.append((table.rows, table.itl_p95))
            notes += _sweep_notes(file, table)
            digests.append(table.sha256)
            architectures |= table.architectures
            sweeps += len(table.rows)
        else:
            data = _known_experts(load_dataset(file, models, gpus, strict=strict))
            rows = from_runs(data)
            parts.append((rows, np.full(len(rows), np.nan)))
            notes += _run_notes(file, data)
            digests.append(data.sha256)
            architectures |= {name: architecture(true_model(spec)) for name, spec in data.models.items()}
            runs += len(rows)
    if not parts:
        raise InvalidInput("runs", "no file was given; name at least one")
    rows, p95 = parts[0]
    for more, more_p95 in parts[1:]:
        rows, p95 = joined(rows, more), np.concatenate([p95, more_p95])
    return Loaded(
        training=Training(rows, p95, architectures),
        runs=runs,
        sweeps=sweeps,
        notes=tuple(notes),
        sha256=hashlib.sha256("".join(digests).encode()).hexdigest(),
    )


def _known_experts(data: Dataset) -> Dataset:
    """The same without mixtures of which nobody knows the experts: nothing can be said of their steps."""
    unknown = {
        name
        for name, spec in data.models.items()
        if spec.is_mixture_of_experts and true_model(spec).experts_total is None
    }
    return replace(
        data,
        runs=tuple(run for run in data.runs if run.model not in unknown),
        models={name: spec for name, spec in data.models.items() if name not in unknown},
        skipped={**data.skipped, **dict.fromkeys(sorted(unknown), "a mixture whose experts aren't known")},
    )


def _header(path: Path) -> set[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return set(next(csv.reader(file), []))


def _sweep_notes(file: Path, table: SweepTable) -> list[str]:
    notes = [f"{file.name}: {table.complaint()}"] if table.broken else []
    return notes + [
        f"{model}: not in the catalogue; shaped like {like}" for model, like in table.stand_ins.items()
    ]


def _run_notes(file: Path, data: Dataset) -> list[str]:
    notes = [f"{file.name}: {data.broken}"] if data.broken else []
    return notes + [f"skipped {model}: {reason}" for model, reason in data.skipped.items()]
