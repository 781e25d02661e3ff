"""From Node, Pod and GPUNodePool manifests to the core's fleet. Pure: manifests in, values out.

The manifests may come from the API server or from a file that somebody wrote, so what is read is checked;
ManifestError names the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wattkeeper.api.convert import pool_from
from wattkeeper.api.errors import shorten
from wattkeeper.api.names import LABEL_LLM_DEPLOYMENT
from wattkeeper.api.quantities import QuantityError, parse_quantity
from wattkeeper.core.fleet import Fleet, GpuNode, Taint, WrittenPool
from wattkeeper.core.gpu_labels import GPU_RESOURCE, read_gpu
from wattkeeper.core.pools import build_pools

_GPU_RESOURCE_PREFIX = "nvidia.com/"
_MOST_GPUS = 1024  # of one node; beyond it the figure is a mistake
_ENDED_PHASES = ("Succeeded", "Failed")
#: Taints by which the node controller repeats what the node's conditions and spec.unschedulable say.
_STATE_TAINTS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)


class ManifestError(ValueError):
    """A manifest that can't be read: the field's path, and what to write there."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def fleet_of(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]] = (),
    pools: Iterable[Mapping[str, Any]] = (),
    *,
    assume_ready: bool = False,
) -> Fleet:
    """The fleet of these Nodes, with the GPUs that the Pods hold, in the pools that the GPUNodePools write.

    GPUNodePools that the operator made itself contribute what users added to them, labels and a budget.
    Nodes without GPUs are left out. `assume_ready` takes nodes without conditions as ready, as in a file
    that somebody wrote.
    Raises ManifestError or, for a GPUNodePool, SpecErrors.
    """
    held = gpus_held(pods)
    gpu_nodes = [gpu_node(node, held.get(_name(node), 0), assume_ready=assume_ready) for node in nodes]
    written, discovered = node_pools(pools)
    found = [node for node in gpu_nodes if node is not None]
    return Fleet(build_pools(found, written, discovered))


def gpu_node(node: Mapping[str, Any], gpus_held: int = 0, *, assume_ready: bool = False) -> GpuNode | None:
    """A Node with its GPUs, of which bound pods hold `gpus_held`; None if it has none."""
    name = _name(node)
    labels = _string_map(_get(node, "metadata", "labels"), "metadata.labels")
    capacity = _gpu_resources(node, "capacity")
    said = _get(node, "status", "allocatable") is not None  # else it is the capacity, as in the API server
    allocatable = _gpu_resources(node, "allocatable") if said else capacity
    most = {key: max(capacity.get(key, 0), allocatable.get(key, 0)) for key in {*capacity, *allocatable}}
    reading = read_gpu(labels, most)
    if reading is None:
        return None
    taints = _taints(node)
    return GpuNode(
        name=name,
        labels=labels,
        gpu=reading.kind,
        gpus_allocatable=allocatable.get(GPU_RESOURCE, 0),
        gpus_held=gpus_held,
        taints=tuple(taint for taint in taints if taint.key not in _STATE_TAINTS),
        schedulable=_schedulable(node, taints, assume_ready),
        gpu_labels=reading.named_by,
        problem=reading.problem,
    )


