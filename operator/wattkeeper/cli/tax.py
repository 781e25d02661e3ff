"""`wattkeeper tax`: the parking tax from recordings, by seed 002's own analysis, and measured anew."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from wattkeeper.cli.manifest_files import InputError
from wattkeeper.cli.tax_input import Profiles, Recording, read
from wattkeeper.cli.tax_measure import BAD_INPUT, ENDS, measure, publish
from wattkeeper.core import dose_response, production_profiles
from wattkeeper.core.dose_response import EQUIVALENCE_WATTS_PER_GB, DoseResponse, ModelIdle
from wattkeeper.core.production_profiles import Observational

PLOT_NEEDS = "--plot needs matplotlib: install it with `pip install matplotlib`"

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")


@dataclass(frozen=True, slots=True)
class Study:
    """One file's answer."""

    file: str
    gpu: str
    answer: DoseResponse | ModelIdle | Observational


@app.callback()
def tax() -> None:
    """The parking tax: what an idle CUDA context costs a GPU, in watts."""


app.command(epilog=ENDS)(measure)
app.command()(publish)


@app.command(epilog="Exit codes: 0 all files are analysed, 2 a file can't be used (the message says why).")
def analyze(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Dose-response recordings and recordings of an idle model (JSON lines or CSV, one board a "
            "file), or profiles of production GPUs (CSV).",
        ),
    ],
    bound: Annotated[
        float, typer.Option(help="Bound of the equivalence test, in W/GB.", min=1e-6)
    ] = EQUIVALENCE_WATTS_PER_GB,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the recordings into this file (png, svg or pdf).")
    ] = None,
) -> None:
    """Repeat the parking-tax study on recordings.

    For a dose-response: the step that a context causes and the SM clocks beside it, the slope over allocated
    memory with its equivalence test, temperature as a covariate, the context's share of the tax, and idle
    power against the rule of thumb of 20 % of TDP. For an idle model: its step, beside what the dose-response
    of the same GPU in the same call foretells. For production profiles: bare GPUs against those with a
    context, and the slope over their memory.
    """
    try:
        studies = [analyze_file(file, bound) for file in files]
        if plot is not None:
            draw(studies, plot)
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        typer.echo(json.dumps([to_json(study) for study in studies], indent=2))
        return
    from wattkeeper.cli.tax_table import print_studies  # noqa: PLC0415  rich is loaded for tables only

    print_studies([(study.file, study.gpu, study.answer) for study in studies])


def analyze_file(file: str, bound: float = EQUIVALENCE_WATTS_PER_GB) -> Study:
    """Read and analyse one file. Raises InputError."""
    given = read(file)
    try:
        if isinstance(given, Profiles):
            return Study(file, "production GPUs", production_profiles.analyze(given.profiles))
        return Study(file, given.gpu, _analyze_recording(given, bound))
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None


def _analyze_recording(given: Recording, bound: float) -> DoseResponse | ModelIdle:
    if given.model:
        return dose_response.analyze_model(given.model, given.readings)
    return dose_response.analyze(given.readings, tdp_watts=given.tdp_watts, bound=bound)


def to_json(study: Study) -> dict[str, Any]:
    """A study's figures, with those that are computed from others."""
    kinds = {DoseResponse: "doseResponse", ModelIdle: "idleModel", Observational: "observational"}
    figures = asdict(study.answer)
    for name in ("context_share", "bare_of_tdp", "context_of_tdp", "kwh_a_year"):
        if hasattr(study.answer, name):
            figures[name] = getattr(study.answer, name)
    if isinstance(study.answer, DoseResponse):
        figures["equivalence"]["equivalent"] = study.answer.equivalence.equivalent
        for each, covariate in zip(figures["covariates"], study.answer.covariates, strict=True):
            each["explains_the_slope"] = covariate.explains_the_slope
    return {"file": study.file, "gpu": study.gpu, "kind": kinds[type(study.answer)], **figures}


def draw(studies: list[Study], target: Path) -> None:
    """Draw every dose-response; InputError where that can't be done."""
    doses = [(study.gpu, study.answer) for study in studies if isinstance(study.answer, DoseResponse)]
    models = [(study.gpu, study.answer) for study in studies if isinstance(study.answer, ModelIdle)]
    if not doses:
        raise InputError("--plot draws dose-response recordings, and none was given")
    try:
        from wattkeeper.cli.tax_plot import save_plot  # noqa: PLC0415  matplotlib is optional
    except ImportError:
        raise InputError(PLOT_NEEDS) from None
    try:
        save_plot(doses, models, target)
    except (OSError, ValueError) as error:
        raise InputError(f"{target}: can't be written: {error}") from None
