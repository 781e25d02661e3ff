"""What the activator decides about a request for a model that may be parked: forward, hold or refuse.

Values in, a decision out; `activator/` does the I/O. A `Route` says all that is known of one model, a
`RoutingTable` all routes at one moment; tables are swapped whole, so that no request sees half a change.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from wattkeeper.core.parking_states import DESIRED, ActivatorMode, ParkState

#: Retry-After in seconds: never 0 (a storm), and short enough that a client comes back the same hour.
RETRY_AFTER_LEAST, RETRY_AFTER_MOST = 1, 3600
#: Share of this model's cold starts that are over by the time that a client is told to come back.
_RETRY_QUANTILE = 0.9
#: A pod that couldn't be reached is left out for so long, doubled each time. Seconds.
SUSPECT_LEAST_SECONDS, SUSPECT_MOST_SECONDS = 0.1, 2.0


@dataclass(frozen=True, slots=True, order=True)
class ModelKey:
    """The LLMDeployment that serves a model."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a pod listens: an IP address, and the container's port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ActivationPath(StrEnum):
    """`parking.activation.path`."""

    ON_DEMAND = "OnDemand"  # the activator is in the path only while the model isn't simply awake
    ALWAYS = "Always"  # it stays in the path: clients aren't sent back to the pods


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait for one model in one activator, and for how long."""

    timeout_seconds: float = 600.0
    max_requests: int = 1000
    max_bytes: int = 64 * 1024**2  # heads and bodies

    def __post_init__(self) -> None:
        if not (math.isfinite(self.timeout_seconds) and self.timeout_seconds > 0):
            raise ValueError(f"timeout_seconds: {self.timeout_seconds!r} isn't a positive number of seconds")
        for name in ("max_requests", "max_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative; 0 lets nothing wait")


@dataclass(frozen=True, slots=True)
class ColdStarts:
    """The measured cold starts of this model, from the demand to a Ready pod. Seconds, in any order."""

    seconds: tuple[float, ...] = ()
    assumed_seconds: float = 60.0  # while none has been measured

    def __post_init__(self) -> None:
        for value in (*self.seconds, self.assumed_seconds):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"seconds: {value!r} isn't a duration; leave it out")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a wake can't succeed for now, as the operator found it: told to clients at once."""

    reason: str  # CamelCase, as in the condition
    message: str


@dataclass(frozen=True, slots=True)
class Route:
    """One model as the operator tells it to every activator.

    `targets`: pods that may be forwarded to in this state: Ready, not ending, with the serving label (without
    it too while `FORWARD_WITHDRAWN`). `port` is the activator's and belongs to this model alone.
    """

    model: ModelKey
    port: int
    epoch: int = 0
    state: ParkState = ParkState.AWAKE
    targets: tuple[Address, ...] = ()
    limits: QueueLimits = QueueLimits()
    cold_starts: ColdStarts = ColdStarts()
    path: ActivationPath = ActivationPath.ON_DEMAND
    served_models: tuple[str, ...] = ()  # ids for GET /v1/models
    created_at: int = 0  # Unix time, for GET /v1/models
    obstacle: Obstacle | None = None
    keep_alive_comment_seconds: float | None = None  # SSE comments to clients that wait; None: none

    @property
    def mode(self) -> ActivatorMode:
        return DESIRED[self.state].activator


class RoutingTableError(ValueError):
    """Two routes claim the same model or port."""


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """All routes at one moment, by the activator's port."""

    by_port: Mapping[int, Route] = field(default_factory=dict)

    @classmethod
    def of(cls, routes: Iterable[Route]) -> RoutingTable:
        by_port: dict[int, Route] = {}
        models: set[ModelKey] = set()
        for route in routes:
            if (other := by_port.get(route.port)) is not None:
                raise RoutingTableError(
                    f"port {route.port} is claimed by {other.model} and {route.model}: give each its own"
                )
            if route.model in models:
                raise RoutingTableError(f"{route.model} has two routes: leave one out")
            by_port[route.port] = route
            models.add(route.model)
        return cls(by_port)


