"""What the cluster itself says of its nodes and pods, to check what series say of them.

A Prometheus may hold other clusters' series, kubelet names pods that ended, and two clusters run from one
repository have pods of the same names. So a series is believed about its place only as far as this agrees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node: its name, its addresses, and whether it has GPUs."""

    name: str
    addresses: tuple[str, ...] = ()
    has_gpus: bool = False


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod. `ended`: its phase is Succeeded or Failed. `uses_gpus`: it asks for GPUs or slices of them,
    None where that isn't known."""

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    address: str = ""
    ended: bool = False
    uses_gpus: bool | None = None

    def may_be_at(self, host: str) -> bool:
        """Whether it can be what was scraped at a host; not, where both are IP addresses that differ."""
        return not self.address or not is_ip_address(host) or host == self.address


class ClusterView:
    """The cluster's nodes and pods as they are now, by everything that a series may call them."""

    def __init__(self, nodes: Iterable[KnownNode], pods: Iterable[KnownPod]) -> None:
        self.nodes = tuple(nodes)
        self._pods = {(pod.namespace, pod.name): pod for pod in pods}
        self._node_names = {node.name: node.name for node in self.nodes}
        short: dict[str, set[str]] = defaultdict(set)
        for node in self.nodes:
            short[node.name.partition(".")[0]].add(node.name)
        # A host may call itself by the first label of the node's name, or by more than the node's name.
        self._short_names = {name: nodes.pop() for name, nodes in short.items() if len(nodes) == 1}
        self._node_addresses = {address: node.name for node in self.nodes for address in node.addresses}
        self._pod_addresses = _only(
            (pod.address, pod)
            for pod in self._pods.values()
            if pod.address and not pod.ended and pod.address not in self._node_addresses
        )
        self._pod_names = _only((pod.name, pod) for pod in self._pods.values())

    @property
    def pods(self) -> Iterable[KnownPod]:
        return self._pods.values()

    def pod(self, namespace: str, name: str) -> KnownPod | None:
        return self._pods.get((namespace, name))

    def pod_at(self, address: str) -> KnownPod | None:
        """The pod with an IP address of its own; pods in the host's network share the node's."""
        return self._pod_addresses.get(address)

    def node_called(self, name: str) -> str | None:
        """The node that a host of this name is, by its own name or by the pod that runs there."""
        found = self._node_names.get(name) or self._short_names.get(name)
        if found is None and "." in name:
            found = self._node_names.get(name.partition(".")[0])
        if found is None and name in self._pod_names:  # an exporter without NODE_NAME gives its pod's name
            found = self._pod_names[name].node or None
        return found

    def node_at(self, address: str) -> str | None:
        """The node that has an IP address, or whose pod has it."""
        found = self._node_addresses.get(address)
        if found is None:
            pod = self._pod_addresses.get(address)
            found = pod.node if pod is not None else None
        return found or None


def is_ip_address(host: str) -> bool:
    """Whether a host is an IP address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _only(pairs: Iterable[tuple[str, KnownPod]]) -> dict[str, KnownPod]:
    """Keys that belong to one pod alone."""
    found: dict[str, KnownPod] = {}
    twice = set()
    for key, pod in pairs:
        if key in found:
            twice.add(key)
        found[key] = pod
    return {key: pod for key, pod in found.items() if key not in twice}
