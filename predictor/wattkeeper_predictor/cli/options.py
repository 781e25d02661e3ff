"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class RecipeName(StrEnum):
    """Recipes that can be trained."""

    WATTKEEPER = "wattkeeper"
    WATTGPU = "wattgpu"


RunsOption = Annotated[
    list[Path],
    typer.Option(
        "--runs",
        help="Measured rows: Watt Counts (summary or upstream), a sweep, our own CSV; may be repeated.",
        exists=True,
        dir_okay=False,
    ),
]
ModelsOption = Annotated[
    Path | None,
    typer.Option("--models", help="model_features.csv, else the catalogue.", exists=True, dir_okay=False),
]
GpusOption = Annotated[
    Path | None,
    typer.Option("--gpus", help="gpu_features.csv, else the catalogue.", exists=True, dir_okay=False),
]
RecipeOption = Annotated[RecipeName, typer.Option(help="The recipe.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Refuse a file with any broken row.")]
