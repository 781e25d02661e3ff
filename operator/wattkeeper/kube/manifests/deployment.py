"""The child Deployment: all of it but the replicas, which are written through /scale alone."""

from __future__ import annotations

from typing import Any

from wattkeeper.api import names
from wattkeeper.api.v1alpha1.llmdeployment import LLMDeploymentSpec
from wattkeeper.kube.manifests.labels import Owner
from wattkeeper.kube.manifests.pod import pod_template, start_budget
from wattkeeper.kube.manifests.record import ANNOTATION, Placed

#: After the longest start, before a rollout counts as stuck.
_PROGRESS_MARGIN_SECONDS = 300


def deployment(
    owner: Owner, spec: LLMDeploymentSpec, placed: Placed, *, propagation_seconds: float, surge: bool
) -> dict[str, Any]:
    """The Deployment as server-side apply takes it.

    `surge` is whether a GPU is free for the new pod of a rollout; without one, the old pod has to go first.
    Raises SpecErrors for a `spec.server.template` that can't be merged.
    """
    metadata = owner.metadata()
    metadata["labels"][names.LABEL_POOL] = placed.pool
    metadata["annotations"] = {ANNOTATION: placed.to_annotation()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "paused": False,  # said aloud, or a pause of somebody else's would stop every rollout
            "selector": {"matchLabels": owner.selector()},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}
                if surge
                else {"maxSurge": 0, "maxUnavailable": 1},
            },
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": start_budget(spec, placed) + _PROGRESS_MARGIN_SECONDS,
            "template": pod_template(owner, spec, placed, propagation_seconds),
        },
    }


def paused(manifest: dict[str, Any]) -> dict[str, Any]:
    """The same Deployment, making no pods yet: for its first apply.

    A Deployment is created with one replica unless it says otherwise, and ours must not say: what server-side
    apply once wrote and then leaves out goes back to that default. Paused, it makes no pods until /scale
    was written.
    """
    return {**manifest, "spec": {**manifest["spec"], "paused": True}}


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """A pod as the Deployment would make it, for a dry run: quotas and pod security judge pods alone."""
    template = manifest["spec"]["template"]
    metadata = {
        **template["metadata"],
        "generateName": f"{manifest['metadata']['name']}-",
        "namespace": manifest["metadata"]["namespace"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
