"""LLMDeployments and placements for the tests of manifests."""

from typing import Any

from wattkeeper.api.convert import ParsedDeployment, deployment_from
from wattkeeper.core.demand import LabelRequirement
from wattkeeper.kube.manifests.labels import Owner
from wattkeeper.kube.manifests.record import Placed

OWNER = Owner("team-a", "llama", "1f9c2c60-6e0b-4f0a-9a53-6a1c2e1b7c11")
L4 = (LabelRequirement("nvidia.com/gpu.product", "In", ("NVIDIA-L4",)),)


def parsed(**spec: Any) -> ParsedDeployment:
    """A parsed LLMDeployment; keyword arguments are merged into its spec."""
    basis: dict[str, Any] = {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "workload": {"requestsPerSecond": "330m"},
        "sla": {"interTokenLatency": "70ms"},
    }
    return deployment_from(
        {
            "apiVersion": "wattkeeper.dev/v1alpha1",
            "kind": "LLMDeployment",
            "metadata": {
                "name": OWNER.name,
                "namespace": OWNER.namespace,
                "uid": OWNER.uid,
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": basis | spec,
        }
    )


def placed(**values: Any) -> Placed:
    """On a pool of L4s, unless said otherwise."""
    basis: dict[str, Any] = {
        "pool": "l4",
        "gpus_per_replica": 1,
        "node_terms": (L4,),
        "weight_bytes": 16_060_522_496,
        "max_context_tokens": 34_304,
        "fingerprint": "0123456789abcdef",
    }
    return Placed(**(basis | values))
