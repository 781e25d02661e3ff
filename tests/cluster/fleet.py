"""Puts fake nodes into a cluster, waits until they are ready, and takes them out again."""

import copy
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kubernetes.client.exceptions import ApiException

from tests.cluster.access import FIELD_MANAGER, Cluster
from tests.cluster.nodes import Node

# Lets a test, or a pool's nodeSelector, tell its own nodes from another test's.
FLEET_LABEL = "wattkeeper.dev/test-fleet"
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
APPLY = "application/apply-patch+yaml"
CONNECTIONS = 8


@dataclass(frozen=True)
class Fleet:
    """Nodes that were put into ``cluster`` together; ``name`` is the value of their FLEET_LABEL."""

    cluster: Cluster
    name: str
    nodes: tuple[Node, ...]

    @property
    def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.nodes]

    @property
    def selector(self) -> dict[str, str]:
        """Node labels that these nodes have and no others."""
        return {FLEET_LABEL: self.name}

    def remove(self) -> None:
        remove(self.cluster, self.node_names)


def labelled(nodes: Sequence[Node], name: str) -> tuple[Node, ...]:
    """Copies of ``nodes`` that carry FLEET_LABEL."""
    copies = tuple(copy.deepcopy(node) for node in nodes)
    for node in copies:
        node["metadata"]["labels"][FLEET_LABEL] = name
    return copies


def apply(cluster: Cluster, nodes: Sequence[Node], *, wait: bool = True) -> None:
    """Creates or changes the nodes, status included, and waits until each is ready.

    Raises ClusterError when they do not become ready, as without kwok.
    """

    def apply_one(node: Node) -> None:
        name = node["metadata"]["name"]
        identity = {"apiVersion": "v1", "kind": "Node"}
        options = {"field_manager": FIELD_MANAGER, "force": True, "_content_type": APPLY}
        desired = identity | {"metadata": node["metadata"], "spec": node["spec"]}
        cluster.core.patch_node(name, desired, **options)
        status = identity | {"metadata": {"name": name}, "status": node["status"]}
        cluster.core.patch_node_status(name, status, **options)

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(apply_one, nodes))
    if wait:
        wait_ready(cluster, [node["metadata"]["name"] for node in nodes])


def wait_ready(cluster: Cluster, names: Collection[str]) -> None:
    """Returns when every node is ready; raises ClusterError naming those that are not."""

    def pending() -> set[str]:
        return set(names) - ready(cluster)

    cluster.wait(
        lambda: f"fake nodes are ready (does kwok run?): {', '.join(sorted(pending()))}",
        lambda: not pending(),
    )


def remove(cluster: Cluster, names: Collection[str]) -> None:
    """Deletes the nodes, then what is bound to them, and waits until all of it is gone.

    Nodes go first, or a controller would put new pods in the place of the deleted ones. Nobody completes
    the deletion of a fake pod without its node, so pods are deleted without a grace period.
    """
    for name in names:
        _ignoring_absence(cluster.core.delete_node, name)

    def left() -> list[str]:
        return sorted({node.metadata.name for node in cluster.core.list_node().items} & set(names))

    cluster.wait(lambda: f"nodes are gone: {', '.join(left())}", lambda: not left())
    cluster.wait("pods of removed nodes are gone", lambda: not _delete_pods(cluster, names))


def _delete_pods(cluster: Cluster, node_names: Collection[str]) -> list[str]:
    """Deletes the pods that are bound to the nodes; returns their names."""
    bound = [
        pod for pod in cluster.core.list_pod_for_all_namespaces().items if pod.spec.node_name in node_names
    ]
    for pod in bound:
        _ignoring_absence(
            cluster.core.delete_namespaced_pod,
            pod.metadata.name,
            pod.metadata.namespace,
            grace_period_seconds=0,
        )
    return [pod.metadata.name for pod in bound]


def ready(cluster: Cluster) -> set[str]:
    """Nodes that are ready and take pods: the controller manager lifts the taint a moment later."""
    return {
        node.metadata.name
        for node in cluster.core.list_node().items
        if any(
            condition.type == "Ready" and condition.status == "True"
            for condition in node.status.conditions or ()
        )
        and not any(taint.key == NOT_READY_TAINT for taint in node.spec.taints or ())
    }


def _ignoring_absence(call: Callable[..., object], *arguments: str, **options: object) -> None:
    try:
        call(*arguments, **options)
    except ApiException as error:
        if error.status != 404:
            raise
