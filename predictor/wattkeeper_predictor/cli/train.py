"""``train``, ``import`` and ``model-card``: from measured rows to artifacts and their description."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattkeeper_predictor.artifact import read_artifact, write_artifact
from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.predictor import default_artifacts

from .options import GpusOption, ModelsOption, RecipeName, RecipeOption, RunsOption, StrictOption

if TYPE_CHECKING:
    from wattkeeper_predictor.training.dataset import Dataset


def train(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    runs: RunsOption,
    models: ModelsOption = None,
    gpus: GpusOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Directory to write the artifacts to.")] = None,
    recipe: RecipeOption = RecipeName.WATTKEEPER,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            help="Splitwise's perf_model.csv, to bound first-token times.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Only compare algorithms and settings (recipe wattgpu), as JSON.")
    ] = False,
    strict: StrictOption = False,
) -> None:
    """Fit, score, calibrate, and write artifacts; equal data and versions give equal bytes."""
    if search:
        from wattkeeper_predictor.training.search import search_wattgpu  # noqa: PLC0415 - slow to import

        typer.echo(json.dumps(search_wattgpu(dense_data(runs, models, gpus, strict), say), indent=2))
        return
    if out is None:
        raise InvalidInput("out", "missing; name the directory to write the artifacts to")
    if recipe is RecipeName.WATTGPU:
        from wattkeeper_predictor.training.train_wattgpu import train_wattgpu  # noqa: PLC0415 - slow to import

        artifact = train_wattgpu(dense_data(runs, models, gpus, strict), say)
    else:
        from wattkeeper_predictor.training.load import load_measured  # noqa: PLC0415 - slow to import
        from wattkeeper_predictor.training.prompts import read_prompt_times  # noqa: PLC0415
        from wattkeeper_predictor.training.train_wattkeeper import train_wattkeeper  # noqa: PLC0415

        loaded = load_measured(runs, models, gpus, strict=strict)
        for note in loaded.notes:
            say(note)
        artifact = train_wattkeeper(loaded, read_prompt_times(prompts) if prompts else None, say)
    write_artifact(out, artifact)
    say(f"{recipe.value} written to {out}")


def import_runs(
    files: Annotated[
        list[Path], typer.Argument(help="Measured rows in any format.", exists=True, dir_okay=False)
    ],
    out: Annotated[Path, typer.Option("--out", help="CSV file to write.", dir_okay=False)],
    models: ModelsOption = None,
    gpus: GpusOption = None,
    strict: StrictOption = False,
) -> None:
    """Turn measured rows of any known format into wattkeeper's own CSV."""
    from wattkeeper_predictor.training.load import load_measured  # noqa: PLC0415 - slow to import
    from wattkeeper_predictor.training.own_format import write_own  # noqa: PLC0415

    loaded = load_measured(files, models, gpus, strict=strict)
    for note in loaded.notes:
        say(note)
    write_own(out, loaded.training.rows, loaded.training.itl_p95)
    say(f"{len(loaded.training.rows)} rows written to {out}")


def model_card(
    artifacts: Annotated[Path | None, typer.Option(help="Artifacts, else the package's.")] = None,
    recipe: Annotated[
        RecipeName | None, typer.Option(help="Which of the package's, else the default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write, else standard output.")] = None,
) -> None:
    """The model card, made from the artifacts' manifest."""
    from wattkeeper_predictor.training.model_card import model_card_text  # noqa: PLC0415 - only here

    shipped = default_artifacts(recipe.value) if recipe else default_artifacts()
    text = model_card_text(read_artifact(artifacts or shipped).manifest)
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


def dense_data(runs: list[Path], models: Path | None, gpus: Path | None, strict: bool) -> Dataset:
    """Watt Counts' dense rows, for the paper's recipe; what is left out is said on standard error."""
    from wattkeeper_predictor.training.dataset import dense, load_dataset  # noqa: PLC0415 - slow to import

    if len(runs) != 1:
        raise InvalidInput("runs", "the recipe wattgpu is fitted to one file; name it alone")
    data = dense(load_dataset(runs[0], models, gpus, strict=strict))
    if data.broken:
        say(data.broken)
    for name, reason in data.skipped.items():
        say(f"skipped {name}: {reason}")
    return data


def say(message: str) -> None:
    """Progress and complaints go to standard error."""
    print(message, file=sys.stderr, flush=True)
