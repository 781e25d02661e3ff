"""The one door to predictions: load once, then ask for watts and latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from .anchoring import Drift
from .artifact import read_artifact
from .conformal import LEAST_CONFIDENCE_PERCENT, MOST_CONFIDENCE_PERCENT
from .errors import InvalidInput, OutOfPredictorRange
from .observation import Observed
from .prediction import Explanation, FullRecipe, Prediction, Query, Refused, ServedRecipe, Statistic
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

    def predict(  # noqa: PLR0913 - the four inputs, how sure to be, of what, and what was read
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        workload: Workload,
        serving: ServingConfig | None = None,
        *,
        confidence_percent: float = 90,
        statistic: Statistic = "Mean",
        time_to_first_token: bool = False,
        observed: Observed | None = None,
    ) -> Prediction:
        """Predict for one replica.

        ``statistic`` and ``time_to_first_token`` say what the caller's SLA speaks of: a recipe that doesn't
        predict it refuses. ``observed`` anchors the answer to telemetry, on top of what was learnt. Raises
        ``InvalidInput`` where no recipe could answer, ``OutOfPredictorRange`` where this one can't; both name
        the field.
        """
        self._check_wanted(statistic, time_to_first_token)
        query = replace(query_of(model, gpu, workload, serving, confidence_percent), observed=observed)
        if observed is None:
            return self._recipe.forecast(query)
        recipe = self._full("observed")
        return recipe.anchored_to(recipe.learn(recipe.anchors, query)).forecast(query)

    def predict_many(self, queries: Sequence[Query]) -> list[Prediction | Refused]:
        """Answer each query, or give the error that ``predict`` would raise, in order; much faster."""
        if isinstance(self._recipe, FullRecipe):
            return self._recipe.forecast_many(queries)
        answers: list[Prediction | Refused] = []
        for query in queries:
            try:
                answers.append(self._recipe.forecast(query))
            except (InvalidInput, OutOfPredictorRange) as refused:
                answers.append(refused)
        return answers

    def explain(
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        workload: Workload,
        serving: ServingConfig | None = None,
        *,
        confidence_percent: float = 90,
    ) -> Explanation:
        """The prediction and what it rests on; raises as ``predict`` does."""
        return self._recipe.explain(query_of(model, gpu, workload, serving, confidence_percent))

    def learn(self, query: Query) -> Predictor:
        """A predictor that has learnt what ``query.observed`` says; raises where the recipe can't learn."""
        recipe = self._full("observed")
        return Predictor(recipe.anchored_to(recipe.learn(recipe.anchors, query)))

    def drifts(self) -> tuple[Drift, ...]:
        """Where telemetry has left what was learnt from it."""
        return self._recipe.anchors.drifts() if isinstance(self._recipe, FullRecipe) else ()

    def save_anchors(self) -> str:
        """What was learnt, as JSON; see ``with_anchors``."""
        return self._full("anchors").anchors.to_json()

    def with_anchors(self, saved: str) -> Predictor:
        """A predictor with what ``save_anchors`` gave; raises ``InvalidInput`` if it is anything else."""
        recipe = self._full("anchors")
        return Predictor(recipe.anchored_to(recipe.anchors.with_json(saved)))

    def _full(self, field: str) -> FullRecipe:
        if isinstance(self._recipe, FullRecipe):
            return self._recipe
        raise OutOfPredictorRange(field, f"the recipe {self._recipe.name} doesn't learn; use another")

    def _check_wanted(self, statistic: str, time_to_first_token: bool) -> None:
        if statistic not in ("Mean", "P95"):
            raise InvalidInput("sla.statistic", f"{statistic!r} isn't a statistic; choose 'Mean' or 'P95'")
        if isinstance(self._recipe, FullRecipe):
            return
        if statistic != "Mean":
            raise OutOfPredictorRange(
                "sla.statistic",
                f"{statistic} isn't predicted; the recipe is trained on means, so choose 'Mean'",
            )
        if time_to_first_token:
            raise OutOfPredictorRange(
                "sla.time_to_first_token",
                "isn't predicted; the training data has no first-token times, so leave it out",
            )


def default_artifacts(recipe: str = DEFAULT_RECIPE) -> Path:
    """Where the package keeps the artifacts of a recipe."""
    return Path(str(resources.files(__package__) / "artifacts" / recipe))


def query_of(
    model: ModelSpec,
    gpu: GpuSpec,
    workload: Workload,
    serving: ServingConfig | None = None,
    confidence_percent: float = 90,
) -> Query:
    """A query; raises ``InvalidInput`` if the confidence is out of bounds."""
    sound = isinstance(confidence_percent, (int, float)) and math.isfinite(confidence_percent)
    if not sound or not LEAST_CONFIDENCE_PERCENT <= confidence_percent <= MOST_CONFIDENCE_PERCENT:
        raise InvalidInput(
            "sla.confidence_percent",
            f"{confidence_percent!r} is out of bounds; choose {LEAST_CONFIDENCE_PERCENT} to "
            f"{MOST_CONFIDENCE_PERCENT}",
        )
    return Query(model, gpu, workload, serving or ServingConfig(), confidence_percent)
