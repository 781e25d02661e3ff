"""Everything that was fitted, as values; and to and from an artifact's JSON and booster files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import xgboost

from wattkeeper_predictor.engine.gpu_columns import GpuRow
from wattkeeper_predictor.engine.idle import IdleModel
from wattkeeper_predictor.engine.parameters import StepParameters
from wattkeeper_predictor.engine.power import PowerParameters
from wattkeeper_predictor.engine.tail import TailParameters
from wattkeeper_predictor.errors import ArtifactError

from .corrections import TREE_KINDS

CELLS_FILE = "cells.json"


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU of the training data. Shifts are logarithms of factors that its runs ask for."""

    row: GpuRow
    idle_watts: float | None
    rise_shift: float  # on the watts above idle
    trees: bool  # whether the trees that know GPUs were fitted on it


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the training data: what makes it the same network, and its usual output length."""

    architecture: str
    output_tokens: float | None


@dataclass(frozen=True, slots=True)
class CellShift:
    """What the measured runs of one pair say beyond trees and physics: logarithms of factors."""

    itl: float
    rise: float
    runs: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """The recipe's content; ``cells`` by (model, GPU, regime): ``server``, ``offline`` or a sweep's."""

    online: StepParameters
    offline: StepParameters
    power: PowerParameters
    tail: TailParameters
    idle: IdleModel
    gpus: Mapping[str, KnownGpu]
    models: Mapping[str, KnownModel]
    typical_output_tokens: float  # of a dense model, where neither workload nor training says more
    cells: Mapping[tuple[str, str, str], CellShift]
    trees: Mapping[str, xgboost.Booster]


def to_parts(fitted: Fitted) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Values for the manifest, and files by name."""
    manifest = {
        "online": fitted.online.as_dict(),
        "offline": fitted.offline.as_dict(),
        "power": fitted.power.as_dict(),
        "tail": fitted.tail.as_dict(),
        "idle": asdict(fitted.idle),
        "gpus": {
            name: {
                "figures": list(gpu.row),
                "idle_watts": gpu.idle_watts,
                "rise_shift": gpu.rise_shift,
                "trees": gpu.trees,
            }
            for name, gpu in sorted(fitted.gpus.items())
        },
        "typical_output_tokens": fitted.typical_output_tokens,
        "models": {name: asdict(model) for name, model in sorted(fitted.models.items())},
    }
    cells = [[*key, cell.itl, cell.rise, cell.runs] for key, cell in sorted(fitted.cells.items())]
    lines = "[\n" + ",\n".join(json.dumps(row) for row in cells) + "\n]\n"
    files = {_file(name): bytes(booster.save_raw("ubj")) for name, booster in sorted(fitted.trees.items())}
    return manifest, {**files, CELLS_FILE: lines.encode()}


def from_parts(manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> Fitted:
    """The inverse of ``to_parts``; raises ``ArtifactError`` if anything is missing or of another shape."""
    try:
        return Fitted(
            online=StepParameters(**manifest["online"]),
            offline=StepParameters(**manifest["offline"]),
            power=PowerParameters(**manifest["power"]),
            tail=TailParameters(**manifest["tail"]),
            idle=IdleModel(**manifest["idle"]),
            gpus={
                name: KnownGpu(GpuRow(*gpu["figures"]), gpu["idle_watts"], gpu["rise_shift"], gpu["trees"])
                for name, gpu in manifest["gpus"].items()
            },
            typical_output_tokens=float(manifest["typical_output_tokens"]),
            models={name: KnownModel(**model) for name, model in manifest["models"].items()},
            cells={
                (model, gpu, regime): CellShift(itl, rise, runs)
                for model, gpu, regime, itl, rise, runs in json.loads(files[CELLS_FILE])
            },
            trees={name: _booster(files[_file(name)]) for name in TREE_KINDS if _file(name) in files},
        )
    except (KeyError, TypeError, ValueError, xgboost.core.XGBoostError) as broken:
        raise ArtifactError(f"the artifact is damaged ({broken!r}); train again or reinstall") from broken


def _file(name: str) -> str:
    return f"{name}.ubj"


def _booster(content: bytes) -> xgboost.Booster:
    booster = xgboost.Booster(params={"nthread": 1})
    booster.load_model(bytearray(content))
    return booster
