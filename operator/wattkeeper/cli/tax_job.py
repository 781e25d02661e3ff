"""`wattkeeper tax measure --node` and `tax publish`: a Job on the node, and its result for the operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml

from wattkeeper.agent.dose_response import default_levels
from wattkeeper.cli.manifest_files import InputError
from wattkeeper.cli.tax_follow import Follower, MeasurementFailedError
from wattkeeper.cli.tax_local import (
    STDOUT,
    Measured,
    measured_from,
    plan_of,
    print_study,
    study_json,
    verdict,
)
from wattkeeper.cli.tax_measure import EXIT_FAILED, Timing
from wattkeeper.kube.client import Client, KubeConfigError, describe, load_configuration
from wattkeeper.kube.errors import ApiError
from wattkeeper.kube.manifests.tax_job import TaxJob, job_name, tax_job
from wattkeeper.kube.manifests.tax_result import TaxResult, tax_result
from wattkeeper.kube.tax_jobs import JobState, OperatorImage, TaxJobs

#: For the Job's deadline, as the node's memory isn't known here: what counts is how many levels there are.
_SOME_MEMORY_BYTES = 80 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be measured, and how the Job is to be run."""

    node: str
    namespace: str
    timing: Timing
    image: str | None
    runtime_class: str | None
    start_seconds: float
    again: bool


async def show(order: Order, kubeconfig: Path | None, context: str | None) -> int:
    """Print the Job. Without --image the API server is asked for the operator's."""

    async def work(jobs: TaxJobs | None) -> int:
        typer.echo(yaml.safe_dump(await _manifest(jobs, order), sort_keys=False), nl=False)
        return 0

    if order.image is not None:
        return await work(None)
    return await _with_jobs(work, order.namespace, kubeconfig, context)


async def run(
    order: Order, kubeconfig: Path | None, context: str | None, record: str | None, *, as_json: bool
) -> int:
    """Run the Job, or take up the one that was begun; keep and print its result. The exit code."""

    async def work(jobs: TaxJobs) -> int:
        follower = Follower(
            jobs, order.node, lambda: _manifest(jobs, order), order.start_seconds, order.again
        )
        progress, log = await follower.follow()
        readings = "".join(f"{line}\n" for line in log.splitlines() if line.startswith("{"))
        if record not in (None, STDOUT):
            _write(str(record), readings)
        if progress.state is JobState.FAILED:
            typer.echo(f"error: {progress.message or 'the Job failed'}", err=True)
            return progress.exit_code or EXIT_FAILED
        measured = _measured(f"the log of Job {follower.name}", readings)
        if record == STDOUT:
            typer.echo(readings, nl=False)
        else:
            print_study(f"node {order.node}", measured, as_json=as_json)
        await _keep(jobs, _result(readings, measured, order.node), order.namespace, readings)
        return 0

    return await _with_jobs(work, order.namespace, kubeconfig, context)


async def keep(
    results: Sequence[TaxResult],
    namespace: str,
    kubeconfig: Path | None,
    context: str | None,
    *,
    print_only: bool,
) -> int:
    """Keep results in the cluster, or print the ConfigMaps that would be. The exit code."""
    manifests = [_config_map(result, namespace) for result in results]
    if print_only:
        typer.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)
        return 0

    async def work(jobs: TaxJobs) -> int:
        for manifest in manifests:
            await jobs.keep(manifest)
            _say_kept(manifest)
        return 0

    return await _with_jobs(work, namespace, kubeconfig, context)


def result_of_file(file: str, node: str) -> TaxResult:
    """The result of a recording that was measured elsewhere. Raises InputError."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: can't be read: {error}") from None
    try:
        measured = measured_from(text.splitlines())
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None
    typer.echo(verdict(measured), err=True)
    return _result(text, measured, node)


def after_interruption(order: Order) -> str:
    """What becomes of the Job when nobody follows it any more."""
    stop = f"kubectl delete job --namespace {order.namespace} {job_name(order.node)}"
    return f"a Job that was created goes on, and the same call finds it again; to end it: {stop}"


async def _manifest(jobs: TaxJobs | None, order: Order) -> dict[str, Any]:
    """The Job. Raises MeasurementFailedError where nothing says which image to run."""
    found = None
    if order.image is not None:
        found = OperatorImage(order.image, "IfNotPresent", ())
    elif jobs is not None:
        found = await jobs.operator_image()
    if found is None:
        raise MeasurementFailedError(
            f"no operator is in namespace {order.namespace} whose image could be used: give --image, or "
            "--namespace with the operator's"
        )
    plan = plan_of(order.timing, order.timing.levels_gib or default_levels(_SOME_MEMORY_BYTES))
    return tax_job(
        TaxJob(
            node=order.node,
            namespace=order.namespace,
            image=found.image,
            pull_policy=found.pull_policy,
            pull_secrets=found.pull_secrets,
            seconds=plan.seconds,
            arguments=order.timing.arguments(),
            runtime_class=order.runtime_class,
        )
    )


def _measured(where: str, readings: str) -> Measured:
    try:
        return measured_from(readings.splitlines())
    except ValueError as error:
        raise MeasurementFailedError(f"{where} holds no whole measurement: {error}") from None


def _result(readings: str, measured: Measured, node: str) -> TaxResult:
    return TaxResult(
        uuid=measured.uuid,
        node=node,
        state=measured.state,
        study=study_json(f"node {node}" if node else "", measured),
        recording=readings,
        unboosted=measured.unboosted,
    )


def _config_map(result: TaxResult, namespace: str) -> dict[str, Any]:
    try:
        return tax_result(result, namespace)
    except ValueError as error:
        raise InputError(str(error)) from None


async def _keep(jobs: TaxJobs, result: TaxResult, namespace: str, readings: str) -> None:
    """Keep a result; where that fails, its readings aren't lost."""
    config_map = _config_map(result, namespace)
    try:
        await jobs.keep(config_map)
    except ApiError as error:
        file = f"tax-{result.uuid}.jsonl"
        _write(file, readings)
        raise MeasurementFailedError(
            f"the result can't be kept: {describe(error)}; its readings are in {file}: keep them by "
            f"`wattkeeper tax publish {file}`"
        ) from None
    _say_kept(config_map)


def _say_kept(config_map: dict[str, Any]) -> None:
    metadata = config_map["metadata"]
    typer.echo(f"kept for the operator in ConfigMap {metadata['namespace']}/{metadata['name']}", err=True)


def _write(file: str, readings: str) -> None:
    try:
        Path(file).write_text(readings, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} can't be written: {error}") from None


async def _with_jobs(
    work: Callable[[TaxJobs], Awaitable[int]], namespace: str, kubeconfig: Path | None, context: str | None
) -> int:
    """Do the work over a connection; what fails is said, and gives the exit code."""
    try:
        client = Client(await load_configuration(kubeconfig, context))
        try:
            return await work(TaxJobs(client, namespace))
        finally:
            await client.close()
    except (KubeConfigError, MeasurementFailedError) as error:
        typer.echo(f"error: {error}", err=True)
    except ApiError as error:
        typer.echo(f"error: {error.what}: {describe(error)}", err=True)
    return EXIT_FAILED
