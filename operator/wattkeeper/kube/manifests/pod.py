"""The pod template of a model server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wattkeeper.api import names
from wattkeeper.api.errors import FieldError, SpecErrors, join_path
from wattkeeper.api.quantities import parse_duration
from wattkeeper.api.v1alpha1.llmdeployment import LLMDeploymentSpec, Server
from wattkeeper.core.demand import LabelRequirement
from wattkeeper.kube.manifests.drain import drain_script
from wattkeeper.kube.manifests.engines import engine_of
from wattkeeper.kube.manifests.labels import GPU_RESOURCE, HTTP_PORT, SERVER_CONTAINER, Owner
from wattkeeper.kube.manifests.loading import start_budget_seconds
from wattkeeper.kube.manifests.merge import FIELD, merge_template
from wattkeeper.kube.manifests.probes import probes
from wattkeeper.kube.manifests.record import Placed

#: Between the end of draining and SIGKILL: the engine frees its GPU.
_STOP_SECONDS = 30
_CACHE_VOLUME = "wattkeeper-weights"
_SHM_VOLUME = "wattkeeper-shm"


def pod_template(
    owner: Owner, spec: LLMDeploymentSpec, placed: Placed, propagation_seconds: float
) -> dict[str, Any]:
    """The rendered template with the user's merged over it.

    Raises SpecErrors for a `spec.server.template` that can't be merged or that belies the placement.
    """
    rendered = _rendered(owner, spec, placed, propagation_seconds)
    merged = merge_template(rendered, spec.server.template)
    _refuse_containers(merged, spec.server.template, placed)
    return _with_what_placement_rests_on(merged, rendered)


def _with_what_placement_rests_on(merged: dict[str, Any], rendered: dict[str, Any]) -> dict[str, Any]:
    """The merged template with the labels, nodes and GPU toleration that aren't the template's to change."""
    metadata = merged.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **rendered["metadata"]["labels"]}
    spec = merged["spec"]
    affinity = spec.get("affinity") or {}
    nodes = {**(affinity.get("nodeAffinity") or {}), **rendered["spec"]["affinity"]["nodeAffinity"]}
    tolerations = spec.get("tolerations") or rendered["spec"]["tolerations"]
    return {
        **merged,
        "metadata": {**metadata, "labels": labels},
        "spec": {**spec, "affinity": {**affinity, "nodeAffinity": nodes}, "tolerations": tolerations},
    }


def start_budget(spec: LLMDeploymentSpec, placed: Placed) -> int:
    """Longest time that a start of this model may take (seconds)."""
    cache = spec.server.weight_cache
    cached = cache is not None and cache.read_only
    return start_budget_seconds(placed.weight_bytes, spec.server.args, cached=cached)


def _rendered(
    owner: Owner, spec: LLMDeploymentSpec, placed: Placed, propagation_seconds: float
) -> dict[str, Any]:
    server = spec.server
    longest_request = float(parse_duration(server.max_request_duration, "spec.server.maxRequestDuration"))
    return {
        "metadata": {
            "labels": {**owner.labels(), names.LABEL_SERVING: "true", names.LABEL_POOL: placed.pool},
            "annotations": {"kubectl.kubernetes.io/default-container": SERVER_CONTAINER},
        },
        "spec": {
            "containers": [_container(spec, placed, propagation_seconds)],
            **_unless_empty(volumes=_volumes(server, placed)),
            "affinity": {"nodeAffinity": _node_affinity(placed)},
            "tolerations": [{"key": GPU_RESOURCE, "operator": "Exists"}],
            "terminationGracePeriodSeconds": math.ceil(propagation_seconds + longest_request) + _STOP_SECONDS,
            # A Service named vllm would otherwise set VLLM_PORT to an address, which vLLM takes for its own.
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
        },
    }


def _container(spec: LLMDeploymentSpec, placed: Placed, propagation_seconds: float) -> dict[str, Any]:
    server, engine = spec.server, engine_of(spec)
    script = drain_script(engine.metrics, server.port, math.ceil(propagation_seconds))
    return {
        "name": SERVER_CONTAINER,
        "image": server.image,
        "args": engine.arguments(spec, placed.gpus_per_replica, placed.max_context_tokens),
        **_unless_empty(env=_environment(server), volumeMounts=_mounts(server, placed)),
        "ports": [{"name": HTTP_PORT, "containerPort": server.port, "protocol": "TCP"}],
        "resources": {"limits": {GPU_RESOURCE: str(placed.gpus_per_replica)}},
        **probes(engine, server.port, start_budget(spec, placed)),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", script]}}},
    }


def _unless_empty(**lists: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: entries for name, entries in lists.items() if entries}


def _environment(server: Server) -> list[dict[str, Any]]:
    environment: list[dict[str, Any]] = []
    cache, token = server.weight_cache, server.hugging_face_token_secret_ref
    if cache is not None:
        environment.append({"name": "HF_HOME", "value": cache.mount_path})
        if cache.read_only:
            # Looking for a newer revision would write to the volume.
            environment.append({"name": "HF_HUB_OFFLINE", "value": "1"})
    if token is not None:
        reference = {"secretKeyRef": {"name": token.name, "key": token.key}}
        environment.append({"name": "HF_TOKEN", "valueFrom": reference})
    return environment


def _mounts(server: Server, placed: Placed) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = []
    if server.weight_cache is not None:
        cache = server.weight_cache
        mounts.append({"name": _CACHE_VOLUME, "mountPath": cache.mount_path, "readOnly": cache.read_only})
    if placed.gpus_per_replica > 1:
        mounts.append({"name": _SHM_VOLUME, "mountPath": "/dev/shm"})  # noqa: S108 - a mount, not a file
    return mounts


def _volumes(server: Server, placed: Placed) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = []
    if server.weight_cache is not None:
        claim = {"claimName": server.weight_cache.claim_name, "readOnly": server.weight_cache.read_only}
        volumes.append({"name": _CACHE_VOLUME, "persistentVolumeClaim": claim})
    if placed.gpus_per_replica > 1:
        # NCCL between the GPUs of one pod needs more than the container runtime's 64 MiB.
        volumes.append({"name": _SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}})
    return volumes


def _node_affinity(placed: Placed) -> dict[str, Any]:
    terms = [{"matchExpressions": [_expression(each) for each in term]} for term in placed.node_terms]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _expression(requirement: LabelRequirement) -> dict[str, Any]:
    expression: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator}
    if requirement.values:
        expression["values"] = list(requirement.values)
    return expression


def _refuse_containers(merged: Mapping[str, Any], template: Mapping[str, Any], placed: Placed) -> None:
    """Raises SpecErrors for containers of the user's `template` that can't be: each by its place there."""
    errors = []
    for kind in ("initContainers", "containers"):
        images = {each["name"]: each.get("image") for each in _containers(merged, kind)}
        for position, container in enumerate(_containers(template, kind)):
            where = join_path(f"{FIELD}.spec", kind, position)
            name = container["name"]
            ours = kind == "containers" and name == SERVER_CONTAINER
            if not ours and not images.get(name):
                errors.append(FieldError(where, _without_image(kind, name)))
            errors += _other_gpus(container, where, str(placed.gpus_per_replica) if ours else None)
    for container in _containers(merged, "containers"):
        if container["name"] == SERVER_CONTAINER and not _serves(container):
            where = join_path(f"{FIELD}.spec", "containers")
            cure = (
                f"the Service sends requests to the port {HTTP_PORT!r} of {SERVER_CONTAINER!r}: "
                "leave its name as it is"
            )
            errors.append(FieldError(where, cure))
    if errors:
        raise SpecErrors(errors, reason="InvalidTemplate")


def _serves(container: Mapping[str, Any]) -> bool:
    ports = container.get("ports")
    return isinstance(ports, list) and any(
        isinstance(port, Mapping) and port.get("name") == HTTP_PORT for port in ports
    )


def _containers(template: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    """The containers of a template that was merged; of what is no list, the API server says so."""
    listed = (template.get("spec") or {}).get(kind)
    return listed if isinstance(listed, list) else []


def _without_image(kind: str, name: str) -> str:
    if kind == "initContainers":
        return f"{name!r} has no image: give it one"
    return (
        f"{name!r} is a new container without an image: give it one; to change the model server's, name it "
        f"{SERVER_CONTAINER!r}"
    )


def _other_gpus(container: Mapping[str, Any], where: str, wanted: str | None) -> list[FieldError]:
    """GPUs that a container claims, where they are others than were promised."""
    errors = []
    resources = container.get("resources")
    for what in ("limits", "requests"):
        claims = resources.get(what) if isinstance(resources, Mapping) else None
        claimed = claims.get(GPU_RESOURCE) if isinstance(claims, Mapping) else None
        if claimed is not None and str(claimed) != wanted:
            cure = "can't be set, as placement counts the GPUs: use spec.placement.tensorParallelSize"
            errors.append(FieldError(join_path(where, "resources", what, GPU_RESOURCE), cure))
    return errors
