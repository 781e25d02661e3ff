"""What one LLMDeployment needs: read, leave to the allocator or bring about its children, report."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from wattkeeper.api import conditions as cond
from wattkeeper.api.conditions import Condition, condition_status, find_condition
from wattkeeper.api.errors import SpecErrors
from wattkeeper.api.status import (
    RecordedPlacement,
    Serving,
    conditioned_status,
    recorded_placement,
    refused_status,
    serving_status,
)
from wattkeeper.core import lifecycle
from wattkeeper.core.lifecycle import ChildFacts, Course, ReplicasConflict
from wattkeeper.handlers.children import NameTakenError, Outcome, PoolGoneError, refusal_reason
from wattkeeper.handlers.reading import Reading, understand
from wattkeeper.handlers.standing import Standings
from wattkeeper.handlers.tools import Tools
from wattkeeper.handlers.workqueue import WorkQueue
from wattkeeper.kube.client import Object, describe
from wattkeeper.kube.errors import ApiError, ConflictError, DeniedError, LeadershipLostError
from wattkeeper.kube.manifests.labels import selector_text
from wattkeeper.kube.trim import Claim, Key, claim_of

logger = logging.getLogger(__name__)

#: Between two corrections of replicas that somebody else writes too: what answers at once would be answered
#: at once, for ever.
_RESCALE_SECONDS = 10.0


class PlacementDesk(Protocol):
    """Where placements are asked for."""

    def request(self, claim: Claim) -> None: ...


class Reconciler:
    """Workers that take keys from the queue. The same inputs as last time need no work."""

    def __init__(
        self,
        tools: Tools,
        standings: Standings,
        desk: PlacementDesk,
        queue: WorkQueue[Key],
        *,
        conflict_hold_seconds: float,
    ) -> None:
        self._standings = standings
        self._executor = tools.executor
        self._snapshot = tools.snapshot
        self._children = tools.children
        self._reporter = tools.reporter
        self._metrics = tools.metrics
        self._clock = tools.clock
        self._desk = desk
        self._queue = queue
        self._conflict_hold_seconds = conflict_hold_seconds
        self._settled: dict[Key, Any] = {}
        self._conflicts: dict[Key, ReplicasConflict] = {}
        self._rescaled_at: dict[Key, float] = {}
        self._passing: set[Key] = set()  # what was said of them holds for a while only

    async def work(self) -> None:
        """Take keys, one after the other, for as long as the leader leads."""
        while True:
            key = await self._queue.get()
            try:
                with self._metrics.reconcile_seconds.time():
                    await self.reconcile(key)
            except LeadershipLostError:
                raise
            except (ApiError, PoolGoneError) as error:
                self._again(key, error)
            except Exception as error:  # one broken resource must not stop the others
                logger.exception("%s: unexpected", key)
                self._again(key, error)
            else:
                self._queue.done(key)

    def _again(self, key: Key, error: Exception) -> None:
        self._metrics.reconcile_failures.labels(type(error).__name__).inc()
        after = error.retry_after_seconds if isinstance(error, ApiError) else None
        delay = self._queue.failed(key, after)
        # Somebody else's change in between is everyday; anything else is worth a line.
        severity = logging.DEBUG if isinstance(error, ConflictError) else logging.WARNING
        logger.log(severity, "%s: %s; again in %.1f s", key, error, delay)

    def recheck(self, key: Key) -> None:
        """Look at it again even though nothing that is watched has changed."""
        self._settled.pop(key, None)
        self._queue.add(key)

    def _recheck_after(self, key: Key, seconds: float) -> None:
        self._passing.add(key)
        self._queue.add_after(key, seconds)

    async def reconcile(self, key: Key) -> None:
        """Bring one LLMDeployment a step further. Raises ApiError and PoolGoneError to be called again."""
        claim = self._snapshot.claim(key)
        if claim is None:
            return self._forget(key)
        if claim.pool is None:
            return self._desk.request(claim)
        inputs = self._inputs(claim)
        if self._settled.get(key) == inputs:
            return None
        self._passing.discard(key)
        resource = await self._executor.read(key)
        if resource is None or resource["metadata"]["uid"] != claim.uid:
            self._snapshot.claims.forget(claim.uid)
            return None
        self._snapshot.claims.observe(claim_of(resource))
        if "deletionTimestamp" in resource["metadata"]:
            return None
        await self._carry_out(key, claim, resource)
        if self._inputs(claim) == inputs and key not in self._passing:
            self._settled[key] = inputs
        return None

    async def _carry_out(self, key: Key, claim: Claim, resource: Object) -> None:
        try:
            reading = await understand(self._executor, resource)
        except SpecErrors as error:
            await self._refuse(resource, error.reason, str(error))
            return
        placement, course = recorded_placement(resource), self._standings.course(reading)
        if course is not Course.KEEP:
            self._desk.request(claim)
        if placement is None or course in (Course.PLACE, Course.REVIEW):
            return  # the answer touches it again
        try:
            outcome = await self._bring_about(key, reading, placement)
        except SpecErrors as error:
            await self._refuse(resource, error.reason, str(error))
        except NameTakenError as error:
            await self._refuse(resource, "NameTaken", str(error))
        except DeniedError as error:
            await self._refuse(
                resource, refusal_reason(error), f"the API server refuses it: {describe(error)}"
            )
        else:
            await self._report(key, reading, outcome)

    # ---- steps -----------------------------------------------------------------------------------

    async def _bring_about(self, key: Key, reading: Reading, placement: RecordedPlacement) -> Outcome:
        child, wanted = self._children.of(reading), reading.parsed.spec.replicas
        if child is not None:
            # Our own write takes the field back, and the other writer out of sight: it is noted before.
            self._note_writers(key, child.facts)
        if child is not None and child.facts.foreign_writer and child.facts.wanted != wanted:
            wait = _RESCALE_SECONDS - (self._clock() - self._rescaled_at.get(key, float("-inf")))
            if wait > 0:
                self._recheck_after(key, wait)
                return Outcome(child)
            self._rescaled_at[key] = self._clock()
        return await self._children.bring_about(reading, placement)

    async def _report(self, key: Key, reading: Reading, outcome: Outcome) -> None:
        resource, facts = reading.resource, outcome.child.facts
        for kind in outcome.repaired:
            self._metrics.repairs.labels(kind).inc()
            note = f"{kind} {key.name} was changed or deleted by somebody else; it is as it should be again"
            self._reporter.event(resource, "Normal", "DriftRepaired", "Repair", note)
        trouble = lifecycle.trouble_of(facts, [pod.trouble for pod in self._snapshot.pods_of(key)])
        serving = Serving(
            selector=selector_text(reading.owner.selector()),
            replicas=facts.replicas,
            ready_replicas=facts.ready,
            failure=trouble if facts.ready == 0 else None,
        )
        stamp, previous = self._reporter.stamp(resource), resource.get("status") or {}
        news = [Condition(cond.ACCEPTED, "True", "Valid", "the spec is understood")]
        conflict = self._conflict(key, reading)
        status = serving_status(serving, reading.parsed.spec, stamp, previous)
        status = conditioned_status([*news, *([conflict] if conflict else [])], stamp, status)
        await self._reporter.write(resource, status)
        self._tell(resource, status, trouble)

    def _tell(self, resource: Object, status: Mapping[str, Any], trouble: str | None) -> None:
        before = (resource.get("status") or {}).get("conditions") or []
        ready = find_condition(status["conditions"], cond.READY) or {}
        if ready.get("status") == "True" and condition_status(before, cond.READY) != "True":
            self._reporter.event(resource, "Normal", "Ready", "Serve", str(ready.get("message")))
        if trouble is not None:
            self._reporter.event(resource, "Warning", "Failed", "Serve", trouble)

    def _note_writers(self, key: Key, facts: ChildFacts) -> None:
        conflict = lifecycle.replicas_conflict(
            facts, self._conflicts.get(key), self._clock(), self._conflict_hold_seconds
        )
        if conflict is None:
            self._conflicts.pop(key, None)
        else:
            self._conflicts[key] = conflict

    def _conflict(self, key: Key, reading: Reading) -> Condition | None:
        """The ReplicasConflict condition, None where there never was one."""
        conflict = self._conflicts.get(key)
        if conflict is None:
            conditions = (reading.resource.get("status") or {}).get("conditions") or []
            if find_condition(conditions, cond.REPLICAS_CONFLICT) is None:
                return None
            return Condition(
                cond.REPLICAS_CONFLICT, "False", "OneWriter", "only the operator writes the child's replicas"
            )
        remaining = self._conflict_hold_seconds - (self._clock() - conflict.seen_at_seconds)
        self._recheck_after(key, max(1.0, remaining + 0.1))
        message = (
            f"{conflict.writer} writes spec.replicas of the Deployment {key.name} too; it is set back to "
            f"{reading.parsed.spec.replicas}. Scale the LLMDeployment instead, by kubectl scale llmd "
            f"{key.name} or an HPA that targets it"
        )
        self._reporter.event(reading.resource, "Warning", "ReplicasConflict", "Scale", message)
        return Condition(cond.REPLICAS_CONFLICT, "True", "AnotherWriter", message)

    async def _refuse(self, resource: Object, reason: str, message: str) -> None:
        previous = resource.get("status") or {}
        stamp = self._reporter.stamp(resource)
        written = await self._reporter.write(resource, refused_status(reason, message, stamp, previous))
        if written is not resource:
            self._reporter.event(resource, "Warning", reason, "Validate", message)

    def _inputs(self, claim: Claim) -> Any:
        """All that is watched and that a reconciliation depends on."""
        key = claim.key
        troubles = tuple(sorted(pod.trouble for pod in self._snapshot.pods_of(key) if pod.trouble))
        return (
            self._snapshot.claim(key),
            self._snapshot.children.get(key),
            self._snapshot.services.get(key),
            self._snapshot.bound(key),
            troubles,
        )

    def _forget(self, key: Key) -> None:
        self._settled.pop(key, None)
        self._conflicts.pop(key, None)
        self._rescaled_at.pop(key, None)
        self._passing.discard(key)
