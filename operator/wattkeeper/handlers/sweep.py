"""One task that compares everything anew once in a while: what no event tells, and what an event missed."""

from __future__ import annotations

import asyncio
import logging
import time

from wattkeeper.handlers.allocator import Allocator
from wattkeeper.handlers.pools import PoolKeeper
from wattkeeper.handlers.reconciler import Reconciler
from wattkeeper.handlers.tools import Tools
from wattkeeper.kube.client import Client
from wattkeeper.kube.errors import ApiError, LeadershipLostError
from wattkeeper.kube.resources import GPU_NODE_POOLS, LLM_DEPLOYMENTS
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import Claim, claim_of, pool_value

logger = logging.getLogger(__name__)


class Sweep:
    """Heals the caches that kopf feeds, and has those looked at whose fate hangs on what isn't watched."""

    def __init__(
        self, client: Client, tools: Tools, reconciler: Reconciler, allocator: Allocator, pools: PoolKeeper
    ) -> None:
        self._client = client
        self._snapshot = tools.snapshot
        self._metrics = tools.metrics
        self._reconciler = reconciler
        self._allocator = allocator
        self._pools = pools

    async def work(self, interval_seconds: float, namespaces: tuple[str, ...]) -> None:
        """Sweep at every interval, for as long as the leader leads."""
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                with self._metrics.sweep_seconds.time():
                    await self.once(namespaces)
                self._metrics.last_sweep.set(time.time())
            except ApiError as error:
                logger.warning("the sweep ended early, the next one goes on: %s", error)
            except LeadershipLostError:
                raise
            except Exception:  # what one resource does to the code must not end the operator
                logger.exception("the sweep ended early, the next one goes on")

    async def once(self, namespaces: tuple[str, ...] = ()) -> None:
        """One sweep. Raises ApiError."""
        await relist(self._client, self._snapshot, namespaces)
        for claim in self._snapshot.in_creation_order():
            if claim.pool is None:
                self._allocator.request(claim)
            elif _hangs_on_the_unwatched(self._snapshot, claim):
                self._reconciler.recheck(claim.key)
        self._pools.capacity_settled()


def _hangs_on_the_unwatched(snapshot: Snapshot, claim: Claim) -> bool:
    """Whether a placed one depends on ConfigMaps, quotas, policies, or on its pool coming back."""
    waits = claim.replicas > 0 and snapshot.bound(claim.key) < claim.replicas
    return claim.config_map is not None or claim.refused or waits


async def relist(client: Client, snapshot: Snapshot, namespaces: tuple[str, ...]) -> None:
    """Compare what is known of LLMDeployments and GPUNodePools with whole lists. Raises ApiError."""
    claims: list[Claim] = []
    oldest_list = ""
    for namespace in namespaces or (None,):
        async for items, version in client.pages(LLM_DEPLOYMENTS, namespace):
            claims += [claim_of(item) for item in items]
            oldest_list = oldest_list or version
    snapshot.claims.reconcile(claims, oldest_list)
    records = []
    async for items, version in client.pages(GPU_NODE_POOLS):
        records += [pool_value(item) for item in items]
        oldest_list = version
    snapshot.pools.reconcile(records, oldest_list)
