"""The recipe at work: questions in, answers with bounds and reasons out."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

from wattkeeper_predictor.anchoring import AnchorState, priors_from
from wattkeeper_predictor.artifact import Artifact
from wattkeeper_predictor.engine.batch import steady
from wattkeeper_predictor.engine.columns import Columns, Question, columns_of
from wattkeeper_predictor.engine.step import TERM_NAMES
from wattkeeper_predictor.errors import ArtifactError
from wattkeeper_predictor.prediction import Explanation, Prediction, Query, Refused

from .answers import Answers
from .envelope import Checks, overloaded
from .figures import Known, figures, plain
from .fitted import from_parts
from .intervals import Intervals
from .recall import architecture, as_trained, known_of, trained_ratios
from .telemetry import anchored, errors_of


class WattkeeperRecipe:
    """The recipe loaded from its artifact, with the telemetry evidence it is anchored to. Immutable."""

    name = "wattkeeper"

    def __init__(self, artifact: Artifact, anchors: AnchorState | None = None) -> None:
        """Raises ``ArtifactError`` if the manifest lacks what it must hold."""
        manifest = artifact.manifest
        self._fitted = from_parts(manifest, artifact.files)
        try:
            self._intervals = Intervals(manifest["intervals"])
            self._answers = Answers(self._fitted, self._intervals, manifest["ranges"])
            self._fresh = AnchorState(priors_from(manifest["anchoring"]), frozenset(self._fitted.gpus))
        except (KeyError, TypeError) as broken:
            raise ArtifactError(f"the artifact is damaged ({broken!r}); train again or reinstall") from broken
        self._anchors = anchors or self._fresh
        self._ratios = trained_ratios(self._fitted)

    @property
    def anchors(self) -> AnchorState:
        """The evidence that answers are anchored to."""
        return self._anchors

    def anchored_to(self, anchors: AnchorState) -> WattkeeperRecipe:
        """The same recipe with other evidence."""
        other = copy.copy(self)
        other._anchors = anchors
        return other

    def fresh_anchors(self) -> AnchorState:
        """No evidence yet, with this artifact's priors."""
        return self._fresh

    def forecast(self, query: Query) -> Prediction:
        """Answer one question; raises ``OutOfPredictorRange`` or ``InvalidInput`` naming the field."""
        [answer] = self.forecast_many([query])
        if isinstance(answer, Prediction):
            return answer
        raise answer

    def forecast_many(self, queries: Sequence[Query]) -> list[Prediction | Refused]:
        """Answer each question, or say why not, in order."""
        checks = Checks()
        answers: list[Prediction | Refused | None] = [checks.refusal(query) for query in queries]
        asked = [place for place, answer in enumerate(answers) if answer is None]
        if asked:
            picked = [queries[place] for place in asked]
            c, known, names = self._recall(picked)
            figured = figures(self._fitted, c, known)
            rows = self._answers.rows(picked, c, figured, names, self._anchors, checks)
            for place, query, overload, demand, row in zip(
                asked, picked, figured.overload.tolist(), figured.demand.tolist(), rows, strict=True
            ):
                answers[place] = overloaded(query, demand, demand / overload) if overload >= 1 else row
        return [answer for answer in answers if answer is not None]

    def learn(self, anchors: AnchorState, query: Query) -> AnchorState:
        """Evidence with what ``query.observed`` adds, against the prediction without any evidence."""
        if query.observed is None:
            return anchors
        bare = replace(query, observed=None)
        [gpu], [model] = self._names([bare])
        c = as_trained(columns_of([_question(bare)]), [gpu], self._ratios)
        figured = figures(self._fitted, c, known_of(self._fitted, c, [gpu], [model]))
        for quantity, error in errors_of(query.observed, c, figured).items():
            anchors = anchors.learn(quantity, query.gpu.name, query.model.id, error, query.observed.samples)
        return anchors

    def explain(self, query: Query) -> Explanation:
        """The answer, the parts of its step, and what corrects it."""
        prediction = self.forecast(query)
        c, known, _ = self._recall([query])
        figured = figures(self._fitted, c, known)
        regime = "offline" if c.offline[0] and plain(c)[0] else "online"
        state = steady(self._fitted.offline if regime == "offline" else self._fitted.online, c)
        gpus = float(c.gpus[0])
        telemetry = float(known.itl_factor[0])
        return Explanation(
            prediction=prediction,
            level=f"{regime}, {float(state.running[0]):.3g} sequences a step",
            power_terms_watts={
                "idle": float(figured.idle_watts[0]) * gpus,
                "work": float(figured.power[0] - figured.idle_watts[0]) * gpus,
            },
            itl_factors={
                "base": float(figured.simulated[0]),
                "correction": math.exp(float(figured.correction[0]) - telemetry),
                "telemetry": math.exp(telemetry),
            },
            step_seconds={name: float(getattr(state.terms, name)[0]) for name in TERM_NAMES},
        )

    def _recall(self, queries: Sequence[Query]) -> tuple[Columns, Known, tuple[list[str], list[str]]]:
        gpus, models = self._names(queries)
        c = as_trained(columns_of([_question(query) for query in queries]), gpus, self._ratios)
        known = known_of(self._fitted, c, gpus, models)
        return c, anchored(known, queries, c, self._fitted, self._anchors), (gpus, models)

    def _names(self, queries: Sequence[Query]) -> tuple[list[str], list[str]]:
        """Names that stand for what was trained, '' for others; looked up once a distinct object."""
        gpus: dict[int, str] = {}
        models: dict[int, str] = {}
        for query in queries:
            if id(query.gpu) not in gpus:
                gpus[id(query.gpu)] = query.gpu.name if query.gpu.name in self._fitted.gpus else ""
            if id(query.model) not in models:
                trained = self._fitted.models.get(query.model.id)
                same = trained is not None and trained.architecture == architecture(query.model)
                models[id(query.model)] = query.model.id if same else ""
        return [gpus[id(query.gpu)] for query in queries], [models[id(query.model)] for query in queries]


def _question(query: Query) -> Question:
    return Question(query.model, query.gpu, query.serving, query.workload)
