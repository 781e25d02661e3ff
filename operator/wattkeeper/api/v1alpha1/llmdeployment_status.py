"""The status of an LLMDeployment: what was found and done."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from wattkeeper.api.schema import ATOMIC_LIST, ApiModel, list_map
from wattkeeper.api.v1alpha1.common import Conditions
from wattkeeper.core.decision import MAX_TABLE_ROWS

MAX_MESSAGE = 1024

PoolName = Annotated[str, Field(min_length=1, max_length=253)]
GpuName = Annotated[str, Field(min_length=1, max_length=128)]
Watts = Annotated[int, Field(ge=0, le=1_000_000)]
ShortDuration = Annotated[str, Field(min_length=2, max_length=32)]
GpusPerReplica = Annotated[int, Field(ge=1, le=64)]


class Prediction(ApiModel):
    """What one replica is predicted to draw and how fast to answer, at the workload's load."""

    power_watts: Watts = Field(description="Mean board power of all GPUs of one replica (watts, rounded).")
    power_upper_watts: Watts = Field(description="Upper bound of powerWatts (watts, rounded up).")
    inter_token_latency: ShortDuration = Field(
        description="Time between two tokens (duration, three digits), of the SLA's statistic."
    )
    inter_token_latency_upper: ShortDuration = Field(
        description="Upper bound of interTokenLatency (duration, rounded up)."
    )
    time_to_first_token: ShortDuration | None = Field(
        default=None, description="Time to the first token (duration, three digits), where predicted."
    )
    time_to_first_token_upper: ShortDuration | None = Field(
        default=None, description="Upper bound of timeToFirstToken (duration, rounded up)."
    )
    statistic: Literal["Mean", "P95"] = Field(description="Statistic of the latency that was predicted.")
    confidence_percent: int = Field(
        ge=50, le=99, description="One-sided confidence of the upper bounds (percent)."
    )
    notes: Annotated[list[Annotated[str, Field(max_length=MAX_MESSAGE)]], ATOMIC_LIST] = Field(
        default_factory=list, max_length=16, description="What to know of how it was predicted."
    )


class CandidateRow(ApiModel):
    """One pool in its best variant: what it would draw, or why it can't be used."""

    pool: PoolName = Field(description="Name of the GPUNodePool.")
    gpu: GpuName = Field(description="GPU of the pool: the catalogue's name, else the nodes' label.")
    gpus_per_replica: GpusPerReplica = Field(description="GPUs of one replica (tensor parallel size).")
    free_gpus: int = Field(
        alias="freeGPUs", ge=0, le=10_000_000, description="GPUs of the pool that nobody has or was promised."
    )
    feasible: bool = Field(description="Whether the pool can be used.")
    power_watts: Watts | None = Field(
        default=None, description="Predicted mean power of one replica (watts, rounded)."
    )
    power_upper_watts: Watts | None = Field(
        default=None, description="Upper bound of powerWatts (watts, rounded up)."
    )
    inter_token_latency: ShortDuration | None = Field(
        default=None, description="Predicted time between two tokens (duration, three digits)."
    )
    inter_token_latency_upper: ShortDuration | None = Field(
        default=None, description="Upper bound of interTokenLatency (duration, rounded up)."
    )
    reason: str | None = Field(
        default=None, max_length=64, description="Why it can't be used, in one CamelCase word."
    )
    message: str | None = Field(
        default=None, max_length=MAX_MESSAGE, description="Why it can't be used: the figures and the cure."
    )


class LLMDeploymentStatus(ApiModel):
    """What was found and done. Power and latency are predictions; `conditions` say what holds."""

    phase: str | None = Field(
        default=None,
        max_length=32,
        description="Summary for reading (programs read the conditions): Invalid, Pending, Unschedulable, "
        "Placed, Loading, PartlyReady, Ready, Failed or Off; more may come.",
    )
    observed_generation: int | None = Field(
        default=None, ge=0, description="Generation of the spec that this status is about."
    )
    pool: PoolName | None = Field(
        default=None, description="GPUNodePool that was chosen; its GPUs are promised from then on."
    )
    gpu: GpuName | None = Field(
        default=None, description="GPU of the pool: the catalogue's name, else the nodes' label."
    )
    gpus_per_replica: GpusPerReplica | None = Field(
        default=None, description="GPUs of one replica (tensor parallel size)."
    )
    prediction: Prediction | None = Field(
        default=None, description="What one replica is predicted to draw and how fast to answer."
    )
    candidates: Annotated[list[CandidateRow] | None, list_map("pool")] = Field(
        default=None,
        max_length=MAX_TABLE_ROWS,
        description="The pools as they stood at the last decision, best first, each in its best variant.",
    )
    pools_considered: int | None = Field(
        default=None,
        ge=0,
        le=10_000_000,
        description="Pools at the last decision; candidates shows the best.",
    )
    replicas: int | None = Field(
        default=None, ge=0, le=100_000, description="Pods that exist; 0 when off or parked."
    )
    ready_replicas: int | None = Field(
        default=None, ge=0, le=100_000, description="Pods that answer requests."
    )
    selector: str | None = Field(
        default=None, max_length=1024, description="Label selector of the pods, for /scale and autoscalers."
    )
    conditions: Conditions = Field(
        default_factory=list,
        max_length=32,
        description="What holds: Accepted, Placed, Ready, SLAFeasible, TelemetryHealthy and others.",
    )
