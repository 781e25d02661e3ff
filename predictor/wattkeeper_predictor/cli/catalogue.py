"""``catalogue``: look at what is known of GPUs and models, and build the data files."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue

app = typer.Typer(help="What is known of GPUs and models, with sources.", no_args_is_help=True)


@app.command("gpus")
def list_gpus() -> None:
    """List all GPUs with the figures that matter most."""
    catalogue = GpuCatalogue.load()
    for name in catalogue.names():
        gpu = catalogue.get(name)
        rate = "     ?" if gpu.fp16_dense_tflops is None else f"{gpu.fp16_dense_tflops:6.0f}"
        typer.echo(
            f"{name:<34}{gpu.memory_bytes / 2**30:7.1f} GiB{gpu.memory_bandwidth_gb_s:8.0f} GB/s"
            f"{rate} TFLOPS{gpu.tdp_watts:7.0f} W  {gpu.compute_capability or '?'}"
        )


@app.command("models")
def list_models() -> None:
    """List all models with their true parameter counts."""
    catalogue = ModelCatalogue.load()
    for name in catalogue.ids():
        model = catalogue.get(name)
        active = f" ({model.parameters_active_billion:.2f} active)" if model.is_mixture_of_experts else ""
        typer.echo(f"{name:<56}{model.parameters_total_billion:9.2f} billion{active}")


@app.command("gpu")
def show_gpu(
    name: Annotated[str, typer.Argument(help="Any name or label of a GPU, or an instance type.")],
) -> None:
    """How a name is read, and all figures with their sources, as JSON."""
    catalogue = GpuCatalogue.load()
    read = catalogue.lookup(name)
    typer.echo(json.dumps({"read_as": asdict(read), "gpu": asdict(catalogue.get(name))}, indent=2))


@app.command("model")
def show_model(name: Annotated[str, typer.Argument(help="Hugging Face id.")]) -> None:
    """All figures of a model with their source, as JSON."""
    typer.echo(json.dumps(asdict(ModelCatalogue.load().get(name)), indent=2))


@app.command("build")
def build(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="Directory with the tables gpus/*.csv, llms/llm_configs.csv, wattgpu/model_features.csv.",
            exists=True,
            file_okay=False,
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Directory to write to, else the package's own.")] = None,
) -> None:
    """Build gpus.json and models.json from tables of readings and our decisions."""
    from wattkeeper_predictor.catalog.build_gpus import build_gpus  # noqa: PLC0415 - only here
    from wattkeeper_predictor.catalog.build_models import build_models  # noqa: PLC0415 - only here
    from wattkeeper_predictor.catalog.store import write  # noqa: PLC0415 - only here

    own = Path(str(resources.files("wattkeeper_predictor.catalog")))
    target = out or own
    gpus = build_gpus(
        data / "gpus/gpu_specs.csv",
        data / "gpus/gpu_specs_sources.csv",
        data / "gpus/cloud_instances.csv",
        own / "gpu_decisions.json",
    )
    models = build_models(
        data / "llms/llm_configs.csv", data / "wattgpu/model_features.csv", own / "model_decisions.json"
    )
    write(target / "gpus.json", gpus)
    write(target / "models.json", models.data)
    for name, reason in models.left_out.items():
        print(f"left out {name}: {reason}", file=sys.stderr)
    typer.echo(f"{len(gpus['gpus'])} GPUs and {len(models.data['models'])} models written to {target}")
