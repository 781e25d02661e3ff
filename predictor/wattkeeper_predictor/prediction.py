"""What is asked of a recipe, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .specs import GpuSpec, ModelSpec, ServingConfig, Workload

Regime = Literal["Measured", "UnseenModel", "UnseenGpu"]
Statistic = Literal["Mean", "P95"]


@dataclass(frozen=True, slots=True)
class Query:
    """One question: this model on this GPU, so loaded, so served, and how sure the bounds must be."""

    model: ModelSpec
    gpu: GpuSpec
    workload: Workload
    serving: ServingConfig = field(default_factory=ServingConfig)
    confidence_percent: float = 90


@dataclass(frozen=True, slots=True)
class Prediction:
    """One answer, for one replica on one GPU.

    ``*_upper_*`` are one-sided bounds: the true value stays below with the confidence that was asked.
    ``itl_seconds`` is the mean time between two tokens of a request (Server), or the inverse of the
    whole engine's throughput (Offline: what the WattGPU paper calls ITL; no user sees it).
    ``energy_per_token_joules`` is board power over generated tokens. ``regime`` says what the training
    data holds of the pair; ``notes`` what the reader should know about this answer.
    """

    power_watts: float
    power_upper_watts: float
    itl_seconds: float
    itl_upper_seconds: float
    energy_per_token_joules: float
    regime: Regime
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """A prediction with what it rests on.

    ``power_terms_watts`` add up to the trees' power; ``itl_factors`` multiply to the trees' ITL (their
    ``base`` is in seconds). Both are of the load level nearest to the workload, and of the trees even
    where a measured value is answered.
    """

    prediction: Prediction
    level: str
    power_terms_watts: Mapping[str, float]
    itl_factors: Mapping[str, float]


class ServedRecipe(Protocol):
    """A recipe loaded from its artifacts."""

    @property
    def name(self) -> str:
        """The recipe's name, as in its manifest."""

    def forecast(self, query: Query) -> Prediction:
        """Answer, or raise ``OutOfPredictorRange`` naming the field."""

    def explain(self, query: Query) -> Explanation:
        """Answer and say what the answer rests on."""
