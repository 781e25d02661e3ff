"""What one LLMDeployment asks for, as the core sees it: validated, in SI units, without Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class Scenario(StrEnum):
    """The two load scenarios of seed 000."""

    SERVER = "Server"
    OFFLINE = "Offline"


class Statistic(StrEnum):
    """Which statistic of the inter-token latency the SLA bounds."""

    MEAN = "Mean"
    P95 = "P95"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model to serve. `config` (a Hugging Face config.json) tells of it where the catalogue doesn't."""

    id: str
    quantization: str = "none"
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class WorkloadShape:
    """The load one replica is meant to carry; tokens are means a request."""

    scenario: Scenario
    requests_per_second: float | None  # None for Offline: the batch is never empty
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Sla:
    """The latency bound, and how sure the prediction must be of meeting it."""

    itl_seconds: float
    statistic: Statistic = Statistic.MEAN
    confidence_percent: int = 90
    ttft_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration, as in core/v1 (empty key with Exists tolerates everything)."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, order=True)
class LabelRequirement:
    """One requirement of a label selector: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """One LLMDeployment's demand for placement. `created` orders the serial allocator (RFC 3339)."""

    uid: str
    namespace: str
    name: str
    created: str
    model: ModelChoice
    workload: WorkloadShape
    sla: Sla
    replicas: int = 1
    tensor_parallel_size: int | None = None  # None: chosen
    pool_selector: tuple[LabelRequirement, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
