"""Bringing about the children of a placed LLMDeployment: its Deployment, its Service, its replicas."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from wattkeeper.api.names import LABEL_LLM_DEPLOYMENT
from wattkeeper.api.status import RecordedPlacement
from wattkeeper.core import lifecycle
from wattkeeper.core.capacity import promises_to_others, replicas_left
from wattkeeper.core.decision import Candidate
from wattkeeper.core.fleet import Pool, Reservation
from wattkeeper.core.forecast import Forecaster, MemoryFit
from wattkeeper.handlers.reading import Reading
from wattkeeper.kube.client import Object
from wattkeeper.kube.concurrency import all_of
from wattkeeper.kube.errors import DeniedError
from wattkeeper.kube.executor import Executor
from wattkeeper.kube.manifests.deployment import deployment
from wattkeeper.kube.manifests.labels import MANAGED_BY, MANAGER
from wattkeeper.kube.manifests.record import Placed, digest
from wattkeeper.kube.manifests.service import service
from wattkeeper.kube.resources import DEPLOYMENTS, SERVICES
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import ChildRecord, Key, ServiceRecord, child_value, service_value

logger = logging.getLogger(__name__)


class NameTakenError(Exception):
    """An object of the child's name exists and isn't ours. The message names the cure."""


class PoolGoneError(Exception):
    """Nothing exists to render the pods from: the pool is gone, and no child remembers it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was brought about. `repaired` names kinds that somebody else had changed."""

    child: ChildRecord
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Applied:
    """What was last applied, to tell our own changes from others'."""

    digest: str
    deployment: tuple[str, int]  # uid and generation
    service: tuple[str, str]  # uid and resource version


