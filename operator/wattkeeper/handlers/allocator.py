"""The one place where GPUs are given out: serially, in the order of creation.

A decision is persisted in status.pool before anything is created, so a successor that starts at any moment
rebuilds every promise from the cluster. What was refused is tried again when nodes, pods or pools change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from wattkeeper.api import conditions as cond
from wattkeeper.api.conditions import find_condition
from wattkeeper.api.errors import SpecErrors
from wattkeeper.api.figures import gpu_shown
from wattkeeper.api.status import (
    RecordedPlacement,
    placement_status,
    reaffirmed_status,
    refused_status,
)
from wattkeeper.core import lifecycle
from wattkeeper.core.allocator import with_promise
from wattkeeper.core.decision import Candidate, PlacementDecision
from wattkeeper.core.demand import Demand
from wattkeeper.core.fleet import Assignment, Fleet
from wattkeeper.core.forecast import Forecaster
from wattkeeper.core.lifecycle import Course
from wattkeeper.core.placement import place, reaffirm
from wattkeeper.handlers.children import NameTakenError, PoolGoneError, refusal_reason
from wattkeeper.handlers.reading import Reading, understand
from wattkeeper.handlers.standing import Standings
from wattkeeper.handlers.tools import Tools
from wattkeeper.kube.client import Object, describe
from wattkeeper.kube.errors import ApiError, ConflictError, DeniedError, LeadershipLostError
from wattkeeper.kube.trim import Claim, Key

logger = logging.getLogger(__name__)


#: After an unexpected failure: long enough not to fill the log, short enough to heal by itself.
_UNEXPECTED_RETRY_SECONDS = 10.0


class _OvertakenError(Exception):
    """The cluster changed while a decision was made: it is made anew."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One that waits for promised GPUs to be bound; it keeps its claim on them against later ones."""

    order: tuple[str, str]
    demand: Demand
    candidate: Candidate
    since_seconds: float


