"""`wattkeeper plan`: the operator's placement decisions without a cluster, by the same functions."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from wattkeeper.api.conditions import Stamp
from wattkeeper.api.convert import ParsedDeployment
from wattkeeper.api.names import API_VERSION, LLM_DEPLOYMENT
from wattkeeper.api.status import placement_status, reaffirmed_status
from wattkeeper.cli.manifest_files import BadInputError
from wattkeeper.cli.plan_input import Deployment, PlanInput, read_input
from wattkeeper.core.allocator import Allocation, allocate
from wattkeeper.core.forecast import Forecaster
from wattkeeper.prediction import ForecasterError, PredictorForecaster

#: Exit codes, as `wattkeeper plan --help` says them.
ALL_PLACED, SOME_UNPLACED, BAD_INPUT = 0, 1, 2


class Output(StrEnum):
    """How the decisions are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One LLMDeployment of the plan: what was decided, and its status."""

    parsed: ParsedDeployment
    allocation: Allocation
    status: Mapping[str, Any]

    @property
    def placed(self) -> bool:
        decision = self.allocation.decision
        return decision.chosen is not None and not decision.deferred


@dataclass(frozen=True, slots=True)
class Plan:
    """All that was decided, and what to know of the input."""

    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]


app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command(
    epilog="Exit codes: 0 all are placed, 1 some can't be placed (the output says why), "
    "2 the input or the installed predictor can't be used (standard error says where and why)."
)
def plan(
    files: Annotated[
        list[str],
        typer.Option(
            "-f",
            "--filename",
            help="File with LLMDeployments, and ConfigMaps they refer to; - for standard input; repeatable.",
        ),
    ],
    fleet_files: Annotated[
        list[str],
        typer.Option(
            "--fleet",
            help="File with Nodes and GPUNodePools; Pods in it hold their GPUs, placed LLMDeployments keep "
            "theirs; - for standard input; repeatable.",
        ),
    ],
    output: Annotated[
        Output, typer.Option("-o", "--output", help="json and yaml give the status of each LLMDeployment.")
    ] = Output.TABLE,
) -> None:
    """Say where LLMDeployments would be placed, and why, without a cluster.

    The decisions are the operator's own, made in the order in which the LLMDeployments were created; those
    that don't exist yet follow in the order of the files. A fleet file may come from a cluster:

    ```
    kubectl get nodes,gnp -o yaml > fleet.yaml
    kubectl get pods,llmd -A -o yaml > taken.yaml
    wattkeeper plan -f llmd.yaml --fleet fleet.yaml --fleet taken.yaml
    ```
    """
    try:
        made = make_plan(read_input(files, fleet_files), PredictorForecaster(), datetime.now(UTC))
    except (BadInputError, ForecasterError) as error:
        for line in str(error).splitlines():
            typer.echo(f"error: {line}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    for note in made.notes:
        typer.echo(f"note: {note}", err=True)
    _print(made, output)
    raise typer.Exit(ALL_PLACED if all(each.placed for each in made.outcomes) else SOME_UNPLACED)


def make_plan(given: PlanInput, forecaster: Forecaster, now: datetime) -> Plan:
    """Decide for all LLMDeployments of the input, in order; `now` is the time that the conditions get."""
    allocations = allocate(
        (each.parsed.demand for each in given.deployments),
        given.fleet,
        {each.parsed.demand.uid: each.assignment for each in given.deployments if each.assignment},
        forecaster,
        assume_bound=True,
    )
    by_uid = {each.parsed.demand.uid: each for each in given.deployments}
    outcomes = [_outcome(by_uid[each.demand.uid], each, now) for each in allocations]
    notes = [f"pool {pool.name}: {note}" for pool in given.fleet.pools for note in pool.notes]
    asked = tuple(each for each in outcomes if by_uid[each.parsed.demand.uid].asked)
    return Plan(asked, (*given.notes, *notes))


def _outcome(deployment: Deployment, allocation: Allocation, now: datetime) -> Outcome:
    parsed = deployment.parsed
    make = reaffirmed_status if allocation.placed_before else placement_status
    stamp = Stamp(parsed.generation, now)
    status = make(allocation.decision, parsed.demand, parsed.spec, stamp, deployment.status)
    return Outcome(parsed, allocation, status)


def _print(made: Plan, output: Output) -> None:
    if output is Output.TABLE:
        from wattkeeper.cli.plan_table import print_tables  # noqa: PLC0415 - rich only where it is shown

        print_tables([(each.parsed.demand, each.allocation.decision, each.placed) for each in made.outcomes])
        return
    items = [
        {
            "apiVersion": API_VERSION,
            "kind": LLM_DEPLOYMENT,
            "metadata": {"name": each.parsed.demand.name, "namespace": each.parsed.demand.namespace},
            "status": each.status,
        }
        for each in made.outcomes
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    if output is Output.JSON:
        json.dump(listed, sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        yaml.safe_dump(listed, sys.stdout, sort_keys=False, allow_unicode=True)