class Children:
    """Renders, checks and applies the children. Holds only what saves it from saying the same thing twice."""

    def __init__(
        self, executor: Executor, snapshot: Snapshot, forecaster: Forecaster, propagation_seconds: float
    ) -> None:
        self._executor = executor
        self._snapshot = snapshot
        self._forecaster = forecaster
        self._propagation_seconds = propagation_seconds
        self._applied: dict[str, _Applied] = {}
        self._judged: dict[str, str] = {}

    def forget(self, uid: str) -> None:
        """The LLMDeployment is gone."""
        self._applied.pop(uid, None)
        self._judged.pop(uid, None)

    def of(self, reading: Reading) -> ChildRecord | None:
        """The child Deployment as it was last seen, if it is this LLMDeployment's."""
        demand = reading.parsed.demand
        child = self._snapshot.children.get(Key(demand.namespace, demand.name))
        return child if child is not None and child.owner_uid == demand.uid else None

    def inherited(self, reading: Reading) -> RecordedPlacement | None:
        """Where the child runs already, for an LLMDeployment whose status doesn't say so (any more).

        A status that was lost, a restored backup, an LLMDeployment that was deleted without its children.
        """
        demand = reading.parsed.demand
        key = Key(demand.namespace, demand.name)
        child = self._snapshot.children.get(key)
        if child is None or child.placed is None or child.owner_uid not in ("", demand.uid):
            return None
        if self._snapshot.bound(key) == 0:
            return None
        return RecordedPlacement(child.placed.pool, child.placed.gpus_per_replica)

    # ---- before anything exists --------------------------------------------------------------------

    async def judge_new(self, reading: Reading, candidate: Candidate) -> None:
        """Whether the candidate's children could be created, without creating anything.

        Raises NameTakenError, SpecErrors for the template, DeniedError with the API server's words.
        """
        pool = self._snapshot.pool(candidate.pool)
        if pool is None or candidate.memory is None:
            raise PoolGoneError(candidate.pool)
        placed = _facts(pool, candidate.gpus_per_replica, candidate.memory, reading.fingerprint)
        manifests = self._render(reading, placed, surge=False)
        # At the same time, as others wait for their turn with the allocator.
        await all_of(self._refuse_foreign(reading), self._judge(reading, manifests, with_pods=True))

    async def _refuse_foreign(self, reading: Reading) -> None:
        if self.of(reading) is None:
            await self._existing(reading)

    async def _judge(self, reading: Reading, manifests: list[dict[str, Any]], *, with_pods: bool) -> None:
        uid, judged = reading.parsed.demand.uid, digest(manifests)
        if self._judged.get(uid) != judged:
            await self._executor.dry_run(manifests, with_pods=with_pods)
            self._judged[uid] = judged

    # ---- bringing about ----------------------------------------------------------------------------

    async def bring_about(self, reading: Reading, placement: RecordedPlacement) -> Outcome:
        """Make the children what they should be.

        Raises ApiError, SpecErrors, NameTakenError, PoolGoneError.
        """
        seen = self.of(reading)
        child = seen or await self._existing(reading)
        placed = self._placed(reading, placement, child)
        manifests = self._render(reading, placed, surge=self._surge(reading, placed, child))
        if child is None:
            return await self._create(reading, manifests)
        # What no watch shows any more has lost its labels or its owner.
        intact = seen is not None and seen.placed == placed
        return await self._update(reading, manifests, child, intact=intact)

    async def _create(self, reading: Reading, manifests: list[dict[str, Any]]) -> Outcome:
        await self._judge(reading, manifests, with_pods=True)
        made = await self._executor.create_deployment(manifests[0], reading.parsed.spec.replicas)
        served = await self._executor.apply(manifests[1])
        return Outcome(self._remember(reading, manifests, made, served))

    async def _update(
        self, reading: Reading, manifests: list[dict[str, Any]], child: ChildRecord, *, intact: bool
    ) -> Outcome:
        demand = reading.parsed.demand
        key = Key(demand.namespace, demand.name)
        rescaled = child.facts.wanted != demand.replicas
        if rescaled or not child.facts.replicas_ours:
            await self._executor.scale(key, demand.replicas)
        applied, serving = self._applied.get(demand.uid), self._snapshot.services.get(key)
        ours = applied is not None and applied.digest == digest(manifests)
        if intact and ours and _unchanged(applied, child, serving):
            return Outcome(child)
        if not ours:
            await self._judge(reading, manifests, with_pods=False)
        made = await self._executor.apply(manifests[0])
        served = await self._executor.apply(manifests[1])
        after = self._remember(reading, manifests, made, served)
        repaired = []
        if ours:
            # The answer differs from what was there only where something had to be put right.
            if not intact or after.facts.generation > child.facts.generation + rescaled:
                repaired.append("Deployment")
            if serving is None or service_value(served).version != serving.version:
                repaired.append("Service")
        return Outcome(after, tuple(repaired))

    def _remember(
        self, reading: Reading, manifests: list[dict[str, Any]], made: dict[str, Any], served: dict[str, Any]
    ) -> ChildRecord:
        child, serving = child_value(made), service_value(served)
        self._applied[reading.parsed.demand.uid] = _Applied(
            digest(manifests), (child.uid, child.facts.generation), (serving.uid, serving.version)
        )
        return child

    async def _existing(self, reading: Reading) -> ChildRecord | None:
        """The child Deployment that no watch has told of yet, or that a deleted owner left behind.

        Raises NameTakenError where a Deployment or Service of the name is somebody else's.
        """
        demand = reading.parsed.demand
        key = Key(demand.namespace, demand.name)
        existing = await asyncio.gather(
            *(self._executor.read_child(resource, key) for resource in (DEPLOYMENTS, SERVICES))
        )
        for thing in existing:
            if thing is not None and not _adoptable(thing, demand.uid):
                raise NameTakenError(
                    f"a {thing['kind']} {key.name} exists in {key.namespace} that belongs to something else: "
                    "delete it, or create the LLMDeployment under another name"
                )
        return child_value(existing[0]) if existing[0] is not None else None

    # ---- rendering -----------------------------------------------------------------------------------

    def _render(self, reading: Reading, placed: Placed, *, surge: bool) -> list[dict[str, Any]]:
        owner, spec = reading.owner, reading.parsed.spec
        made = deployment(owner, spec, placed, propagation_seconds=self._propagation_seconds, surge=surge)
        return [made, service(owner, spec)]

    def _placed(self, reading: Reading, placement: RecordedPlacement, child: ChildRecord | None) -> Placed:
        """What the child recorded when it was made, else as it is now."""
        recorded = child.placed if child is not None else None
        if recorded is not None and recorded.holds_for(
            placement.pool, placement.gpus_per_replica, reading.fingerprint
        ):
            return recorded
        demand = reading.parsed.demand
        pool = self._snapshot.pool(placement.pool)
        if pool is not None and pool.node_terms:
            memory = self._forecaster.memory(
                demand.model, pool.gpu, demand.workload, placement.gpus_per_replica
            )
            if isinstance(memory, MemoryFit):
                return _facts(pool, placement.gpus_per_replica, memory, reading.fingerprint)
        if recorded is not None and recorded.pool == placement.pool:
            return recorded
        raise PoolGoneError(placement.pool)

    def _surge(self, reading: Reading, placed: Placed, child: ChildRecord | None) -> bool:
        if child is None:
            return False
        demand, free = reading.parsed.demand, 0
        pool = self._snapshot.pool(placed.pool)
        if pool is not None:
            promises = promises_to_others(self._snapshot.fleet(), pool, demand.uid)
            one = Reservation(
                demand.uid, pool.name, placed.gpus_per_replica, 1, demand.tolerations, demand.node_selector
            )
            free = replicas_left(pool, one, promises)
        pods = self._snapshot.pods_of(Key(demand.namespace, demand.name))
        return lifecycle.surge(
            lifecycle.Rollout(
                begins=child.placed != placed,
                rolling=child.facts.rolling,
                has_surge=child.surge,
                free_replicas=free,
                unbound_pods=sum(not pod.node for pod in pods),
            )
        )


def _unchanged(applied: _Applied | None, child: ChildRecord, serving: ServiceRecord | None) -> bool:
    """Whether both children are as they were last applied."""
    if applied is None or serving is None:
        return False
    return applied.deployment == (child.uid, child.facts.generation) and applied.service == (
        serving.uid,
        serving.version,
    )


def _adoptable(existing: Object, uid: str) -> bool:
    """Whether an object is this LLMDeployment's, or the operator's own work that has no owner any more."""
    metadata = existing["metadata"]
    controllers = [each["uid"] for each in metadata.get("ownerReferences") or () if each.get("controller")]
    labels = metadata.get("labels") or {}
    left_behind = (labels.get(MANAGED_BY), labels.get(LABEL_LLM_DEPLOYMENT)) == (MANAGER, metadata["name"])
    return controllers == [uid] or (not controllers and left_behind)


def _facts(pool: Pool, gpus: int, memory: MemoryFit, fingerprint: str) -> Placed:
    return Placed(
        pool=pool.name,
        gpus_per_replica=gpus,
        node_terms=pool.node_terms,
        weight_bytes=memory.weight_bytes * gpus,
        max_context_tokens=memory.max_context_tokens,
        fingerprint=fingerprint,
    )


def refusal_reason(error: DeniedError) -> str:
    """The CamelCase reason of a refusal by the API server."""
    if error.lacks_rights:
        return "OperatorLacksRights"
    if "exceeded quota" in error.message:
        return "QuotaExceeded"
    return "DeniedByPolicy" if error.status == 403 else "InvalidTemplate"
