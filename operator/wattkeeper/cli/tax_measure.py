"""`wattkeeper tax measure` and `publish`: the options; the work is in `tax_local` and `tax_job`."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from wattkeeper.api.quantities import QuantityError, parse_duration
from wattkeeper.cli.manifest_files import InputError

BAD_INPUT = 2
#: The same words as sysexits.h has: the GPU can't be used, and it is in use just now.
EXIT_DRIVER = 69
EXIT_NOT_ALONE = 75
EXIT_FAILED = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
#: With it in the environment a context isn't boosted to its highest clocks (driver 580 and newer).
PERF_BOOST = "CUDA_DISABLE_PERF_BOOST"
DEFAULT_NAMESPACE = "wattkeeper-system"
_LEVELS_HELP = "GiB to allocate, one after the other, beginning with 0. Default: 0, ¼, ½ and ⅞ of the memory."
ENDS = (
    f"Exit codes: 0 measured, {BAD_INPUT} an option can't be used, {EXIT_DRIVER} the driver or the GPU can't "
    f"be used, {EXIT_NOT_ALONE} something else is at work on the GPU, {EXIT_FAILED} the Job or its result "
    "failed otherwise, 128 + N stopped by signal N."
)
_LOCAL, _JOB = "On this machine", "On a node of the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The plan's options. `levels_gib` None: by the board's memory."""

    levels_gib: tuple[float, ...] | None
    bare_seconds: float
    level_seconds: float
    settle_seconds: float
    interval_seconds: float
    unboosted: bool

    def arguments(self) -> tuple[str, ...]:
        """The options that give this timing again."""
        given = [
            f"--bare={self.bare_seconds:g}s",
            f"--level={self.level_seconds:g}s",
            f"--settle={self.settle_seconds:g}s",
            f"--interval={self.interval_seconds:g}s",
        ]
        if self.levels_gib is not None:
            given.append(f"--levels={','.join(f'{level:g}' for level in self.levels_gib)}")
        return (*given, *(["--disable-perf-boost"] if self.unboosted else []))


