"""``evaluate``: how far predictions are off on rows that no fit has seen."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from wattkeeper_predictor.artifact import read_artifact
from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.predictor import default_artifacts

from .options import GpusOption, ModelsOption, RecipeName, RecipeOption, RunsOption, StrictOption
from .train import dense_data, say


class ProtocolName(StrEnum):
    """What is held out: fifths of the rows, each GPU, LLM or family, pairs of both, or whole files."""

    CV = "cv"
    LOGO = "logo"
    LOLO = "lolo"
    LOMO = "lomo"
    BOTH = "both"
    HOLDOUT = "holdout"


def evaluate(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    runs: RunsOption,
    protocol: Annotated[ProtocolName, typer.Option(help="What is held out.")],
    models: ModelsOption = None,
    gpus: GpusOption = None,
    recipe: RecipeOption = RecipeName.WATTKEEPER,
    anchored: Annotated[
        str | None,
        typer.Option(help="What else is known of held-out rows: idle,length,duty (some of them)."),
    ] = None,
    train_runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--train-runs",
            help="Rows to fit (holdout), else the shipped artifacts predict; may be repeated.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(help="Directory for plots of errors and calibration.", file_okay=False),
    ] = None,
    strict: StrictOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a recipe and the baselines on rows they were not fitted on."""
    if recipe is RecipeName.WATTGPU:
        scores = _wattgpu(runs, models, gpus, protocol, anchored, strict)
    else:
        scores = _wattkeeper(runs, models, gpus, protocol, anchored, train_runs or [], plots, strict)
    typer.echo(json.dumps(scores, indent=2) if as_json else _table(recipe.value, scores))


def _wattgpu(  # noqa: PLR0913, PLR0917 - a command's options
    runs: list[Path],
    models: Path | None,
    gpus: Path | None,
    protocol: ProtocolName,
    anchored: str | None,
    strict: bool,
) -> dict[str, Any]:
    from wattkeeper_predictor.training.evaluate import evaluate_wattgpu  # noqa: PLC0415 - slow to import
    from wattkeeper_predictor.training.protocols import PROTOCOLS  # noqa: PLC0415

    if anchored:
        raise InvalidInput("anchored", "the recipe wattgpu takes public metadata only; leave it out")
    for known in PROTOCOLS:
        if known == protocol.value:
            return evaluate_wattgpu(dense_data(runs, models, gpus, strict), known, say)
    raise InvalidInput(
        "protocol", f"{protocol.value} isn't defined for the recipe wattgpu; choose {', '.join(PROTOCOLS)}"
    )


def _wattkeeper(  # noqa: PLR0913, PLR0917 - a command's options
    runs: list[Path],
    models: Path | None,
    gpus: Path | None,
    protocol: ProtocolName,
    anchored: str | None,
    train_runs: list[Path],
    plots: Path | None,
    strict: bool,
) -> dict[str, Any]:
    from wattkeeper_predictor.training.evaluate_wattkeeper import predictions, report  # noqa: PLC0415
    from wattkeeper_predictor.training.load import load_measured  # noqa: PLC0415 - slow to import
    from wattkeeper_predictor.training.predict_rows import parse_anchors  # noqa: PLC0415

    anchors = parse_anchors(anchored)
    loaded = load_measured(runs, models, gpus, strict=strict)
    for note in loaded.notes:
        say(note)
    if train_runs and protocol is not ProtocolName.HOLDOUT:
        raise InvalidInput("train_runs", "is for the protocol holdout only; leave it out or choose that one")
    fitted = None
    if protocol is ProtocolName.HOLDOUT:
        fitted = _fitted(train_runs, models, gpus, strict)
    predicted = predictions(loaded.training, protocol.value, anchors, fitted, say)
    if plots is not None:
        from wattkeeper_predictor.training.plots import draw  # noqa: PLC0415 - needs matplotlib

        for path in draw(plots, loaded.training, predicted, protocol.value):
            say(f"drew {path}")
    return report(loaded.training, predicted, protocol.value)


def _fitted(train_runs: list[Path], models: Path | None, gpus: Path | None, strict: bool) -> Any:
    from wattkeeper_predictor.recipes.wattkeeper.fitted import from_parts  # noqa: PLC0415
    from wattkeeper_predictor.training.fit_recipe import fit_recipe  # noqa: PLC0415 - slow to import
    from wattkeeper_predictor.training.load import load_measured  # noqa: PLC0415

    if train_runs:
        return fit_recipe(load_measured(train_runs, models, gpus, strict=strict).training)
    say("no --train-runs: the shipped artifacts predict")
    artifact = read_artifact(default_artifacts(RecipeName.WATTKEEPER.value))
    return from_parts(artifact.manifest, artifact.files)


def _table(recipe: str, scores: dict[str, Any]) -> str:
    lines = [f"{'':<11}{'':<7}{'':<9}{'MdAPE %':>9}{'RMSE':>12}{'τ LLM':>8}{'τ GPU':>8}{'n':>7}"]
    for name, both in [(recipe, scores), *scores["baselines"].items()]:
        for target in ("power", "itl"):
            for scenario, row in (both[target] or {}).items():
                taus = "".join(
                    "     n/a" if row[key] is None else f"{row[key]:8.2f}"
                    for key in ("kendall_tau_llm", "kendall_tau_gpu")
                )
                figures = f"{row['mdape_percent']:9.1f}{row['rmse']:12.4g}{taus}{row['n']:7d}"
                lines.append(f"{name:<11}{target:<7}{scenario:<9}{figures}")
    lines.append("RMSE in W (power) and s (itl)")
    for target, row in scores.get("mlenergy", {}).items():
        lines.append(f"{'sweeps':<11}{target:<16}{row['mdape_percent']:9.1f}{row['n']:35d}")
    for bounds, figures in scores.get("decisions", {}).items():
        lines.append(f"choosing by {bounds.replace('_', ' ')}, {figures['cases']} cases:")
        for policy, row in figures.items():
            if policy != "cases":
                shown = ", ".join(
                    f"{key.replace('_percent', ' %').replace('_', ' ')} {value:.1f}"
                    for key, value in row.items()
                    if value is not None
                )
                lines.append(f"  {policy:<24}{shown}")
    return "\n".join(lines)