class Allocator:
    """Decides on the requested LLMDeployments, the oldest first, and on nothing else."""

    #: After a failed request, a conflict among them.
    retry_seconds = 1.0
    #: Told of each placed one that was decided on.
    answered: Callable[[Key], None] = staticmethod(lambda key: None)

    def __init__(
        self, tools: Tools, standings: Standings, forecaster: Forecaster, *, settling_seconds: float
    ) -> None:
        self._executor = tools.executor
        self._snapshot = tools.snapshot
        self._children = tools.children
        self._reporter = tools.reporter
        self._metrics = tools.metrics
        self._clock = tools.clock
        self._standings = standings
        self._forecaster = forecaster
        self._settling_seconds = settling_seconds
        self._due: set[str] = set()
        self._kicked = asyncio.Event()
        self._working = False
        self._seen_capacity = -1
        self._waiting: dict[str, _Waiting] = {}
        self._known: dict[str, Reading] = {}

    # ---- asking ----------------------------------------------------------------------------------

    def request(self, claim: Claim) -> None:
        """Decide on this one at the next opportunity."""
        self._due.add(claim.uid)
        self._kicked.set()

    def capacity_settled(self) -> None:
        """Nodes, pods or pools changed: whoever has no pool is to be tried again."""
        self._kicked.set()

    @property
    def busy(self) -> bool:
        """Whether anything is due or being decided."""
        return self._kicked.is_set() or self._working

    def forget(self, uid: str) -> None:
        """The LLMDeployment is gone."""
        self._waiting.pop(uid, None)
        self._known.pop(uid, None)
        self._due.discard(uid)

    # ---- working ---------------------------------------------------------------------------------

    async def work(self) -> None:
        """Decide on whatever is due, for as long as the leader leads."""
        while True:
            self._working = False
            await self._kicked.wait()
            self._kicked.clear()
            self._working = True
            while (claim := self._oldest_due()) is not None:
                await self._attend(claim)

    def _oldest_due(self) -> Claim | None:
        if self._seen_capacity != self._snapshot.capacity_version:
            # Older ones that were refused come before younger ones, whoever asked.
            self._seen_capacity = self._snapshot.capacity_version
            self._due.update(claim.uid for claim in self._snapshot.claims if claim.pool is None)
        claims = [claim for uid in self._due if (claim := self._snapshot.claims.get(uid)) is not None]
        oldest = min(claims, key=lambda claim: claim.order, default=None)
        if oldest is None:
            self._due.clear()
        else:
            self._due.discard(oldest.uid)
        return oldest

    async def _attend(self, claim: Claim) -> None:
        try:
            known = self._known.get(claim.uid)
            if known is not None and known.resource["metadata"]["resourceVersion"] == claim.version:
                return await self._decide(claim, known)
            resource = await self._executor.read(claim.key)
            if resource is None or resource["metadata"]["uid"] != claim.uid:
                self._snapshot.claims.forget(claim.uid)
                self.forget(claim.uid)
            elif "deletionTimestamp" in resource["metadata"]:
                self.forget(claim.uid)
            else:
                await self._read(claim, resource)
        except LeadershipLostError:
            raise
        except _OvertakenError as error:
            logger.debug("placing %s: decided anew: %s", claim.key, error)
            if self._exists(claim):
                self.request(claim)
            else:
                self.forget(claim.uid)
        except (ApiError, PoolGoneError) as error:
            severity = logging.DEBUG if isinstance(error, ConflictError) else logging.WARNING
            logger.log(severity, "placing %s: %s; again in %g s", claim.key, error, self.retry_seconds)
            self._request_later(claim, self.retry_seconds)
        except Exception:  # one broken resource must not stop the others
            logger.exception("placing %s: unexpected; again in %g s", claim.key, _UNEXPECTED_RETRY_SECONDS)
            self._request_later(claim, _UNEXPECTED_RETRY_SECONDS)
        return None

    def _request_later(self, claim: Claim, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.request, claim)

    async def _read(self, claim: Claim, resource: Object) -> None:
        self._known.pop(claim.uid, None)
        try:
            reading = await understand(self._executor, resource)
        except SpecErrors as error:
            self._waiting.pop(claim.uid, None)  # what can't be placed keeps no claim against others
            return await self._refuse(resource, error.reason, str(error))
        await self._decide(claim, reading)
        if claim.pool is None and claim.config_map is None and self._exists(claim):
            self._known[claim.uid] = reading  # many may wait for long, and be asked for at every change
        return None

    async def _decide(self, claim: Claim, reading: Reading) -> None:
        course, placement = self._standings.course(reading), self._standings.placement(reading)
        refused = False
        if course is Course.REVIEW and placement is not None:
            await self._review(reading, placement)
        elif course is not Course.KEEP:
            refused = not await self._place(claim, reading, placement)
        self._standings.reviewed(reading)
        if placement is not None and course is not Course.MOVE and not refused:
            self.answered(claim.key)  # it waits for the answer, also where nothing had to be written

    # ---- deciding --------------------------------------------------------------------------------

    async def _place(self, claim: Claim, reading: Reading, placement: RecordedPlacement | None) -> bool:
        """Choose a pool; False where the API server or the template forbids what would be created."""
        decision = await self._decision(claim, reading.parsed.demand)
        if placement is not None and (decision.deferred or decision.chosen is None):
            await self._review(reading, placement)  # nothing better than where it waits now
            return True
        refusal = await self._refusal(reading, decision)
        if refusal is not None:
            await self._refuse(reading.resource, *refusal)
            return False
        self._make_sure(claim, reading.parsed.demand, decision)
        await self._persist(reading, decision)
        return True

    def _exists(self, claim: Claim) -> bool:
        return self._snapshot.claims.get(claim.uid) is not None

    def _make_sure(self, claim: Claim, demand: Demand, decision: PlacementDecision) -> None:
        """The cluster went on while the decision was made and tried: raise unless it still holds."""
        chosen = decision.chosen
        if chosen is None or decision.deferred:
            return
        fleet = self._fleet_for(claim)
        home = tuple(pool for pool in fleet.pools if pool.name == chosen.pool)
        asked = replace(demand, tensor_parallel_size=chosen.gpus_per_replica)
        again = place(asked, replace(fleet, pools=home), self._forecaster)
        if again.chosen is None or again.deferred != decision.deferred:
            raise _OvertakenError(f"{chosen.pool} has no room for it any more: {again.message}")

    async def _refusal(self, reading: Reading, decision: PlacementDecision) -> tuple[str, str] | None:
        """Reason and message why what was chosen can't be created; None: it can."""
        if decision.chosen is None or decision.deferred:
            return None
        try:
            await self._children.judge_new(reading, decision.chosen)
        except SpecErrors as error:
            return error.reason, str(error)
        except NameTakenError as error:
            return "NameTaken", str(error)
        except DeniedError as error:
            return refusal_reason(error), f"the API server refuses what would be created: {describe(error)}"
        return None

    async def _decision(self, claim: Claim, demand: Demand) -> PlacementDecision:
        fleet = self._fleet_for(claim)
        with self._metrics.placement_seconds.time():
            # Predictions are arithmetic of tens of milliseconds: in a thread, so that the Lease is renewed.
            decision = await asyncio.to_thread(place, demand, fleet, self._forecaster)
        if not self._exists(claim):
            raise _OvertakenError("it was deleted meanwhile")
        waiting = self._waiting.get(claim.uid)
        now = self._clock()
        since = waiting.since_seconds if waiting is not None else now
        decision = lifecycle.settled(decision, now - since, self._settling_seconds)
        if decision.deferred and decision.settling is not None:
            self._waiting[claim.uid] = _Waiting(claim.order, demand, decision.settling, since)
            self._request_later(claim, max(0.1, since + self._settling_seconds - now))
        else:
            self._waiting.pop(claim.uid, None)
        return decision

    def _fleet_for(self, claim: Claim) -> Fleet:
        """The fleet with all promises, and with what older ones are waiting for."""
        fleet = self._snapshot.fleet()
        for waiting in sorted(self._waiting.values(), key=lambda each: each.order):
            if waiting.order < claim.order and self._snapshot.claims.get(waiting.demand.uid) is not None:
                fleet = with_promise(fleet, waiting.demand, waiting.candidate)
        return fleet

    async def _review(self, reading: Reading, placement: RecordedPlacement) -> None:
        """Look again at one that has its pool: the figures change, the pool stays."""
        demand, resource = reading.parsed.demand, reading.resource
        bound = self._snapshot.bound(Key(demand.namespace, demand.name))
        assignment = Assignment(placement.pool, placement.gpus_per_replica, bound)
        fleet = self._snapshot.fleet()
        resized = self._resized(demand, fleet, assignment)
        decision = await asyncio.to_thread(reaffirm, demand, fleet, self._forecaster, resized or assignment)
        if resized is None and demand.tensor_parallel_size not in (None, assignment.gpus_per_replica):
            decision = _not_resized(decision, demand, assignment)
        previous = dict(resource.get("status") or {})
        previous |= {"pool": placement.pool, "gpusPerReplica": (resized or assignment).gpus_per_replica}
        if decision.chosen is not None:
            previous["gpu"] = gpu_shown(decision.chosen)
        stamp = self._reporter.stamp(resource)
        status = reaffirmed_status(decision, demand, reading.parsed.spec, stamp, previous)
        await self._reporter.write(resource, status)

    def _resized(self, demand: Demand, fleet: Fleet, assignment: Assignment) -> Assignment | None:
        """The assignment with the tensor parallel size that is asked for now, if its pool has room for it."""
        wanted = demand.tensor_parallel_size
        home = next((pool for pool in fleet.pools if pool.name == assignment.pool), None)
        if wanted in (None, assignment.gpus_per_replica) or home is None:
            return None
        decision = place(demand, replace(fleet, pools=(home,)), self._forecaster)
        return replace(assignment, gpus_per_replica=wanted) if decision.chosen is not None else None

    async def _persist(self, reading: Reading, decision: PlacementDecision) -> None:
        resource, parsed = reading.resource, reading.parsed
        previous = resource.get("status") or {}
        self._metrics.placements.labels(decision.reason).inc()
        stamp = self._reporter.stamp(resource)
        status = placement_status(decision, parsed.demand, parsed.spec, stamp, previous)
        if _says_the_same(previous, status):
            return
        await self._reporter.write(resource, status)
        if decision.deferred:
            return
        if decision.chosen is not None:
            logger.info("%s/%s: placed: %s", parsed.demand.namespace, parsed.demand.name, decision.message)
            self._reporter.event(resource, "Normal", "Placed", "Place", decision.message)
        else:
            self._reporter.event(resource, "Warning", "Unschedulable", "Place", decision.message)

    async def _refuse(self, resource: Object, reason: str, message: str) -> None:
        previous = resource.get("status") or {}
        status = refused_status(reason, message, self._reporter.stamp(resource), previous)
        if await self._reporter.write(resource, status) is not resource:
            self._reporter.event(resource, "Warning", reason, "Validate", message)


def _not_resized(decision: PlacementDecision, demand: Demand, assignment: Assignment) -> PlacementDecision:
    message = (
        f"spec.placement.tensorParallelSize {demand.tensor_parallel_size} isn't applied: {assignment.pool} "
        f"has no room for it beside the running replicas of {assignment.gpus_per_replica}. Free GPUs there, "
        "or scale to 0 and back to have it placed anew. Meanwhile it "
    )
    return replace(decision, message=message + decision.message)


def _says_the_same(previous: Object, status: Object) -> bool:
    """Whether a decision differs from the recorded one in its figures at most, which are left as they are."""

    def essence(of: Object) -> tuple[object, ...]:
        placed = find_condition(of.get("conditions") or (), cond.PLACED) or {}
        rows = tuple((row["pool"], row.get("reason")) for row in of.get("candidates") or ())
        accepted = find_condition(of.get("conditions") or (), cond.ACCEPTED) or {}
        return (
            of.get("observedGeneration"),
            of.get("pool"),
            placed.get("reason"),
            accepted.get("status"),
            frozenset(rows),
        )

    return essence(previous) == essence(status)
