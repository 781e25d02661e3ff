"""``train``, ``evaluate`` and ``model-card``: from measured runs to artifacts and figures."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wattkeeper_predictor.artifact import read_artifact, write_artifact
from wattkeeper_predictor.predictor import default_artifacts

if TYPE_CHECKING:
    from wattkeeper_predictor.training.dataset import Dataset


class RecipeName(StrEnum):
    """Recipes that can be trained."""

    WATTGPU = "wattgpu"


class ProtocolName(StrEnum):
    """How rows are held out."""

    CV = "cv"
    LOGO = "logo"
    LOLO = "lolo"


RunsOption = Annotated[
    Path, typer.Option("--runs", help="Measured runs: summary or upstream CSV.", exists=True, dir_okay=False)
]
ModelsOption = Annotated[
    Path, typer.Option("--models", help="WattGPU's model_features.csv.", exists=True, dir_okay=False)
]
GpusOption = Annotated[
    Path, typer.Option("--gpus", help="WattGPU's gpu_features.csv.", exists=True, dir_okay=False)
]
RecipeOption = Annotated[RecipeName, typer.Option(help="The recipe.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Refuse a file with any broken row.")]


def train(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    runs: RunsOption,
    models: ModelsOption,
    gpus: GpusOption,
    out: Annotated[Path, typer.Option("--out", help="Directory to write the artifacts to.")],
    recipe: RecipeOption = RecipeName.WATTGPU,
    strict: StrictOption = False,
) -> None:
    """Fit, score, calibrate, and write artifacts; equal data and versions give equal bytes."""
    from wattkeeper_predictor.training.train_wattgpu import train_wattgpu  # noqa: PLC0415 - slow to import

    artifact = train_wattgpu(_dense_data(runs, models, gpus, strict), _say)
    write_artifact(out, artifact)
    _say(f"{recipe.value} written to {out}")


def evaluate(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    runs: RunsOption,
    models: ModelsOption,
    gpus: GpusOption,
    protocol: Annotated[ProtocolName, typer.Option(help="What is held out: fifths, GPUs or LLMs.")],
    recipe: RecipeOption = RecipeName.WATTGPU,
    strict: StrictOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a recipe and the baselines on rows they were not fitted on."""
    from wattkeeper_predictor.training.evaluate import evaluate_wattgpu  # noqa: PLC0415 - slow to import

    scores = evaluate_wattgpu(_dense_data(runs, models, gpus, strict), protocol.value, _say)
    typer.echo(json.dumps(scores, indent=2) if as_json else _table(recipe.value, scores))


def model_card(
    artifacts: Annotated[Path | None, typer.Option(help="Artifacts, else the package's.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write, else standard output.")] = None,
) -> None:
    """The model card, made from the artifacts' manifest."""
    from wattkeeper_predictor.training.model_card import model_card_text  # noqa: PLC0415 - only here

    text = model_card_text(read_artifact(artifacts or default_artifacts()).manifest)
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


def _dense_data(runs: Path, models: Path, gpus: Path, strict: bool) -> Dataset:
    from wattkeeper_predictor.training.dataset import dense, load_dataset  # noqa: PLC0415 - slow to import

    data = dense(load_dataset(runs, models, gpus, strict=strict))
    if data.broken:
        _say(data.broken)
    for name, reason in data.skipped.items():
        _say(f"skipped {name}: {reason}")
    return data


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _table(recipe: str, scores: dict[str, Any]) -> str:
    lines = [f"{'':<10}{'':<7}{'':<9}{'MdAPE %':>9}{'RMSE':>12}{'τ LLM':>8}{'τ GPU':>8}{'n':>7}"]
    for name, both in [(recipe, scores), *scores["baselines"].items()]:
        for target in ("power", "itl"):
            for scenario, row in (both[target] or {}).items():
                taus = "".join(
                    "     n/a" if row[key] is None else f"{row[key]:8.2f}"
                    for key in ("kendall_tau_llm", "kendall_tau_gpu")
                )
                figures = f"{row['mdape_percent']:9.1f}{row['rmse']:12.4g}{taus}{row['n']:7d}"
                lines.append(f"{name:<10}{target:<7}{scenario:<9}{figures}")
    return "\n".join([*lines, "RMSE in W (power) and s (itl)"])
