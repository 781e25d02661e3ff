"""The only writer to the cluster: server-side apply under one field manager, and /scale for replicas.

Everything is applied whole and by force: what we say of our own objects wins, what others add to them stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattkeeper.api import names
from wattkeeper.kube.client import APPLY, JSON, Client, Object, Request
from wattkeeper.kube.concurrency import all_of
from wattkeeper.kube.errors import DeniedError, NotFoundError
from wattkeeper.kube.manifests.deployment import paused, pod_of
from wattkeeper.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    GPU_NODE_POOLS,
    LLM_DEPLOYMENTS,
    PODS,
    Resource,
    resource_of,
)
from wattkeeper.kube.trim import Key

_APPLY = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
_DRY = {"dryRun": "All"}


class Executor:
    """Reads what a decision needs fresh, and writes what was decided."""

    def __init__(self, client: Client, *, validate_pods: bool = True) -> None:
        self._client = client
        self._validate_pods = validate_pods

    # ---- reading ---------------------------------------------------------------------------------

    async def read(self, key: Key) -> Object | None:
        """An LLMDeployment as it is now; None when it is gone."""
        try:
            return await self._client.get(LLM_DEPLOYMENTS, key.namespace, key.name)
        except NotFoundError:
            return None

    async def read_child(self, resource: Resource, key: Key) -> Object | None:
        """An object of the child's name, ours or not; None when there is none."""
        try:
            return await self._client.get(resource, key.namespace, key.name)
        except NotFoundError:
            return None

    async def read_config(self, namespace: str, name: str, data_key: str) -> str | None:
        """The value of a ConfigMap's key; None when either is missing."""
        try:
            config_map = await self._client.get(CONFIG_MAPS, namespace, name)
        except NotFoundError:
            return None
        value = (config_map.get("data") or {}).get(data_key)
        return value if isinstance(value, str) else None

    # ---- status ----------------------------------------------------------------------------------

    async def write_status(
        self, resource: Resource, read: Mapping[str, Any], status: Mapping[str, Any]
    ) -> Object:
        """Write the whole status of an object, as it was decided on the version that was read.

        Raises ConflictError when the object changed since: then the decision has to be made again.
        """
        metadata = read["metadata"]
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "status": status,
        }
        path = resource.path(metadata.get("namespace"), metadata["name"], "status")
        return await self._client.send(Request("PATCH", path, resource.kind, _APPLY, body, APPLY))

    # ---- children --------------------------------------------------------------------------------

    async def dry_run(self, manifests: list[dict[str, Any]], *, with_pods: bool) -> None:
        """Let the API server judge everything without storing anything. Raises DeniedError.

        `with_pods`: also one more pod of each Deployment, for quotas and pod security.
        """
        pods = manifests if with_pods and self._validate_pods else []
        await all_of(
            *(self._apply(manifest, dry=True) for manifest in manifests),
            *(self._dry_run_pod(each) for each in pods if each["kind"] == DEPLOYMENTS.kind),
        )

    async def apply(self, manifest: dict[str, Any]) -> Object:
        """Create the object, or bring our fields of it back to what they should be."""
        return await self._apply(manifest, dry=False)

    async def create_deployment(self, manifest: dict[str, Any], replicas: int) -> Object:
        """Create a Deployment with this number of replicas, without ever saying so in the apply."""
        await self.apply(paused(manifest))
        metadata = manifest["metadata"]
        await self.scale(Key(metadata["namespace"], metadata["name"]), replicas)
        return await self.apply(manifest)

    async def scale(self, key: Key, replicas: int) -> None:
        """Apply the replicas of a child Deployment: who owns them can be told from then on.

        A plain update of /scale leaves no trace of its writer where nobody owned the field before.
        """
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "spec": {"replicas": replicas},
        }
        path = DEPLOYMENTS.path(key.namespace, key.name, "scale")
        await self._client.send(Request("PATCH", path, DEPLOYMENTS.kind, _APPLY, body, APPLY))

    async def _apply(self, manifest: dict[str, Any], *, dry: bool) -> Object:
        resource, metadata = resource_of(manifest), manifest["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        query = _APPLY | _DRY if dry else _APPLY
        return await self._client.send(Request("PATCH", path, resource.kind, query, manifest, APPLY))

    async def _dry_run_pod(self, deployment: dict[str, Any]) -> None:
        pod = pod_of(deployment)
        query = {"fieldManager": names.FIELD_MANAGER, **_DRY}
        path = PODS.collection(pod["metadata"]["namespace"])
        try:
            await self._client.send(Request("POST", path, PODS.kind, query, pod, JSON))
        except DeniedError as error:
            if error.lacks_rights:
                # Quotas and pod security are then only seen in what becomes of the child.
                self._validate_pods = False
                return
            raise

    # ---- pools -----------------------------------------------------------------------------------

    async def apply_pool(self, name: str, spec: Mapping[str, Any], labels: Mapping[str, str]) -> Object:
        """Create a discovered GPUNodePool, or bring it up to date."""
        manifest = {
            "apiVersion": GPU_NODE_POOLS.api_version,
            "kind": GPU_NODE_POOLS.kind,
            "metadata": {"name": name, "labels": dict(labels)},
            "spec": dict(spec),
        }
        return await self.apply(manifest)

    async def delete_pool(self, name: str, uid: str, version: str) -> None:
        """Delete a discovered GPUNodePool, if it is still the one that was seen."""
        body = {"preconditions": {"uid": uid, "resourceVersion": version}}
        path = GPU_NODE_POOLS.path(None, name)
        await self._client.send(Request("DELETE", path, GPU_NODE_POOLS.kind, {}, body))
