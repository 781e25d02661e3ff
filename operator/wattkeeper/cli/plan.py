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
from wattkeeper.api.errors import SpecErrors
from wattkeeper.api.names import API_VERSION, LLM_DEPLOYMENT
from wattkeeper.api.status import invalid_status, placement_status, reaffirmed_status
from wattkeeper.cli.manifest_files import BadInputError
from wattkeeper.cli.plan_input import Deployment, PlanInput, read_input
from wattkeeper.core.allocator import Allocation, allocate
from wattkeeper.core.decision import Candidate, PlacementDecision
from wattkeeper.core.demand import Demand
from wattkeeper.core.forecast import Forecaster
from wattkeeper.kube.manifests.labels import Owner
from wattkeeper.kube.manifests.pod import pod_template
from wattkeeper.kube.manifests.record import Placed
from wattkeeper.prediction import ForecasterError, PredictorForecaster

#: Exit codes, as `wattkeeper plan --help` says them.
ALL_PLACED, SOME_UNPLACED, BAD_INPUT = 0, 1, 2
#: How long proxies take to learn of a pod's end: part of what is rendered, and of no verdict.
_PROPAGATION_SECONDS = 10.0


class Output(StrEnum):
    """How the decisions are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One LLMDeployment of the plan: what was decided, and its status.

    `refusal` says why its pods couldn't be made where they would go.
    """

    parsed: ParsedDeployment
    decision: PlacementDecision
    status: Mapping[str, Any]
    refusal: SpecErrors | None = None

    @property
    def placed(self) -> bool:
        return self.decision.chosen is not None and not self.decision.deferred and self.refusal is None


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
    by_uid = {each.parsed.demand.uid: each for each in given.deployments}

    def carried_out(demand: Demand, candidate: Candidate) -> bool:
        return _refusal(by_uid[demand.uid].parsed, candidate) is None

    allocations = allocate(
        (each.parsed.demand for each in given.deployments),
        given.fleet,
        {each.parsed.demand.uid: each.assignment for each in given.deployments if each.assignment},
        forecaster,
        assume_bound=True,
        carried_out=carried_out,
    )
    outcomes = [_outcome(by_uid[each.demand.uid], each, now) for each in allocations]
    notes = [f"pool {pool.name}: {note}" for pool in given.fleet.pools for note in pool.notes]
    asked = tuple(each for each in outcomes if by_uid[each.parsed.demand.uid].asked)
    return Plan(asked, (*given.notes, *notes))


def _outcome(deployment: Deployment, allocation: Allocation, now: datetime) -> Outcome:
    parsed, decision = deployment.parsed, allocation.decision
    stamp = Stamp(parsed.generation, now)
    if decision.chosen is not None and not decision.deferred:
        refusal = _refusal(parsed, decision.chosen)
        if refusal is not None:
            return Outcome(parsed, decision, invalid_status(refusal, stamp, deployment.status), refusal)
    make = reaffirmed_status if allocation.placed_before else placement_status
    status = make(decision, parsed.demand, parsed.spec, stamp, deployment.status)
    return Outcome(parsed, decision, status)


def _refusal(parsed: ParsedDeployment, candidate: Candidate) -> SpecErrors | None:
    """Why the candidate's pods can't be rendered, as the operator would say it before it creates any."""
    demand, memory = parsed.demand, candidate.memory
    placed = Placed(
        pool=candidate.pool,
        gpus_per_replica=candidate.gpus_per_replica,
        node_terms=(),
        weight_bytes=memory.weight_bytes * candidate.gpus_per_replica if memory else 0,
        max_context_tokens=memory.max_context_tokens if memory else None,
        fingerprint="",
    )
    try:
        pod_template(
            Owner(demand.namespace, demand.name, demand.uid), parsed.spec, placed, _PROPAGATION_SECONDS
        )
    except SpecErrors as error:
        return error
    return None


def _print(made: Plan, output: Output) -> None:
    if output is Output.TABLE:
        from wattkeeper.cli.plan_table import print_tables  # noqa: PLC0415 - rich only where it is shown

        print_tables((each.parsed.demand, each.decision, each.placed, each.refusal) for each in made.outcomes)
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
