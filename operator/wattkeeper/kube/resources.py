"""Where each kind of object lives in the API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from wattkeeper.api import names


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind: group and version ("v1" for the core group), its plural, and whether it has namespaces."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def root(self) -> str:
        return f"/{'api' if '/' not in self.api_version else 'apis'}/{self.api_version}"

    def collection(self, namespace: str | None = None) -> str:
        """The path of all objects, or of those in one namespace."""
        middle = f"/namespaces/{quote(namespace, safe='')}" if namespace and self.namespaced else ""
        return f"{self.root}{middle}/{self.plural}"

    def path(self, namespace: str | None, name: str, subresource: str = "") -> str:
        """The path of one object, or of its subresource."""
        end = f"/{subresource}" if subresource else ""
        return f"{self.collection(namespace)}/{quote(name, safe='')}{end}"


NODES = Resource("v1", "Node", "nodes", namespaced=False)
PODS = Resource("v1", "Pod", "pods")
SERVICES = Resource("v1", "Service", "services")
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
EVENTS = Resource("events.k8s.io/v1", "Event", "events")
LLM_DEPLOYMENTS = Resource(names.API_VERSION, names.LLM_DEPLOYMENT, names.LLM_DEPLOYMENTS)
GPU_NODE_POOLS = Resource(names.API_VERSION, names.GPU_NODE_POOL, names.GPU_NODE_POOLS, namespaced=False)

_BY_KIND = {
    (r.api_version, r.kind): r for r in (SERVICES, DEPLOYMENTS, PODS, LLM_DEPLOYMENTS, GPU_NODE_POOLS)
}


def resource_of(manifest: dict[str, object]) -> Resource:
    """The resource that a manifest is of. Raises KeyError for a kind that the operator doesn't write."""
    return _BY_KIND[str(manifest["apiVersion"]), str(manifest["kind"])]
