"""The one door to predictions: load once, then ask for watts and latency."""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path

from .artifact import read_artifact
from .conformal import LEAST_CONFIDENCE_PERCENT, MOST_CONFIDENCE_PERCENT
from .errors import InvalidInput, OutOfPredictorRange
from .prediction import Explanation, Prediction, Query, ServedRecipe, Statistic
from .specs import GpuSpec, ModelSpec, ServingConfig, Workload

DEFAULT_RECIPE = "wattgpu"


class Predictor:
    """A loaded recipe behind one interface. Immutable, free of I/O after ``load``, safe to share."""

    def __init__(self, recipe: ServedRecipe) -> None:
        self._recipe = recipe

    @classmethod
    def load(cls, path: Path | str | None = None) -> Predictor:
        """Load a directory of artifacts, by default those shipped with the package.

        Raises ``ArtifactError`` if they are missing, damaged or of another version.
        """
        from .recipes.registry import serve  # noqa: PLC0415 - XGBoost is loaded only where it is needed

        return cls(serve(read_artifact(default_artifacts() if path is None else Path(path))))

    @property
    def recipe(self) -> str:
        """The name of the loaded recipe."""
        return self._recipe.name

    def predict(  # noqa: PLR0913 - the four inputs, how sure to be, and of what
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        workload: Workload,
        serving: ServingConfig | None = None,
        *,
        confidence_percent: float = 90,
        statistic: Statistic = "Mean",
        time_to_first_token: bool = False,
    ) -> Prediction:
        """Predict for one replica.

        ``statistic`` and ``time_to_first_token`` say what the caller's SLA speaks of; this recipe
        predicts the mean inter-token latency only. Raises ``InvalidInput`` where no recipe could answer,
        ``OutOfPredictorRange`` where this one can't; both name the field.
        """
        _check_wanted(statistic, time_to_first_token)
        return self._recipe.forecast(_query(model, gpu, workload, serving, confidence_percent))

    def explain(
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        workload: Workload,
        serving: ServingConfig | None = None,
        *,
        confidence_percent: float = 90,
    ) -> Explanation:
        """The prediction and what each feature adds to it; raises as ``predict`` does."""
        return self._recipe.explain(_query(model, gpu, workload, serving, confidence_percent))


def default_artifacts() -> Path:
    """Where the package keeps the artifacts of its default recipe."""
    return Path(str(resources.files(__package__) / "artifacts" / DEFAULT_RECIPE))


def _check_wanted(statistic: str, time_to_first_token: bool) -> None:
    if statistic not in ("Mean", "P95"):
        raise InvalidInput("sla.statistic", f"{statistic!r} isn't a statistic; choose 'Mean'")
    if statistic != "Mean":
        raise OutOfPredictorRange(
            "sla.statistic", f"{statistic} isn't predicted; the recipe is trained on means, so choose 'Mean'"
        )
    if time_to_first_token:
        raise OutOfPredictorRange(
            "sla.time_to_first_token",
            "isn't predicted; the training data has no first-token times, so leave it out",
        )


def _query(
    model: ModelSpec,
    gpu: GpuSpec,
    workload: Workload,
    serving: ServingConfig | None,
    confidence_percent: float,
) -> Query:
    sound = isinstance(confidence_percent, (int, float)) and math.isfinite(confidence_percent)
    if not sound or not LEAST_CONFIDENCE_PERCENT <= confidence_percent <= MOST_CONFIDENCE_PERCENT:
        raise InvalidInput(
            "sla.confidence_percent",
            f"{confidence_percent!r} is out of bounds; choose {LEAST_CONFIDENCE_PERCENT} to "
            f"{MOST_CONFIDENCE_PERCENT}",
        )
    return Query(model, gpu, workload, serving or ServingConfig(), confidence_percent)
