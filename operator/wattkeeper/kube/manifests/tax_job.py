"""The Job that measures the parking tax of one GPU of a node."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from wattkeeper.kube.manifests.labels import GPU_RESOURCE, MANAGED_BY, MANAGER

CONTAINER = "measure"
#: On the Job and its pods.
LABELS = {
    "app.kubernetes.io/name": "wattkeeper",
    "app.kubernetes.io/component": "tax-measurement",
    MANAGED_BY: MANAGER,
}
#: What a Job may take before its first reading: scheduling, pulling the image.
START_SECONDS = 900
#: A finished Job is kept for a day, so that its result can still be read by whoever was cut off.
_KEPT_SECONDS = 86400
_NAME_PREFIX = "wattkeeper-tax-"
_MOST_NAME = 63  # the Job's name becomes the value of a label of its pods
_USER = 65532


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxJob:
    """What the Job needs to know. `seconds` is how long the measurement takes."""

    node: str
    namespace: str
    image: str
    seconds: float
    arguments: tuple[str, ...] = ()  # of `wattkeeper tax measure --local`
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    runtime_class: str | None = None


def job_name(node: str) -> str:
    """One name a node, so that a second call finds the first one's Job."""
    slug = re.sub(r"[^a-z0-9-]+", "-", node.lower()).strip("-")
    if slug != node or len(_NAME_PREFIX) + len(slug) > _MOST_NAME:
        digest = hashlib.sha256(node.encode()).hexdigest()[:8]
        slug = f"{slug[: _MOST_NAME - len(_NAME_PREFIX) - 9].strip('-')}-{digest}"
    return _NAME_PREFIX + slug


def tax_job(job: TaxJob) -> dict[str, Any]:
    """A Job with one pod and one try: what was cut short is measured anew by whoever wants it."""
    metadata = {"name": job_name(job.node), "namespace": job.namespace, "labels": dict(LABELS)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            # A tenth more than planned: readings wait for the driver now and then.
            "activeDeadlineSeconds": round(1.1 * job.seconds) + START_SECONDS,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod_spec(job)},
        },
    }


def _pod_spec(job: TaxJob) -> dict[str, Any]:
    name = {"key": "metadata.name", "operator": "In", "values": [job.node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [name]}]}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        # Whoever names a node means that node, whatever it is kept free for; and a node is best measured
        # while it is cordoned, as nothing else comes to it then.
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        # It asks nothing of the API server: its result is its log.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(job)],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }
    if job.runtime_class:
        spec["runtimeClassName"] = job.runtime_class
    if job.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in job.pull_secrets]
    return spec


def _container(job: TaxJob) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": job.image,
        "imagePullPolicy": job.pull_policy,
        "args": ["tax", "measure", "--local", "--record=-", *job.arguments],
        "env": [
            # What the container runtime brings of the driver: libcuda, and libnvidia-ml.
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
            # No kernel is compiled, so nothing needs a cache in a home that isn't there.
            {"name": "CUDA_CACHE_DISABLE", "value": "1"},
            {"name": "HOME", "value": "/tmp"},  # noqa: S108  a mount of its own
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi", GPU_RESOURCE: "1"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  the same
        # Why it failed then stands in the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
