"""GPUNodePools: those found by node labels are written, all get a status, those left behind are removed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from wattkeeper.api import names
from wattkeeper.api.conditions import Stamp
from wattkeeper.api.pool_status import pool_status
from wattkeeper.core.fleet import Pool
from wattkeeper.core.forecast import Forecaster, GpuKind
from wattkeeper.handlers.tools import Tools
from wattkeeper.kube.client import Object
from wattkeeper.kube.errors import ApiError, ConflictError, LeadershipLostError, NotFoundError
from wattkeeper.kube.resources import GPU_NODE_POOLS
from wattkeeper.kube.trim import PoolRecord, pool_value

logger = logging.getLogger(__name__)

#: A discovered pool without nodes is kept so long: node pools that scale to zero come back.
_KEPT_SECONDS = 600.0
_RETRY_SECONDS = 5.0


class PoolKeeper:
    """Brings the GPUNodePools in line with the nodes, whenever capacity settled and at every sweep."""

    def __init__(self, tools: Tools, forecaster: Forecaster, now: Callable[[], datetime]) -> None:
        self._executor = tools.executor
        self._snapshot = tools.snapshot
        self._clock = tools.clock
        self._forecaster = forecaster
        self._now = now
        self._kicked = asyncio.Event()
        self._empty_since: dict[str, float] = {}

    def capacity_settled(self) -> None:
        self._kicked.set()

    async def work(self) -> None:
        """Keep the pools, for as long as the leader leads."""
        while True:
            await self._kicked.wait()
            self._kicked.clear()
            try:
                await self.keep()
            except LeadershipLostError:
                raise
            except ApiError as error:
                severity = logging.DEBUG if isinstance(error, ConflictError) else logging.WARNING
                logger.log(severity, "GPUNodePools: %s; again in %.0f s", error, _RETRY_SECONDS)
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._kicked.set)
            except Exception:  # what one pool does to the code must not end the operator
                logger.exception("GPUNodePools: unexpected; again in %.0f s", _RETRY_SECONDS)
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._kicked.set)

    async def keep(self) -> None:
        """One pass over all pools. Raises ApiError."""
        built = {pool.name: pool for pool in self._snapshot.built_pools()}
        known = {record.name: record for record in self._snapshot.pools}
        for name, pool in built.items():
            self._empty_since.pop(name, None)
            record = known.get(name)
            if not pool.written:
                record = await self._discovered(pool, record)
            if record is not None:
                await self._tell(pool, record)
        for name, record in known.items():
            if name not in built and record.parsed is not None and record.parsed.discovered:
                await self._left_behind(record)

    async def _discovered(self, pool: Pool, record: PoolRecord | None) -> PoolRecord | None:
        """The object of a discovered pool, made or brought up to date; None where it can't have one."""
        if not pool.node_selector:
            return None  # nothing names its nodes in a way that a selector could say
        if record is not None and (record.parsed is None or not record.parsed.discovered):
            return None  # a user's pool of that name, which can't be read
        if record is not None and record.parsed and record.parsed.pool.node_selector == pool.node_selector:
            return record
        labels = {names.LABEL_DISCOVERED: "true", **_own_labels(pool)}
        written = await self._executor.apply_pool(
            pool.name, {"nodeSelector": dict(pool.node_selector)}, labels
        )
        if record is None:
            logger.info("found the GPU node pool %s (%s)", pool.name, pool.gpu.label or "GPU unknown")
        return self._observed(written)

    async def _tell(self, pool: Pool, record: PoolRecord) -> None:
        name = self._forecaster.gpu_name(pool.gpu) if pool.gpu.label else None
        status = pool_status(pool, name, Stamp(record.generation, self._now()), record.status)
        if status != record.status:
            self._observed(await self._executor.write_status(GPU_NODE_POOLS, _reference(record), status))

    async def _left_behind(self, record: PoolRecord) -> None:
        """A discovered pool whose nodes are gone: say so, and remove it when nobody needs it any more."""
        assert record.parsed is not None
        since = self._empty_since.setdefault(record.name, self._clock())
        unused = all(claim.pool != record.name for claim in self._snapshot.claims)
        touched = record.foreign_labels or record.parsed.pool.power_budget_watts is not None
        if unused and not touched and self._clock() - since >= _KEPT_SECONDS:
            with contextlib.suppress(NotFoundError):
                await self._executor.delete_pool(record.name, record.uid, record.version)
            self._snapshot.pools.forget(record.uid)
            self._empty_since.pop(record.name, None)
            logger.info("removed the GPU node pool %s, whose nodes are gone", record.name)
            return
        label = str(record.status.get("gpuLabel") or "")
        spec = record.parsed.pool
        empty = Pool(record.name, GpuKind(label), (), spec.labels, spec.node_selector)
        await self._tell(empty, record)

    def _observed(self, written: Object) -> PoolRecord:
        record = pool_value(written)
        self._snapshot.pools.observe(record)
        return record


def _own_labels(pool: Pool) -> dict[str, str]:
    """The labels by which `placement.poolSelector` finds the pool; users may add others to the object."""
    return {key: value for key, value in pool.labels.items() if _is_label_value(value)}


def _is_label_value(value: str) -> bool:
    return len(value) <= 63


def _reference(record: PoolRecord) -> Mapping[str, Any]:
    return {"metadata": {"name": record.name, "uid": record.uid, "resourceVersion": record.version}}
