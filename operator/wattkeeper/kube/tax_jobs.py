"""Measurements of the parking tax in a cluster: the Job, what becomes of it, its log, and its result kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp
from kubernetes.aio.client import CoreV1Api
from kubernetes.aio.client.exceptions import ApiException

from wattkeeper.kube.client import APPLY, Client, Object, Request
from wattkeeper.kube.errors import ApiError, ConflictError, NotFoundError, error_of
from wattkeeper.kube.manifests.labels import GPU_RESOURCE, selector_text
from wattkeeper.kube.manifests.tax_job import CONTAINER
from wattkeeper.kube.resources import CONFIG_MAPS, DEPLOYMENTS, PODS, Resource

JOBS = Resource("batch/v1", "Job", "jobs")
FIELD_MANAGER = "wattkeeper-tax"
_OPERATOR = {"app.kubernetes.io/component": "operator", "app.kubernetes.io/part-of": "wattkeeper"}
#: Reasons of a waiting container that don't pass by themselves.
_STUCK = frozenset(
    {
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


class JobState(StrEnum):
    """Where a measurement stands."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def over(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class Progress:
    """A Job as it is. `exit_code` is the container's, `message` why it waits or failed, for people."""

    state: JobState
    message: str = ""
    pod: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorImage:
    """What the operator runs, and how it is pulled."""

    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]


def progress_of(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> Progress:
    """Where a Job stands, by it and its pods."""
    pod = max(pods, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""), default=None)
    name = None if pod is None else str(pod["metadata"]["name"])
    conditions = {
        str(each.get("type")): each
        for each in (job.get("status") or {}).get("conditions") or []
        if each.get("status") == "True"
    }
    status: Mapping[str, Any] = (pod or {}).get("status") or {}
    container = _container(status)
    terminated: Mapping[str, Any] = (container.get("state") or {}).get("terminated") or {}
    if "Complete" in conditions:
        return Progress(JobState.SUCCEEDED, "", name, terminated.get("exitCode"))
    if failed := conditions.get("Failed") or conditions.get("FailureTarget"):
        message = _last_words(terminated) or str(status.get("message") or failed.get("message") or "")
        return Progress(JobState.FAILED, message, name, terminated.get("exitCode"))
    if status.get("phase") == "Running":
        return Progress(JobState.RUNNING, "", name)
    return Progress(JobState.WAITING, _waits_for(status, container), name)


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for each in status.get("containerStatuses") or []:
        if each.get("name") == CONTAINER:
            found: Mapping[str, Any] = each
            return found
    return {}


def _last_words(terminated: Mapping[str, Any]) -> str:
    """The error that the command printed, out of the end of its log."""
    lines = [line.strip() for line in str(terminated.get("message") or "").splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1]
    if terminated.get("reason") == "OOMKilled":
        return "its container ran out of memory"
    return next((line for line in reversed(lines) if not line.startswith("{")), "")


def _waits_for(status: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    if reason := waiting.get("reason"):
        return (
            f"{reason}: {waiting.get('message') or 'no message'}" if reason != "ContainerCreating" else reason
        )
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"no GPU of the node is free for it ({GPU_RESOURCE}): {condition.get('message')}"
    return "its pod isn't there yet"


def stuck(progress: Progress) -> bool:
    """Whether waiting longer is no use."""
    return progress.state is JobState.WAITING and progress.message.split(":", 1)[0] in _STUCK


class TaxJobs:
    """The Jobs and results of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def create(self, manifest: Mapping[str, Any]) -> bool:
        """Create a Job; False where one of its name is there already. Raises ApiError."""
        query = {"fieldManager": FIELD_MANAGER}
        request = Request("POST", JOBS.collection(self._namespace), JOBS.kind, query, manifest)
        try:
            await self._client.send(request)
        except ConflictError:
            return False
        return True

    async def look(self, name: str) -> Progress | None:
        """Where a Job stands; None where there is none. Raises ApiError."""
        try:
            job = await self._client.get(JOBS, self._namespace, name)
        except NotFoundError:
            return None
        selector = f"batch.kubernetes.io/controller-uid={job['metadata']['uid']}"
        pods: list[Object] = []
        async for page, _ in self._client.pages(PODS, self._namespace, selector):
            pods.extend(page)
        return progress_of(job, pods)

    async def remove(self, name: str) -> None:
        """Delete a Job and its pod. Raises ApiError."""
        body = {"propagationPolicy": "Foreground"}
        path = JOBS.path(self._namespace, name)
        try:
            await self._client.send(Request("DELETE", path, JOBS.kind, {}, body))
        except NotFoundError:
            return

    async def log(self, pod: str) -> str:
        """What the container printed so far. Raises ApiError."""
        what = f"log of {self._namespace}/{pod}"
        try:
            return str(
                await CoreV1Api(self._client.api).read_namespaced_pod_log(
                    pod,
                    self._namespace,
                    container=CONTAINER,
                    _request_timeout=self._client.request_timeout_seconds,
                )
            )
        except ApiException as error:
            body = str(error.body or error.reason or "").encode()
            raise error_of(what, int(error.status or 0), body, error.headers or {}) from None
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise ApiError(what, 0, "NoConnection", str(error) or type(error).__name__) from None

    async def keep(self, config_map: Mapping[str, Any]) -> None:
        """Write a result, in place of an older one of the same GPU. Raises ApiError."""
        metadata = config_map["metadata"]
        path = CONFIG_MAPS.path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        await self._client.send(Request("PATCH", path, CONFIG_MAPS.kind, query, config_map, APPLY))

    async def operator_image(self) -> OperatorImage | None:
        """The image of the namespace's operator; None where there isn't exactly one. Raises ApiError."""
        found = []
        async for page, _ in self._client.pages(DEPLOYMENTS, self._namespace, selector_text(_OPERATOR)):
            found.extend(page)
        if len(found) != 1:
            return None
        spec = found[0]["spec"]["template"]["spec"]
        container = spec["containers"][0]
        secrets = tuple(str(each["name"]) for each in spec.get("imagePullSecrets") or [])
        return OperatorImage(
            str(container["image"]), str(container.get("imagePullPolicy") or "IfNotPresent"), secrets
        )
