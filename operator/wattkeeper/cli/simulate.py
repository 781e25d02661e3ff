"""`wattkeeper simulate`: what parking would have saved, by the operator's own decisions."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wattkeeper.cli.manifest_files import InputError
from wattkeeper.cli.simulate_input import Board, Requests
from wattkeeper.cli.simulate_report import csv_text, figures, markdown, print_table
from wattkeeper.cli.simulate_run import draw, notes_of, run, scenes_of
from wattkeeper.cli.simulate_words import duration, policies, share
from wattkeeper.core.break_even import Accounting
from wattkeeper.sim.arrivals import TraceError
from wattkeeper.sim.fleet import Options
from wattkeeper.sim.outcome import Outcome

BAD_INPUT = 2
_REQUESTS, _HARDWARE, _POLICIES, _OUTPUT = "Requests", "GPUs and models", "Policies", "Output"


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class LoaderName(StrEnum):
    STANDARD = "standard"
    FAST = "fast"


app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command(
    name="simulate",
    epilog="Exit codes: 0 done, 2 the input can't be used (standard error says where, why and what to do).",
)
def command(  # noqa: PLR0913, PLR0917  the command's options
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            help="CSV with the columns arrival_s and service_s (seconds from its start), or the access log "
            "of an OpenAI-compatible server (JSON lines, common or combined format); repeatable, each is a "
            "model.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None,
    generate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:NAME=VALUE,…",
            help="Generate requests: poisson:per-hour=5, "
            "mmpp:quiet=2,busy=60,quiet-length=15m,busy-length=10m, "
            "diurnal:peak=30,night=20%,weekend=5%, lognormal:mean-gap=6m,sigma=1.5, "
            "pareto:least-gap=60s,alpha=1.2 (heavy tail), periodic:every=15m,jitter=20s; each takes "
            "service=10s, the mean time of a request. Repeatable, each is a model.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None,
    copies: Annotated[
        int, typer.Option(min=1, help="Models for each --generate, all different.", rich_help_panel=_REQUESTS)
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of what is generated.", rich_help_panel=_REQUESTS)] = 0,
    service_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="How long every request takes, where the trace doesn't say.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None,
    log_model: Annotated[
        list[str] | None,
        typer.Option(help="Only this model of an access log; repeatable.", rich_help_panel=_REQUESTS),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option(
            help="Pools and models from a YAML file, instead of --trace, --generate and --gpu.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="What to simulate, from the trace's start, such as 24h or 30d. Otherwise whole days that "
            "hold the trace, or what an access log covers.",
            rich_help_panel=_REQUESTS,
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            help="GPU kind, such as H100 or NVIDIA-L4; several are compared. Default H100.",
            rich_help_panel=_HARDWARE,
        ),
    ] = None,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="GPUs a replica.", rich_help_panel=_HARDWARE)
    ] = 1,
    weights_gb: Annotated[
        float,
        typer.Option(
            min=0.001, help="Size of the weights; 15.2 GB load in the seed's 45 s.", rich_help_panel=_HARDWARE
        ),
    ] = 15.2,
    loader: Annotated[
        LoaderName, typer.Option(help="How weights are loaded.", rich_help_panel=_HARDWARE)
    ] = LoaderName.STANDARD,
    models_per_gpu: Annotated[
        int, typer.Option(min=1, help="Models that share a GPU, in their order.", rich_help_panel=_HARDWARE)
    ] = 1,
    bare_watts: Annotated[
        float | None, typer.Option(min=0.0, help="A GPU without a context.", rich_help_panel=_HARDWARE)
    ] = None,
    context_watts: Annotated[
        float | None, typer.Option(min=0.0, help="With an idle context.", rich_help_panel=_HARDWARE)
    ] = None,
    load_watts: Annotated[
        float | None, typer.Option(min=0.001, help="While a model loads.", rich_help_panel=_HARDWARE)
    ] = None,
    tdp_watts: Annotated[
        float | None,
        typer.Option(min=1.0, help="For GPUs that nobody measured.", rich_help_panel=_HARDWARE),
    ] = None,
    load_seconds: Annotated[
        float | None, typer.Option(min=0.001, help="A load, as measured.", rich_help_panel=_HARDWARE)
    ] = None,
    load_joules: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="A load's energy above bare GPUs, as measured: what --accounting marginal charges.",
            rich_help_panel=_HARDWARE,
        ),
    ] = None,
    host_watts: Annotated[
        float, typer.Option(min=0.0, help="Host power that a load is charged too.", rich_help_panel=_HARDWARE)
    ] = 0.0,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:VALUE]",
            help="AlwaysOn (Never), BreakEven, Fixed:10m, Adaptive, WaitingBudget:5% (BreakEven that lets so "
            "many requests wait), Optimum (knows the future); all; published (the seed's table). Repeatable; "
            "default BreakEven.",
            rich_help_panel=_POLICIES,
        ),
    ] = None,
    fixed: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Timeout of Fixed; default 10m.", rich_help_panel=_POLICIES),
    ] = None,
    max_delayed: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Share of requests that may meet a cold start (parking.maxDelayedRequests), for all.",
            rich_help_panel=_POLICIES,
        ),
    ] = None,
    min_idle: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="No timeout is shorter (parking.minIdle).", rich_help_panel=_POLICIES
        ),
    ] = "0s",
    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="Let models on a shared GPU leave one by one, each by its own T*, rather than as a group.",
            rich_help_panel=_POLICIES,
        ),
    ] = False,
    accounting: Annotated[
        Accounting,
        typer.Option(
            case_sensitive=False,
            help="**corrected**: all energy, a load at full power. **total**: as seed 002 published it, "
            "where service and the time before the first request are free for parking and charged to "
            "always-on, and a load costs the standard loader's time; the corrected figure stands beside it. "
            "**marginal**: a load costs what it takes above bare GPUs.",
            rich_help_panel=_POLICIES,
        ),
    ] = Accounting.CORRECTED,
    loads_take_time: Annotated[
        bool,
        typer.Option(
            "--loads-take-time",
            help="Let loads last on the timeline: requests that come meanwhile wait too. Slower.",
            rich_help_panel=_POLICIES,
        ),
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output", rich_help_panel=_OUTPUT)] = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="As -o json.", rich_help_panel=_OUTPUT)] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw power over time, and savings against cold starts, into this file (png, svg, pdf).",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    progress: Annotated[
        bool,
        typer.Option(help="Show a progress bar where standard error is a terminal.", rich_help_panel=_OUTPUT),
    ] = True,
) -> None:
    """Say what parking would have saved, and who would have waited.

    The decisions are those of the operator: the same functions run under a virtual clock. Figures of seed 002
    are used for H100, A100 and L40S, cautious shares of the TDP for other GPUs, and whatever was measured
    instead. Energy is that of the GPUs alone.

    ```
    wattkeeper simulate --gpu H100 --trace arrivals.csv --policy all
    wattkeeper simulate --generate poisson:per-hour=5 --copies 24 --models-per-gpu 4 --horizon 7d --policy all
    ```

    With one policy and one GPU kind, JSON is one object; with several it has a list named outcomes.
    """
    try:
        requests = Requests(
            trace or (),
            generate or (),
            copies,
            seed,
            duration(horizon, "--horizon") if horizon is not None else None,
            service_seconds,
            log_model or (),
        )
        options = Options(accounting, requests.horizon, loads_take_time, profiles=plot is not None)
        chosen = policies(
            policy or ["BreakEven"],
            fixed_seconds=duration(fixed, "--fixed") if fixed is not None else None,
            max_delayed=share(max_delayed, "--max-delayed") if max_delayed is not None else None,
            min_idle_seconds=duration(min_idle, "--min-idle"),
            group=not apart,
        )
        watts = {
            "bare_watts": bare_watts,
            "context_watts": context_watts,
            "load_watts": load_watts,
            "tdp_watts": tdp_watts,
        }
        boards = [Board(name, watts) for name in gpu or ["H100"]]
        model = {
            "gpus": tensor_parallel,
            "weight_bytes": weights_gb * 1e9,
            "loader": loader.value,
            "load_seconds": load_seconds,
            "marginal_load_joules": load_joules,
            "host_watts": host_watts,
        }
        if fleet is not None and gpu:
            raise InputError("--gpu: the pools of --fleet name their GPUs: leave it out")
        scenes, notes = scenes_of(fleet, requests, boards, model, models_per_gpu)
        outcomes = run(scenes, chosen, options, progress=progress)
        if plot is not None:
            draw(scenes[0], chosen, outcomes, options, plot)
    except (InputError, TraceError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    for note in [*notes, *notes_of(scenes, outcomes)]:
        typer.echo(f"note: {note}", err=True)
    _print(outcomes, Output.JSON if as_json else output)


def _print(outcomes: list[Outcome], output: Output) -> None:
    if output is Output.JSON:
        found = [figures(each) for each in outcomes]
        typer.echo(json.dumps(found[0] if len(found) == 1 else {"outcomes": found}, indent=2))
    elif output is Output.CSV:
        sys.stdout.write(csv_text(outcomes))
    elif output is Output.MARKDOWN:
        typer.echo(markdown(outcomes))
    else:
        print_table(outcomes)
