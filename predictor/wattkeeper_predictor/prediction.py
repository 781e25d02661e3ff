"""What is asked of a recipe, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from .anchoring import AnchorState
from .errors import InvalidInput, OutOfPredictorRange
from .observation import Observed
from .specs import GpuSpec, ModelSpec, ServingConfig, Workload

Regime = Literal["Measured", "UnseenModel", "UnseenGpu"]
Statistic = Literal["Mean", "P95"]


@dataclass(frozen=True, slots=True)
class Query:
    """One question: this model on this GPU, so loaded, so served, and how sure the bounds must be.

    ``observed`` is what telemetry read of this very deployment, if anything.
    """

    model: ModelSpec
    gpu: GpuSpec
    workload: Workload
    serving: ServingConfig = field(default_factory=ServingConfig)
    confidence_percent: float = 90
    observed: Observed | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """One answer, for one replica; power is of all its GPUs together.

    ``*_upper_*`` are one-sided bounds: the true value stays below with the confidence that was asked.
    ``*_interval_*`` are two-sided at the same confidence. ``itl_seconds`` is the mean time between two
    tokens of a request; only the recipe ``wattgpu``, as its paper, gives the inverse of the whole engine's
    throughput there offline, which no user sees (``inverse_throughput_seconds`` elsewhere).
    ``itl_p95_seconds`` is the 95th percentile of the single gaps between tokens, ``ttft_seconds`` the time to
    the first token. ``energy_per_token_joules`` is power over generated tokens. ``idle_watts`` is drawn with
    the model resident and no request; ``worst_case_power_watts`` is the most that a full load may draw.
    ``max_sequences`` fit in memory with prompt + output each; ``running_sequences`` are at work on average.
    ``regime`` says what the training data holds of the pair, ``out_of_range`` names the inputs that it holds
    nothing like (bounds are wider), and ``notes`` says what the reader should know about this answer. None
    stands where a recipe doesn't predict a figure.
    """

    power_watts: float
    power_upper_watts: float
    itl_seconds: float
    itl_upper_seconds: float
    energy_per_token_joules: float
    regime: Regime
    notes: tuple[str, ...] = ()
    power_interval_watts: tuple[float, float] | None = None
    itl_interval_seconds: tuple[float, float] | None = None
    itl_p95_seconds: float | None = None
    itl_p95_upper_seconds: float | None = None
    ttft_seconds: float | None = None
    ttft_upper_seconds: float | None = None
    inverse_throughput_seconds: float | None = None
    throughput_tokens_per_second: float | None = None
    running_sequences: float | None = None
    max_sequences: int | None = None
    idle_watts: float | None = None
    worst_case_power_watts: float | None = None
    out_of_range: tuple[str, ...] = ()


#: Why one question of many has no answer.
Refused = InvalidInput | OutOfPredictorRange


@dataclass(frozen=True, slots=True)
class Explanation:
    """A prediction with what it rests on.

    ``power_terms_watts`` add up to the power; ``itl_factors`` multiply to the ITL (their ``base`` is in
    seconds). Of the recipe ``wattgpu`` both are the trees', of the load level nearest to the workload, even
    where a measured value is answered. ``step_seconds`` are the parts of a simulated step.
    """

    prediction: Prediction
    level: str
    power_terms_watts: Mapping[str, float]
    itl_factors: Mapping[str, float]
    step_seconds: Mapping[str, float] = field(default_factory=dict)


class ServedRecipe(Protocol):
    """A recipe loaded from its artifacts."""

    @property
    def name(self) -> str:
        """The recipe's name, as in its manifest."""

    def forecast(self, query: Query) -> Prediction:
        """Answer, or raise ``OutOfPredictorRange`` naming the field."""

    def explain(self, query: Query) -> Explanation:
        """Answer and say what the answer rests on."""


@runtime_checkable
class FullRecipe(ServedRecipe, Protocol):
    """A recipe that answers many at once, predicts percentiles and first tokens, and heeds telemetry."""

    @property
    def anchors(self) -> AnchorState:
        """The evidence that answers are anchored to."""

    def forecast_many(self, queries: Sequence[Query]) -> list[Prediction | Refused]:
        """Answer each, or say why not, in order."""

    def learn(self, anchors: AnchorState, query: Query) -> AnchorState:
        """Evidence with what ``query.observed`` adds."""

    def anchored_to(self, anchors: AnchorState) -> FullRecipe:
        """The same recipe with other evidence."""
