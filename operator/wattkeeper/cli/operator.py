"""`wattkeeper operator run`: the operator, as the chart starts it and as a developer does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from wattkeeper.settings import (
    EXIT_CONFIGURATION,
    EXIT_LEADERSHIP_LOST,
    Settings,
    SettingsError,
    describe,
)

_ENDS = (
    f"Exit status: 0 when told to end, {EXIT_LEADERSHIP_LOST} when the Lease was lost (start it again), "
    f"{EXIT_CONFIGURATION} for settings, a kubeconfig or artifacts that can't be used."
)
#: click keeps the lines of paragraphs that begin so.
_AS_IS = "\b"
_EPILOG = "\n\n".join(
    [_ENDS, "Environment:", *(f"{_AS_IS}\n{name} [{default}]\n  {doc}" for name, default, doc in describe())]
)

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


@app.callback()
def operator() -> None:
    """The operator that places LLMDeployments."""


@app.command(epilog=_EPILOG)
def run(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Kubeconfig file. Default: the pod's ServiceAccount, else $KUBECONFIG or ~/.kube/config.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig to use.")] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="Serve this namespace alone; may be repeated. Default: WATTKEEPER_NAMESPACES, or all."
        ),
    ] = None,
    artifacts: Annotated[
        Path | None,
        typer.Option(
            help="Folder of trained predictor artifacts. Default: those in the package.", exists=True
        ),
    ] = None,
) -> None:
    """Run the operator until SIGTERM or SIGINT."""
    # What a running operator needs takes a second to import; `--help` doesn't.
    from wattkeeper.handlers import app as operator_app  # noqa: PLC0415
    from wattkeeper.handlers.logs import configure  # noqa: PLC0415
    from wattkeeper.kube.client import KubeConfigError  # noqa: PLC0415
    from wattkeeper.prediction import ForecasterError, PredictorForecaster  # noqa: PLC0415

    try:
        settings = Settings.from_environment(overrides={"namespaces": tuple(namespace)} if namespace else {})
        configure(settings.log_level, settings.log_format)
        forecaster = PredictorForecaster(artifacts)
        forecaster.load()
        status = asyncio.run(operator_app.run(settings, forecaster, kubeconfig, context))
    except (SettingsError, KubeConfigError, ForecasterError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(EXIT_CONFIGURATION) from None
    raise typer.Exit(status)
