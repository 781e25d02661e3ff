"""A placement decision with its reasons: the candidate table and what was chosen from it."""

from __future__ import annotations

from dataclasses import dataclass

from wattkeeper.core.forecast import Forecast, MemoryFit


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a candidate can't be used. `reason` is CamelCase, `message` names the figures and the cure."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pool with one tensor parallel size. Feasible exactly when nothing rejects it."""

    pool: str
    gpu_label: str
    gpu_name: str | None  # the catalogue's name
    gpus_per_replica: int
    gpus_free: int  # in the pool, after the promises to others
    memory: MemoryFit | None = None
    forecast: Forecast | None = None
    rejection: Rejection | None = None

    @property
    def feasible(self) -> bool:
        return self.rejection is None


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The outcome for one LLMDeployment.

    `table` keeps the best variant of each pool, best first, and ends after `MAX_TABLE_ROWS`;
    `pools_considered` counts those left out too. `deferred` is true when a better candidate waits only for
    pods of other LLMDeployments to be bound: ask again when they are, `settling` is that candidate (it
    isn't always in the table); `chosen` is then what would be taken without waiting, if anything.
    """

    chosen: Candidate | None
    table: tuple[Candidate, ...]
    reason: str  # CamelCase: Placed, NoPools, NoFeasiblePool, UnknownModel, CapacitySettling …
    message: str
    deferred: bool = False
    settling: Candidate | None = None
    pools_considered: int = 0


#: What a status holds: etcd and every watcher carry it.
MAX_TABLE_ROWS = 32
