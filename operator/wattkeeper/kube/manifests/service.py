"""The child Service."""

from __future__ import annotations

from typing import Any

from wattkeeper.api.v1alpha1.llmdeployment import LLMDeploymentSpec
from wattkeeper.kube.manifests.labels import HTTP_PORT, Owner


def service(owner: Owner, spec: LLMDeploymentSpec) -> dict[str, Any]:
    """The Service as server-side apply takes it: only pods that carry the serving label get requests."""
    port = {"name": HTTP_PORT, "port": spec.server.port, "targetPort": HTTP_PORT, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(),
        "spec": {"selector": owner.serving_selector(), "ports": [port]},
    }