def gpus_held(pods: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """GPUs by node that pods hold: those bound to it that haven't ended, terminating ones included."""
    held: dict[str, int] = {}
    for pod in pods:
        if node := _bound_to(pod):
            held[node] = held.get(node, 0) + gpus_requested(pod)
    return held


def bound_replicas(pods: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Pods bound to a node by the namespace and name of the LLMDeployment that they are of.

    Terminating ones count: they hold the GPUs that their successors were promised.
    """
    bound: dict[tuple[str, str], int] = {}
    for pod in pods:
        owner = _get(pod, "metadata", "labels", LABEL_LLM_DEPLOYMENT)
        if owner and _bound_to(pod):
            key = (str(_get(pod, "metadata", "namespace") or "default"), str(owner))
            bound[key] = bound.get(key, 0) + 1
    return bound


def gpus_requested(pod: Mapping[str, Any]) -> int:
    """GPUs that a pod takes from its node, as kube-scheduler counts them.

    Containers and sidecars (init containers that restart always) add up; other init containers run one
    after the other before, beside the sidecars that were started by then.
    """
    running = sum(
        _container_gpus(container, f"spec.containers[{index}]")
        for index, container in enumerate(_list(pod, "spec", "containers"))
    )
    sidecars = 0
    most_during_init = 0
    for index, container in enumerate(_list(pod, "spec", "initContainers")):
        gpus = _container_gpus(container, f"spec.initContainers[{index}]")
        most_during_init = max(most_during_init, sidecars + gpus)
        if _get(container, "restartPolicy") == "Always":
            sidecars += gpus
    return max(running + sidecars, most_during_init)


def node_pools(
    resources: Iterable[Mapping[str, Any]],
) -> tuple[list[WrittenPool], list[WrittenPool]]:
    """The GPUNodePools that users wrote, and those that the operator made.

    Raises SpecErrors for one that can't be read.
    """
    written: list[WrittenPool] = []
    discovered: list[WrittenPool] = []
    for resource in resources:
        parsed = pool_from(resource)
        (discovered if parsed.discovered else written).append(parsed.pool)
    return written, discovered


def _bound_to(pod: Mapping[str, Any]) -> str | None:
    node = _get(pod, "spec", "nodeName")
    return str(node) if node and _get(pod, "status", "phase") not in _ENDED_PHASES else None


def _schedulable(node: Mapping[str, Any], taints: list[Taint], assume_ready: bool) -> bool:
    cordoned = _get(node, "spec", "unschedulable")
    if not isinstance(cordoned, bool | None):
        raise ManifestError("spec.unschedulable", f"must be true or false; got {shorten(cordoned)}")
    ready = _ready(node)
    if cordoned or _get(node, "metadata", "deletionTimestamp"):
        return False
    if any(taint.key in _STATE_TAINTS for taint in taints):
        return False
    return assume_ready if ready is None else ready == "True"


def _ready(node: Mapping[str, Any]) -> str | None:
    """The status of the condition Ready, None while the node has none."""
    for index, each in enumerate(_list(node, "status", "conditions")):
        field = f"status.conditions[{index}]"
        if not isinstance(each, Mapping):
            raise ManifestError(field, f"must be a map with type and status; got {shorten(each)}")
        if each.get("type") == "Ready":
            status = each.get("status")
            if not isinstance(status, str):
                raise ManifestError(f"{field}.status", f"must be a string: quote it; got {shorten(status)}")
            return status
    return None


def _taints(node: Mapping[str, Any]) -> list[Taint]:
    taints = []
    for index, each in enumerate(_list(node, "spec", "taints")):
        field = f"spec.taints[{index}]"
        if not isinstance(each, Mapping):
            raise ManifestError(field, f"must be a map with key, value and effect; got {shorten(each)}")
        parts = {name: each.get(name) or "" for name in ("key", "value", "effect")}
        for name, part in parts.items():
            if not isinstance(part, str):
                raise ManifestError(f"{field}.{name}", f"must be a string: quote it; got {shorten(part)}")
        taints.append(Taint(**parts))
    return taints


def _gpu_resources(node: Mapping[str, Any], part: str) -> dict[str, int]:
    resources = _get(node, "status", part)
    if resources is None:
        return {}
    field = f"status.{part}"
    if not isinstance(resources, Mapping):
        raise ManifestError(field, f"must be a map of resources; got {shorten(resources)}")
    return {
        str(name): _count(value, f"{field}[{name}]")
        for name, value in resources.items()
        if str(name).startswith(_GPU_RESOURCE_PREFIX)
    }


def _container_gpus(container: Any, field: str) -> int:
    for part in ("requests", "limits"):
        value = _get(container, "resources", part, GPU_RESOURCE)
        if value is not None:
            return _count(value, f"{field}.resources.{part}[{GPU_RESOURCE}]")
    return 0


def _count(value: Any, field: str) -> int:
    try:
        number = parse_quantity(value, field)
    except QuantityError as error:
        raise ManifestError(field, f"{error.cure}; got {shorten(value)}") from None
    if number != number.to_integral_value() or not 0 <= number <= _MOST_GPUS:
        raise ManifestError(field, f"must be a whole number from 0 to {_MOST_GPUS}; got {shorten(value)}")
    return int(number)


def _name(resource: Mapping[str, Any]) -> str:
    name = _get(resource, "metadata", "name")
    if not isinstance(name, str) or not name:
        raise ManifestError("metadata.name", f"must be the object's name; got {shorten(name)}")
    return name


def _string_map(value: Any, field: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ManifestError(field, f"must be a map; got {shorten(value)}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise ManifestError(f"{field}[{key}]", f"must be a string: quote it; got {shorten(item)}")
    return dict(value)


def _get(value: Any, *path: str) -> Any:
    """What lies under the path, None where any part of it is missing or no map."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _list(value: Any, *path: str) -> list[Any]:
    found = _get(value, *path)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ManifestError(".".join(path), f"must be a list; got {shorten(found)}")
    return found
