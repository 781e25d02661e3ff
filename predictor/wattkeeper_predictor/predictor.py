"""The one door to predictions: load once, then ask for watts and latency.

``Predictor`` checks the input, asks the trained recipe, and puts bounds on the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .errors import ArtifactError
from .specs import GpuSpec, ModelSpec, ServingConfig, Workload

Regime = Literal["Measured", "UnseenModel", "UnseenGpu"]
Statistic = Literal["Mean", "P95"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One answer, for one replica on one GPU.

    ``*_upper_*`` are one-sided bounds: the true value stays below with the confidence that was asked.
    ``itl_seconds`` is the mean time between two tokens of a request (Server), or the inverse of the
    whole engine's throughput (Offline: what the WattGPU paper calls ITL; no user sees it).
    """

    power_watts: float
    power_upper_watts: float
    itl_seconds: float
    itl_upper_seconds: float
    energy_per_token_joules: float
    regime: Regime
    notes: tuple[str, ...] = ()


class Predictor:
    """A loaded recipe. Immutable and free of I/O after ``load``."""

    @classmethod
    def load(cls, path: Path | str | None = None) -> Predictor:
        """Load artifacts from a directory, by default those shipped with the package.

        Raises ``ArtifactError`` if they are missing or damaged.
        """
        raise ArtifactError(f"no trained artifacts in {path or 'the package'}; train them first")

    def predict(  # noqa: PLR0913 - the four inputs and how sure to be
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        workload: Workload,
        serving: ServingConfig | None = None,
        *,
        confidence_percent: float = 90,
        statistic: Statistic = "Mean",
    ) -> Prediction:
        """Predict; raises ``InvalidInput`` or ``OutOfPredictorRange`` naming the field."""
        raise ArtifactError("no trained artifacts are loaded; call Predictor.load")
