"""What was measured, as the core sees it: each value carries when; absent is unknown, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Sample:
    """One number and when it was scraped (Unix seconds), in the unit its field's name says.

    `since` is the first scrape, of those looked at, from which on it has read the same without a break; None
    where no earlier scrape was looked at.
    """

    value: float
    measured_at: float
    since: float | None = None

    def age_seconds(self, now: float) -> float:
        """Seconds since the scrape; negative when its clock runs ahead of ours."""
        return now - self.measured_at

    @property
    def changed_at(self) -> float:
        """The earliest time since which it is known not to have changed."""
        return self.measured_at if self.since is None else self.since


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A pod that holds a GPU or a slice of one, by the exporter's labels.

    `memory_bytes` is the pod's own share, known only where the exporter maps processes to pods; a failed
    mapping prints 0 for every pod, so 0 is None here.
    """

    namespace: str
    pod: str
    container: str = ""
    uid: str = ""
    mig_instance: str = ""
    memory_bytes: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.pod)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One physical GPU. With MIG or sharing the values are still the whole board's.

    `holders` are those that telemetry names. It can't show all of them everywhere (time-slicing without
    virtual GPUs names one pod of many; a failed kubelet listing names none), so a GPU without holders is
    free only when memory says so too.
    """

    uuid: str
    node: str = ""
    index: str = ""
    model_name: str = ""
    power_watts: Sample | None = None  # a running average of about a second, by the driver
    power_instant_watts: Sample | None = None
    power_limit_watts: Sample | None = None  # the cap in force
    power_default_watts: Sample | None = None  # the board's default cap, its TDP
    energy_joules: Sample | None = None  # counter, since the driver was loaded
    gpu_util_ratio: Sample | None = None  # share of time any kernel ran; absent with MIG
    engine_active_ratio: Sample | None = None  # profiling fields: known to stick at 0 on a busy GPU
    sm_active_ratio: Sample | None = None
    tensor_active_ratio: Sample | None = None
    dram_active_ratio: Sample | None = None
    memory_copy_ratio: Sample | None = None
    memory_used_bytes: Sample | None = None
    memory_free_bytes: Sample | None = None
    sm_clock_mhz: Sample | None = None
    memory_clock_mhz: Sample | None = None
    temperature_celsius: Sample | None = None
    memory_temperature_celsius: Sample | None = None
    holders: tuple[Holder, ...] = ()
    other_jobs: tuple[str, ...] = ()  # jobs of a batch system: the GPU is held, though by no pod
    mig: bool = False
    virtual: bool = False  # rows are copied once a sharing container
    notes: tuple[str, ...] = ()  # what was wrong or discarded, for people

    @property
    def shared(self) -> bool:
        """More than one pod, or a pod and a batch job, are known to hold it."""
        return len({holder.key for holder in self.holders}) + len(self.other_jobs) > 1


class ItlBasis(StrEnum):
    """What an engine's latency histogram counts."""

    TOKEN = "token"  # noqa: S105  gaps between tokens, the ITL itself
    REQUEST = "request"  # mean of each finished request
    STEP = "step"  # decode steps of the whole batch


@dataclass(frozen=True, slots=True)
class ServerReading:
    """One model server (one pod). Counters are the server's own totals since it started."""

    namespace: str
    pod: str
    engine: str
    model: str = ""
    instance: str = ""  # host:port of the scrape, for servers that carry no pod label
    running: Sample | None = None
    waiting: Sample | None = None
    prompt_tokens_total: Sample | None = None
    generation_tokens_total: Sample | None = None
    requests_total: Sample | None = None
    itl_seconds_sum: Sample | None = None
    itl_count: Sample | None = None
    itl_basis: ItlBasis | None = None
    asleep: Sample | None = None  # 1 while the engine sleeps; its CUDA context stays
    started_at: Sample | None = None  # Unix seconds
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.pod)

    @property
    def counters(self) -> tuple[Sample | None, Sample | None, Sample | None]:
        """Totals that any served request moves."""
        return (self.prompt_tokens_total, self.generation_tokens_total, self.requests_total)
