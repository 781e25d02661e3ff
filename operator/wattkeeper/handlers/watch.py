"""kopf's part: LLMDeployments and GPUNodePools are watched, their changes remembered and put on the queue.

Handlers do nothing else, so nothing of kopf's state is needed to go on after a crash: the work is found
again from the cluster. There is no finalizer, no deletion handler, no daemon and no timer: an operator that
was uninstalled must not hold up a deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from wattkeeper.api import names
from wattkeeper.handlers.storage import HashDiffBaseStorage
from wattkeeper.handlers.workqueue import WorkQueue
from wattkeeper.kube.client import Connection
from wattkeeper.kube.reflector import WATCH_CLIENT_SECONDS, WATCH_SERVER_SECONDS
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import Key, claim_of, pool_value

_LLM_DEPLOYMENTS = (names.GROUP, names.VERSION, names.LLM_DEPLOYMENTS)
_GPU_NODE_POOLS = (names.GROUP, names.VERSION, names.GPU_NODE_POOLS)

#: Objects whose events are handled at the same time; a handler is done in microseconds.
_WORKER_LIMIT = 50
#: A worker waits so long for the next event of its object before another object may have its place. With
#: kopf's 5 s, fifty workers would need minutes for a list of a thousand objects.
_WORKER_IDLE_SECONDS = 0.2


def registry(snapshot: Snapshot, queue: WorkQueue[Key]) -> kopf.OperatorRegistry:
    """The handlers, on a registry of their own."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.create(*_LLM_DEPLOYMENTS, registry=handlers)
    @kopf.on.update(*_LLM_DEPLOYMENTS, registry=handlers)
    @kopf.on.resume(*_LLM_DEPLOYMENTS, registry=handlers)
    async def llmdeployment(body: kopf.Body, **_: Any) -> None:
        claim = claim_of(body)
        snapshot.claims.observe(claim)
        queue.add(claim.key)

    @kopf.on.event(*_LLM_DEPLOYMENTS, registry=handlers)
    async def llmdeployment_seen(type: str | None, body: kopf.Body, **_: Any) -> None:
        if type == "DELETED":
            snapshot.claims.forget(body["metadata"]["uid"])
        else:
            snapshot.claims.observe(claim_of(body))

    @kopf.on.event(*_GPU_NODE_POOLS, registry=handlers)
    async def gpunodepool_seen(type: str | None, body: kopf.Body, **_: Any) -> None:
        if type == "DELETED":
            snapshot.pools.forget(body["metadata"]["uid"])
        else:
            snapshot.pools.observe(pool_value(body))

    return handlers


def login(handlers: kopf.OperatorRegistry, connection: Callable[[], Awaitable[Connection]]) -> None:
    """Let kopf use the very connection that the operator uses, renewed tokens included."""

    @kopf.on.login(registry=handlers)
    async def same_connection(**_: Any) -> kopf.ConnectionInfo:
        now = await connection()
        return kopf.ConnectionInfo(
            server=now.server,
            ca_path=now.ca_path,
            ca_data=now.ca_data,
            insecure=now.insecure,
            scheme=now.scheme,
            token=now.token,
            certificate_path=now.certificate_path,
            private_key_path=now.private_key_path,
            proxy_url=now.proxy_url,
            trust_env=True,
        )


def settings() -> kopf.OperatorSettings:
    """How kopf is run here."""
    chosen = kopf.OperatorSettings()
    storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP, v1=False)
    chosen.persistence.progress_storage = storage
    chosen.persistence.diffbase_storage = HashDiffBaseStorage(
        prefix=names.GROUP, key="last-handled", v1=False
    )
    chosen.persistence.finalizer = f"{names.GROUP}/never-set"
    chosen.peering.standalone = True  # leadership is a Lease; peering is no lock
    chosen.posting.enabled = False  # the operator says itself what users should know
    chosen.scanning.disabled = True  # CRDs and namespaces needn't be watched, nor the rights for it granted
    chosen.watching.server_timeout = WATCH_SERVER_SECONDS
    chosen.watching.client_timeout = WATCH_CLIENT_SECONDS
    chosen.queueing.worker_limit = _WORKER_LIMIT
    chosen.queueing.idle_timeout = _WORKER_IDLE_SECONDS
    chosen.networking.request_timeout = 30.0
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # one line a handled event otherwise
    return chosen
