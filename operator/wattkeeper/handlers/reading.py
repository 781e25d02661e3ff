"""Reading one LLMDeployment: what it asks for, with the ConfigMap that it refers to."""

from __future__ import annotations

from dataclasses import dataclass

from wattkeeper.api.convert import ParsedDeployment, config_reference, deployment_from
from wattkeeper.kube.client import Object
from wattkeeper.kube.executor import Executor
from wattkeeper.kube.manifests.labels import Owner
from wattkeeper.kube.manifests.record import fingerprint


@dataclass(frozen=True, slots=True)
class Reading:
    """An LLMDeployment as it was read, and what it means."""

    resource: Object
    parsed: ParsedDeployment
    fingerprint: str  # of what its pods are made of

    @property
    def owner(self) -> Owner:
        demand = self.parsed.demand
        return Owner(demand.namespace, demand.name, demand.uid)


async def understand(executor: Executor, resource: Object) -> Reading:
    """Parse a resource. Raises SpecErrors with everything that is wrong with it, ApiError."""
    reference = config_reference(resource)
    text = None
    if reference is not None:
        namespace = resource["metadata"]["namespace"]
        text = await executor.read_config(namespace, reference.name, reference.key)
    parsed = deployment_from(resource, text)
    return Reading(resource, parsed, fingerprint(parsed.spec, text))
