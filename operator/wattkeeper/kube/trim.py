"""The small values that are kept of each object: what decisions read, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from wattkeeper.api import names
from wattkeeper.api.conditions import ACCEPTED, condition_status
from wattkeeper.api.convert import ParsedPool, pool_from
from wattkeeper.api.errors import SpecErrors
from wattkeeper.api.pod_template import node_selector_of, template_errors, tolerations_of
from wattkeeper.api.status import recorded_placement
from wattkeeper.core.demand import Toleration
from wattkeeper.core.fleet import GpuNode
from wattkeeper.core.lifecycle import ChildFacts, replicas_writers
from wattkeeper.kube.manifests.record import ANNOTATION, Placed
from wattkeeper.kube.nodes import ManifestError, gpu_node, gpus_requested

logger = logging.getLogger(__name__)

Object = Mapping[str, Any]

#: Why a container doesn't run and won't without somebody's help; `ContainerCreating` isn't among them.
_TROUBLES = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


@dataclass(frozen=True, slots=True)
class Key:
    """Namespace and name of an LLMDeployment, and of its children."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod that holds GPUs or belongs to an LLMDeployment, and hasn't ended."""

    name: str
    node: str  # empty: not bound yet
    gpus: int
    owner: Key | None
    trouble: str = ""  # why its containers can't run


@dataclass(frozen=True, slots=True)
class Claim:
    """An LLMDeployment as far as others are concerned: where it is, and what it may still take."""

    key: Key
    uid: str
    created: str
    version: str  # resourceVersion
    generation: int
    observed_generation: int
    replicas: int
    pool: str | None
    gpus_per_replica: int
    phase: str
    refused: bool  # Accepted is False
    deleting: bool
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    config_map: str | None = None

    @property
    def order(self) -> tuple[str, str]:
        """The order of creation."""
        return (self.created, self.uid)


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """The child Deployment."""

    key: Key
    uid: str
    version: str
    owner_uid: str  # of its controller; empty: none
    facts: ChildFacts
    placed: Placed | None
    surge: bool


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """The child Service: whether it is ours, and which version was seen."""

    key: Key
    uid: str
    version: str
    owner_uid: str


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """A GPUNodePool: parsed, or with what is wrong with it; and its status, to write it on change only."""

    name: str
    uid: str
    version: str
    generation: int
    parsed: ParsedPool | None
    errors: str
    status: Mapping[str, Any]
    foreign_labels: bool  # somebody else than the operator put labels on it


def node_value(node: Object) -> GpuNode | None:
    """A node with GPUs, held ones not counted; None for the others and for what can't be read."""
    try:
        return gpu_node(node)
    except ManifestError as error:
        logger.warning("node %s isn't used: %s", node["metadata"]["name"], error)
        return None


def pod_value(pod: Object) -> PodRecord | None:
    """A pod that matters to the fleet; None for the others."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    try:
        gpus = gpus_requested(pod)
    except ManifestError as error:
        logger.warning("pod %s/%s: %s", metadata["namespace"], metadata["name"], error)
        return None
    owner_name = (metadata.get("labels") or {}).get(names.LABEL_LLM_DEPLOYMENT)
    if not gpus and not owner_name:
        return None
    owner = Key(metadata["namespace"], owner_name) if owner_name else None
    node = str(pod["spec"].get("nodeName") or "")
    return PodRecord(metadata["name"], node, gpus, owner, _trouble(status) if owner else "")


def claim_of(resource: Object) -> Claim:
    """An LLMDeployment, readable or not: an invalid spec keeps the GPUs that it was promised."""
    metadata = resource["metadata"]
    spec, status = _map(resource.get("spec")), _map(resource.get("status"))
    placement = recorded_placement(resource)
    template = _map(_map(spec.get("server")).get("template"))
    usable = not template_errors(template)
    replicas = spec.get("replicas", 1)
    reference = _map(_map(spec.get("model")).get("configMapRef"))
    return Claim(
        key=Key(metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        created=metadata["creationTimestamp"],
        version=metadata["resourceVersion"],
        generation=metadata.get("generation", 0),
        observed_generation=status.get("observedGeneration", 0),
        replicas=replicas if isinstance(replicas, int) else 1,
        pool=placement.pool if placement else None,
        gpus_per_replica=placement.gpus_per_replica if placement else 0,
        phase=str(status.get("phase") or "Pending"),
        refused=condition_status(status.get("conditions") or (), ACCEPTED) == "False",
        deleting="deletionTimestamp" in metadata,
        tolerations=tolerations_of(template) if usable else (),
        node_selector=MappingProxyType(node_selector_of(template) if usable else {}),
        config_map=reference.get("name"),
    )


def child_value(deployment: Object) -> ChildRecord:
    """The child Deployment of an LLMDeployment."""
    metadata, spec, status = deployment["metadata"], deployment["spec"], deployment.get("status") or {}
    replicas = int(spec.get("replicas", 1))
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    conditions = status.get("conditions") or []
    writers = replicas_writers(metadata.get("managedFields") or ())
    facts = ChildFacts(
        generation=metadata.get("generation", 0),
        wanted=replicas,
        replicas=int(status.get("replicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        paused=bool(spec.get("paused")),
        observed=int(status.get("observedGeneration") or 0) >= metadata.get("generation", 0),
        failure=_deployment_failure(conditions),
        replicas_ours=names.FIELD_MANAGER in writers,
        foreign_writer=", ".join(sorted(writers - {names.FIELD_MANAGER})),
    )
    annotation = (metadata.get("annotations") or {}).get(ANNOTATION)
    return ChildRecord(
        key=Key(metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        owner_uid=_controller(metadata),
        facts=facts,
        placed=Placed.from_annotation(annotation),
        surge=rolling.get("maxSurge") not in (0, "0", "0%"),
    )


def service_value(service: Object) -> ServiceRecord:
    """The child Service of an LLMDeployment."""
    metadata = service["metadata"]
    key = Key(metadata["namespace"], metadata["name"])
    return ServiceRecord(key, metadata["uid"], metadata["resourceVersion"], _controller(metadata))


def pool_value(resource: Object) -> PoolRecord:
    """A GPUNodePool."""
    metadata = resource["metadata"]
    try:
        parsed, errors = pool_from(resource), ""
    except SpecErrors as error:
        parsed, errors = None, str(error)
    return PoolRecord(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        generation=metadata.get("generation", 0),
        parsed=parsed,
        errors=errors,
        status=_map(resource.get("status")),
        foreign_labels=_has_foreign_labels(metadata),
    )


def _trouble(status: Object) -> str:
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        waiting = _map(_map(container.get("state")).get("waiting"))
        if waiting.get("reason") in _TROUBLES:
            message = " ".join(str(waiting.get("message") or "").split())[:300]
            return f"container {container.get('name')}: {waiting['reason']}" + (
                f": {message}" if message else ""
            )
    return ""


def _deployment_failure(conditions: list[Object]) -> str:
    """What keeps the Deployment from having its pods, in the API server's words; empty: nothing."""
    for condition in conditions:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return f"{condition.get('reason')}: {condition.get('message')}"
    return ""


def _controller(metadata: Object) -> str:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference.get("uid"))
    return ""


def _has_foreign_labels(metadata: Object) -> bool:
    for entry in metadata.get("managedFields") or ():
        fields = _map(_map(entry.get("fieldsV1")).get("f:metadata"))
        if entry.get("manager") != names.FIELD_MANAGER and (
            "f:labels" in fields or "f:annotations" in fields
        ):
            return True
    return False


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