def measure(  # noqa: PLR0913, PLR0917  a command has its options
    local: Annotated[
        bool, typer.Option("--local", help="Measure a GPU of this machine.", rich_help_panel=_LOCAL)
    ] = False,
    node: Annotated[
        str | None, typer.Option(help="Measure a GPU of this node, by a Job.", rich_help_panel=_JOB)
    ] = None,
    levels: Annotated[str | None, typer.Option(metavar="GIB,GIB,…", help=_LEVELS_HELP)] = None,
    bare: Annotated[str, typer.Option(help="How long the bare board is read.")] = "35m",
    level: Annotated[str, typer.Option(help="How long each level is read.")] = "20m",
    settle: Annotated[str, typer.Option(help="How long the board settles after each change.")] = "90s",
    interval: Annotated[str, typer.Option(help="Time between two readings, at most 60s.")] = "30s",
    disable_perf_boost: Annotated[
        bool, typer.Option("--disable-perf-boost", help=f"Measure what a context costs with {PERF_BOOST}=1.")
    ] = False,
    record: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File for the readings, - for standard output. Default: one named after GPU and time in "
            "this folder, or none with --node.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    gpu: Annotated[
        str | None,
        typer.Option(help="Index or UUID of the GPU. Default: the only one.", rich_help_panel=_LOCAL),
    ] = None,
    namespace: Annotated[
        str, typer.Option(help="The operator's namespace, for the Job and its result.", rich_help_panel=_JOB)
    ] = DEFAULT_NAMESPACE,
    image: Annotated[
        str | None, typer.Option(help="Image of wattkeeper. Default: the operator's.", rich_help_panel=_JOB)
    ] = None,
    runtime_class: Annotated[
        str | None,
        typer.Option(help="RuntimeClass of GPU pods, where the cluster needs one.", rich_help_panel=_JOB),
    ] = None,
    start_timeout: Annotated[
        str,
        typer.Option(help="How long the Job may wait for a free GPU and its image.", rich_help_panel=_JOB),
    ] = "10m",
    again: Annotated[
        bool,
        typer.Option("--again", help="Measure although a finished Job has a result.", rich_help_panel=_JOB),
    ] = False,
    print_job: Annotated[
        bool, typer.Option("--print", help="Print the Job and do nothing.", rich_help_panel=_JOB)
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Kubeconfig file. Default: $KUBECONFIG or ~/.kube/config.",
            exists=True,
            dir_okay=False,
            rich_help_panel=_JOB,
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Context of the kubeconfig to use.", rich_help_panel=_JOB)
    ] = None,
) -> None:
    """Measure the parking tax of a GPU: bare, then with a CUDA context, then with ever more memory.

    This is seed 002's dose-response; with the default times it takes about two hours of a GPU that nobody
    else uses. It ends at once when somebody does. With --node the result is kept in a ConfigMap, which
    this version's operator doesn't read yet; a call that is cut off finds its Job again.
    """
    from wattkeeper.cli import tax_local  # noqa: PLC0415  `tax analyze` needs no driver

    if local == (node is not None):
        _fail("give either --local or --node NODE", BAD_INPUT)
    try:
        timing = Timing(
            levels_gib=_levels(levels),
            bare_seconds=_seconds(bare, "--bare"),
            level_seconds=_seconds(level, "--level"),
            settle_seconds=_seconds(settle, "--settle"),
            interval_seconds=_seconds(interval, "--interval"),
            unboosted=disable_perf_boost or os.environ.get(PERF_BOOST) == "1",
        )
        tax_local.check(timing)
        if node is None:
            raise typer.Exit(tax_local.run(timing, gpu, record, as_json=as_json))
        from wattkeeper.cli import tax_job  # noqa: PLC0415  a GPU node needs no API client

        order = tax_job.Order(
            node=node,
            namespace=namespace,
            timing=timing,
            image=image,
            runtime_class=runtime_class,
            start_seconds=_seconds(start_timeout, "--start-timeout"),
            again=again,
        )
        if print_job:
            raise typer.Exit(asyncio.run(tax_job.show(order, kubeconfig, context)))
        try:
            code = asyncio.run(tax_job.run(order, kubeconfig, context, record, as_json=as_json))
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            typer.echo(f"error: interrupted; {tax_job.after_interruption(order)}", err=True)
        raise typer.Exit(code)
    except (InputError, QuantityError) as error:
        _fail(error, BAD_INPUT)


def publish(  # noqa: PLR0913, PLR0917  a command has its options
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="Recordings that `tax measure --local` wrote, one GPU a file."),
    ],
    node: Annotated[str, typer.Option(help="The node that they were measured on.")] = "",
    namespace: Annotated[str, typer.Option(help="The operator's namespace.")] = DEFAULT_NAMESPACE,
    print_result: Annotated[
        bool, typer.Option("--print", help="Print the ConfigMaps and do nothing.")
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Kubeconfig file. Default: $KUBECONFIG or ~/.kube/config.", exists=True, dir_okay=False
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig to use.")] = None,
) -> None:
    """Keep measurements in the cluster, in ConfigMaps of the operator's namespace.

    This version's operator doesn't read them yet: they are kept for one that does.
    """
    from wattkeeper.cli import tax_job  # noqa: PLC0415  the API's client

    try:
        results = [tax_job.result_of_file(file, node) for file in files]
        raise typer.Exit(
            asyncio.run(tax_job.keep(results, namespace, kubeconfig, context, print_only=print_result))
        )
    except InputError as error:
        _fail(error, BAD_INPUT)


def _levels(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--levels: must be numbers with commas between, got {text!r:.60}") from None


def _seconds(text: str, option: str) -> float:
    return float(parse_duration(text, option))


def _fail(message: object, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)
