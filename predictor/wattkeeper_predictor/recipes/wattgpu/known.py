"""What the training data holds of an asked pair: nothing, the model, the GPU, or measured runs of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.prediction import Query, Regime
from wattkeeper_predictor.specs import GpuSpec, ModelSpec

from .load import LevelFigures

_SAME_GPU_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Cell:
    """The measured runs of one model on one GPU at one level: means."""

    power_watts: float
    itl_seconds: float
    output_tokens: float
    runs: int

    def at(self, level: Level) -> LevelFigures:
        """As a point of the load line; the level must have a rate."""
        return LevelFigures(
            level.requests_per_second or 0.0, self.output_tokens, self.power_watts, self.itl_seconds
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What the training data holds of the asked pair: its specs as trained, and its cells if measured."""

    model: ModelSpec
    gpu: GpuSpec
    model_seen: bool
    gpu_seen: bool
    cells: Mapping[Level, Cell] | None

    @property
    def regime(self) -> Regime:
        """The coarse name of the regime."""
        if self.cells is not None:
            return "Measured"
        return "UnseenModel" if self.gpu_seen else "UnseenGpu"

    @property
    def interval_table(self) -> str:
        """Which errors bound the answer; an unmeasured pair of seen things counts as an unseen model."""
        if self.cells is not None:
            return "measured"
        if self.gpu_seen:
            return "unseen_model"
        return "unseen_gpu" if self.model_seen else "unseen_both"


class TrainingMemory:
    """The models, GPUs and measured cells of the training data, by id and catalogue name."""

    def __init__(
        self,
        models: Sequence[Mapping[str, Any]],
        gpus: Sequence[Mapping[str, Any]],
        cells: Sequence[Mapping[str, Any]],
    ) -> None:
        """From the JSON values of the manifest and of cells.json."""
        self._models = {entry["id"]: ModelSpec(**entry) for entry in models}
        self._gpus = {entry["name"]: GpuSpec(**entry) for entry in gpus}
        self._cells: dict[tuple[str, str], dict[Level, Cell]] = {}
        for row in cells:
            cell = Cell(row["power_watts"], row["itl_seconds"], row["output_tokens"], row["runs"])
            self._cells.setdefault((row["model"], row["gpu"]), {})[Level[row["level"].upper()]] = cell

    def recall(self, query: Query) -> Known:
        """What is known of the pair; the specs are those it was trained with, where it was."""
        model = self._models.get(query.model.id)
        if model is not None and not _same_model(model, query.model):
            model = None
        gpu = self._gpus.get(query.gpu.name)
        if gpu is not None and not _same_gpu(gpu, query.gpu):
            gpu = None
        cells = self._cells.get((model.id, gpu.name)) if model and gpu else None
        complete = cells is not None and len(cells) == len(Level)
        return Known(
            model=model or query.model,
            gpu=gpu or query.gpu,
            model_seen=model is not None,
            gpu_seen=gpu is not None,
            cells=cells if complete else None,
        )


def _same_model(trained: ModelSpec, asked: ModelSpec) -> bool:
    """Whether the id stands for the network that was measured (advertised counts may differ)."""
    return all(
        getattr(trained, name) == getattr(asked, name)
        for name in ("layers", "hidden_size", "attention_heads", "kv_heads", "intermediate_size")
    )


def _same_gpu(trained: GpuSpec, asked: GpuSpec) -> bool:
    """Whether the name stands for the GPU that was measured, as far as speed and power tell."""
    return all(
        abs(getattr(asked, name) / getattr(trained, name) - 1) <= _SAME_GPU_TOLERANCE
        for name in ("memory_bandwidth_gb_s", "tdp_watts")
    )
