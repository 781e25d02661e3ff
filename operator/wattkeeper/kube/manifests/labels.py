"""Labels and names of the children."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wattkeeper.api import names

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "wattkeeper"
#: What the reflectors of children watch.
CHILDREN_SELECTOR = f"{names.LABEL_LLM_DEPLOYMENT},{MANAGED_BY}={MANAGER}"

#: The model server's container, for `spec.server.template` to extend.
SERVER_CONTAINER = "server"
#: Name of the model server's port; the Service aims at it by name, so that a rollout may change its number.
HTTP_PORT = "http"
GPU_RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Owner:
    """The LLMDeployment that children belong to."""

    namespace: str
    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        """The owner reference: deletion cascades by it.

        `blockOwnerDeletion` stays false, as it needs the right to write finalizers where the
        OwnerReferencesPermissionEnforcement admission plugin is on.
        """
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.LLM_DEPLOYMENT,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }

    def labels(self) -> dict[str, str]:
        """On every child and on the pods."""
        return {
            "app.kubernetes.io/name": "llm-server",
            "app.kubernetes.io/instance": self.name,
            MANAGED_BY: MANAGER,
            names.LABEL_LLM_DEPLOYMENT: self.name,
        }

    def selector(self) -> dict[str, str]:
        """The Deployment's own pods. Without the serving label: a pod out of service is still its pod."""
        return {names.LABEL_LLM_DEPLOYMENT: self.name}

    def serving_selector(self) -> dict[str, str]:
        """The pods that the Service sends requests to."""
        return {**self.selector(), names.LABEL_SERVING: "true"}

    def metadata(self) -> dict[str, Any]:
        """Metadata that all children share."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels(),
            "ownerReferences": [self.reference()],
        }


def selector_text(labels: dict[str, str]) -> str:
    """A selector as `kubectl -l` and /scale take it."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
