"""What both sources give: one look at the whole cluster, or the reason why there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wattkeeper.core.readings import GpuReading, Sample, ServerReading
from wattkeeper.telemetry.attribution import GpuRow, attribute
from wattkeeper.telemetry.cluster import ClusterView
from wattkeeper.telemetry.engines import ENGINES, Engine
from wattkeeper.telemetry.errors import NoGpuMetricsError, StaleError
from wattkeeper.telemetry.series import Fault, Faults, Series
from wattkeeper.telemetry.servers import PodKey, attribute_servers

#: Three collect intervals of dcgm-exporter: an older value is no evidence of what is now.
MAX_AGE_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Telemetry:
    """One look. What isn't in it is unknown."""

    taken_at: float
    gpus: Mapping[str, GpuReading]  # by UUID
    servers: Mapping[PodKey, tuple[ServerReading, ...]]
    faults: tuple[Fault, ...] = ()
    silent_nodes: tuple[str, ...] = ()  # nodes with GPUs of which nothing is known
    _held: Mapping[PodKey, tuple[GpuReading, ...]] = field(default_factory=dict, repr=False)

    def gpus_of(self, namespace: str, pod: str) -> tuple[GpuReading, ...]:
        """The GPUs that the exporter says a pod holds, by UUID."""
        return self._held.get((namespace, pod), ())

    def server_of(self, namespace: str, pod: str, engine: str = "") -> ServerReading | None:
        """The reading of a pod's server: of the engine named, else the one that tells most."""
        found = [
            each for each in self.servers.get((namespace, pod), ()) if not engine or each.engine == engine
        ]
        return max(found, key=_told, default=None)

    def summary(self) -> str:
        """In one line, for the condition's message."""
        parts = [f"{len(self.gpus)} GPUs, {len(self.servers)} model servers"]
        if self.silent_nodes:
            shown = ", ".join(self.silent_nodes[:3])
            parts.append(f"{len(self.silent_nodes)} GPU nodes without telemetry ({shown} …)")
        return "; ".join([*parts, *map(str, self.faults)])


class TelemetrySource(Protocol):
    """Where measurements come from. Methods raise TelemetryError; the next call tries anew."""

    async def read(
        self, now: float, cluster: ClusterView | None, engines: Sequence[Engine] = ENGINES
    ) -> Telemetry:
        """All GPUs and model servers as last measured at `now` (Unix seconds)."""
        ...

    async def power_history(
        self, uuids: Collection[str], start: float, end: float
    ) -> dict[str, tuple[Sample, ...]]:
        """Watts of single GPUs over a span of Unix seconds, oldest first; those not measured are missing."""
        ...

    async def close(self) -> None:
        """Gives connections and threads back."""
        ...


@dataclass(slots=True)
class Rows:
    """What was read, before anything is made of it."""

    gpus: list[GpuRow] = field(default_factory=list)
    servers: list[Series] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)


def telemetry_of(rows: Rows, engines: Sequence[Engine], cluster: ClusterView | None, now: float) -> Telemetry:
    """The look that rows make. Raises EvidenceError where they prove nothing about this cluster now."""
    faults = rows.faults
    gpus = attribute(rows.gpus, cluster, faults)
    with_gpus = {node.name for node in cluster.nodes if node.has_gpus} if cluster is not None else set()
    if not gpus and (cluster is None or with_gpus):
        raise NoGpuMetricsError(
            "there are no metrics of GPUs: is dcgm-exporter running, and is it scraped by this source?"
        )
    if gpus:
        newest = max((at for gpu in gpus.values() for at in _times(gpu)), default=None)
        if newest is None:
            raise NoGpuMetricsError("no GPU has a metric whose value can be true")
        if now - newest > MAX_AGE_SECONDS:
            raise StaleError(
                f"the newest metric of a GPU is {now - newest:.0f} s old: scraping has stopped, "
                "or its clock is behind ours"
            )
    servers = attribute_servers(rows.servers, engines, cluster, faults)
    held: dict[PodKey, list[GpuReading]] = defaultdict(list)
    for gpu in gpus.values():
        for key in {holder.key for holder in gpu.holders}:
            held[key].append(gpu)
    return Telemetry(
        now,
        gpus,
        servers,
        faults.found(),
        tuple(sorted(with_gpus - {gpu.node for gpu in gpus.values()})),
        {key: tuple(each) for key, each in held.items()},
    )


def _times(gpu: GpuReading) -> list[float]:
    values = [getattr(gpu, name) for name in GpuReading.__dataclass_fields__]
    return [value.measured_at for value in values if isinstance(value, Sample)]


def _told(reading: ServerReading) -> tuple[bool, int, str]:
    values = (reading.running, reading.waiting, *reading.counters)
    return (reading.running is not None, sum(value is not None for value in values), reading.engine)
