"""How one LLMDeployment stands, and so what it needs of the allocator."""

from __future__ import annotations

from collections.abc import Callable

from wattkeeper.api import conditions as cond
from wattkeeper.api.conditions import condition_status
from wattkeeper.api.status import RecordedPlacement, recorded_placement
from wattkeeper.core import lifecycle
from wattkeeper.core.capacity import Room, promises_to_others, room_for
from wattkeeper.core.demand import Demand
from wattkeeper.core.fleet import Reservation
from wattkeeper.core.lifecycle import Course, Standing
from wattkeeper.handlers.children import Children
from wattkeeper.handlers.reading import Reading
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import Key


class Standings:
    """Remembers of each what it was last looked at for, and since when its pool can't take it."""

    def __init__(
        self,
        snapshot: Snapshot,
        children: Children,
        clock: Callable[[], float],
        settling_seconds: float,
    ) -> None:
        self._snapshot = snapshot
        self._children = children
        self._clock = clock
        self._settling_seconds = settling_seconds
        self._reviewed: dict[str, str] = {}
        self._stranded_since: dict[str, float] = {}

    def forget(self, uid: str) -> None:
        """The LLMDeployment is gone."""
        self._reviewed.pop(uid, None)
        self._stranded_since.pop(uid, None)

    def reviewed(self, reading: Reading) -> None:
        """The allocator has looked at it as it is now."""
        self._reviewed[reading.parsed.demand.uid] = reading.fingerprint

    def placement(self, reading: Reading) -> RecordedPlacement | None:
        """Where it is: by its status, else by what already runs of it."""
        return recorded_placement(reading.resource) or self._children.inherited(reading)

    def course(self, reading: Reading) -> Course:
        """What it needs of the allocator."""
        demand, status = reading.parsed.demand, reading.resource.get("status") or {}
        placement = self.placement(reading)
        child = self._children.of(reading)
        made_for = child.placed.fingerprint if child is not None and child.placed is not None else None
        known = self._reviewed.get(demand.uid, made_for)
        # Placed is False of one whose placement was recorded by half: it is looked at again.
        recorded = condition_status(status.get("conditions") or (), cond.PLACED) == "True"
        answered = recorded and status.get("observedGeneration") == reading.parsed.generation
        bound = self._snapshot.bound(Key(demand.namespace, demand.name))
        return lifecycle.course(
            Standing(
                placed=placement is not None,
                spec_changed=not answered or known not in (None, reading.fingerprint),
                bound=bound,
                stranded=placement is not None and bound == 0 and self._stranded(demand, placement),
            )
        )

    def _stranded(self, demand: Demand, placement: RecordedPlacement) -> bool:
        """Whether replicas are wanted that the pool hasn't been able to take for a while."""
        if demand.replicas > 0 and not self._has_room(demand, placement):
            since = self._stranded_since.setdefault(demand.uid, self._clock())
            return self._clock() - since >= self._settling_seconds
        self._stranded_since.pop(demand.uid, None)
        return False

    def _has_room(self, demand: Demand, placement: RecordedPlacement) -> bool:
        fleet = self._snapshot.fleet()
        pool = next((pool for pool in fleet.pools if pool.name == placement.pool), None)
        if pool is None:
            return False
        pods = Reservation(
            demand.uid,
            placement.pool,
            placement.gpus_per_replica,
            1,
            demand.tolerations,
            demand.node_selector,
        )
        return room_for(pool, pods, promises_to_others(fleet, pool, demand.uid)) is not Room.FULL