class Course(StrEnum):
    """What happens to a request."""

    FORWARD = "Forward"
    HOLD = "Hold"
    REFUSE = "Refuse"  # waiting is no use: the obstacle is told


def course(route: Route, reachable: int) -> Course:
    """What to do with a request now; `reachable`: targets that aren't left out after a failed connection."""
    if route.mode is not ActivatorMode.HOLD and reachable > 0:
        return Course.FORWARD
    return Course.REFUSE if route.obstacle is not None else Course.HOLD


def sends_clients_back(route: Route) -> bool:
    """Whether answers close the connection, so that the client's next one leads to the pods themselves."""
    return route.path is ActivationPath.ON_DEMAND and route.mode is ActivatorMode.FORWARD


def least_loaded(
    targets: Sequence[Address], in_flight: Mapping[Address, int], excluded: Collection[Address], turn: int
) -> Address | None:
    """The target with the fewest requests from here; `turn` rotates among equals. None: all are excluded."""
    usable = [target for target in targets if target not in excluded]
    if not usable:
        return None
    start = turn % len(usable)
    return min(usable[start:] + usable[:start], key=lambda target: in_flight.get(target, 0))


def suspect_seconds(failures: int) -> float:
    """For how long a target is left out after so many failed connections in a row (at least one)."""
    return float(min(SUSPECT_MOST_SECONDS, SUSPECT_LEAST_SECONDS * 2 ** min(failures - 1, 16)))


@dataclass(frozen=True, slots=True)
class Held:
    """What waits for one model."""

    requests: int = 0
    size_bytes: int = 0


class QueueFull(StrEnum):
    """Which of a queue's limits a request would break."""

    REQUESTS = "maxQueuedRequests"
    BYTES = "maxQueuedBytes"


def admits(held: Held, size_bytes: int, limits: QueueLimits, new: bool = True) -> QueueFull | None:
    """Whether a request of so many bytes may wait (None), or one that waits may grow by them (not `new`)."""
    if new and held.requests >= limits.max_requests:
        return QueueFull.REQUESTS
    if held.size_bytes + size_bytes > limits.max_bytes:
        return QueueFull.BYTES
    return None


def remaining_wake_seconds(cold_starts: ColdStarts, elapsed_seconds: float) -> float:
    """How much longer a wake that began so long ago is likely to take.

    The time by which nine in ten of those of this model's cold starts that took longer than this were over.
    One that outlasts all of them is given half as much again.
    """
    longer = sorted(seconds for seconds in cold_starts.seconds if seconds > elapsed_seconds)
    if longer:
        return longer[math.ceil(_RETRY_QUANTILE * len(longer)) - 1] - elapsed_seconds
    if not cold_starts.seconds and cold_starts.assumed_seconds > elapsed_seconds:
        return cold_starts.assumed_seconds - elapsed_seconds
    return elapsed_seconds / 2


def retry_after_seconds(cold_starts: ColdStarts, elapsed_seconds: float) -> int:
    """Retry-After of a request that can't wait, in whole seconds."""
    remaining = math.ceil(remaining_wake_seconds(cold_starts, max(0.0, elapsed_seconds)))
    return min(RETRY_AFTER_MOST, max(RETRY_AFTER_LEAST, remaining))


@dataclass(frozen=True, slots=True)
class Standing:
    """How one model stands in one activator, as it tells the leader."""

    model: ModelKey
    epoch: int
    mode: ActivatorMode
    listening: bool  # on the model's port
    in_flight: int  # forwarded and not finished, tunnels and probes too
    held: Held
    requests_seen: int  # since the activator started, without probes and listings

    def acknowledges(self, epoch: int) -> bool:
        """'Holding epoch N, nothing in flight.'"""
        return self.mode is ActivatorMode.HOLD and self.epoch == epoch and self.in_flight == 0
