"""Runs joined with the metadata of their model and GPU, ready to fit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.specs import GpuSpec, ModelSpec

from .metadata import Metadata, read_metadata
from .runs import Run, RunTable, read_runs


@dataclass(frozen=True, slots=True)
class Dataset:
    """Runs whose model and GPU are known; ``skipped`` names the others with the reason."""

    runs: tuple[Run, ...]
    models: Mapping[str, ModelSpec]
    gpus: Mapping[str, GpuSpec]
    skipped: Mapping[str, str]
    broken: str | None
    sha256: str


def load_dataset(runs: Path, models: Path | None, gpus: Path | None, *, strict: bool = False) -> Dataset:
    """Read the files and keep what can be used together; without a table the catalogue describes.

    Raises ``InvalidInput`` if nothing can, or if a run's GPU is in neither table.
    """
    table = read_runs(runs, strict=strict)
    metadata = read_metadata(models, gpus, {run.model for run in table.runs}, {run.gpu for run in table.runs})
    _check_gpus(table, metadata)
    used_models = {run.model for run in table.runs}
    skipped = {
        model: metadata.skipped.get(model, "no row in the table of models")
        for model in sorted(used_models - set(metadata.models))
    }
    kept = tuple(run for run in table.runs if run.model in metadata.models)
    if not kept:
        raise InvalidInput("models", "no run's model has a sound row in the table of models; check the names")
    return Dataset(
        runs=kept,
        models={name: spec for name, spec in metadata.models.items() if name in used_models},
        gpus={name: spec for name, spec in metadata.gpus.items() if any(r.gpu == name for r in kept)},
        skipped=skipped,
        broken=table.complaint(),
        sha256=_digest(*filter(None, (runs, models, gpus))),
    )


def dense(data: Dataset) -> Dataset:
    """The same without mixtures of experts, which are named among the skipped."""
    mixtures = {name for name, spec in data.models.items() if spec.is_mixture_of_experts}
    return Dataset(
        runs=tuple(run for run in data.runs if run.model not in mixtures),
        models={name: spec for name, spec in data.models.items() if name not in mixtures},
        gpus=data.gpus,
        skipped={**data.skipped, **dict.fromkeys(sorted(mixtures), "a mixture of experts")},
        broken=data.broken,
        sha256=data.sha256,
    )


def _check_gpus(table: RunTable, metadata: Metadata) -> None:
    for gpu in sorted({run.gpu for run in table.runs} - set(metadata.gpus)):
        reason = metadata.skipped.get(gpu, "no row in the table of GPUs")
        raise InvalidInput("gpus", f"{gpu}: {reason}; add or mend its row")


def _digest(*paths: Path) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
