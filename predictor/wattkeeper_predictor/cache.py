"""Predictions kept by model, GPU, serving configuration and load, for callers that ask about a fleet again.

The load counts in steps of one per cent: a question is answered for the upper end of its step, so a slightly
other rate finds the same answer, which errs on the side of more load. Entries go by the identity of the
specifications (and keep them alive), since comparing a thousand of them costs more than a look-up may.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from .prediction import Prediction, Query, Refused
from .predictor import Predictor

_STEP = math.log(1.01)
_MOST_ENTRIES = 65_536
_Key = tuple[int, int, int, int | None, int, int, float]


class CachedPredictor:
    """Many predictions at once through a cache. Not safe to share between threads."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._kept: dict[_Key, tuple[Query, Prediction | Refused]] = {}

    def predict_many(self, queries: Sequence[Query]) -> list[Prediction | Refused]:
        """As ``Predictor.predict_many``; queries with ``observed`` are answered afresh."""
        keys = [_key(query) for query in queries]
        kept = self._kept
        missing = [at for at, key in enumerate(keys) if key not in kept or queries[at].observed is not None]
        if missing:
            if len(kept) + len(missing) > _MOST_ENTRIES:
                kept.clear()
                missing = list(range(len(queries)))
            answers = self._predictor.predict_many([_at_step(queries[at]) for at in missing])
            fresh = dict(zip(missing, answers, strict=True))
            for at, answer in fresh.items():
                if queries[at].observed is None:
                    kept[keys[at]] = (queries[at], answer)
            return [fresh[at] if at in fresh else kept[key][1] for at, key in enumerate(keys)]
        return [kept[key][1] for key in keys]


def _key(query: Query) -> _Key:
    work = query.workload
    rate = work.requests_per_second
    step = None if work.scenario == "Offline" or rate is None else math.ceil(math.log(rate) / _STEP - 1e-9)
    return (
        id(query.model),
        id(query.gpu),
        id(query.serving),
        step,
        work.prompt_tokens,
        work.output_tokens,
        query.confidence_percent,
    )


def _at_step(query: Query) -> Query:
    """The query at the upper end of its step of load; as it is where telemetry was read at its very load."""
    step = _key(query)[3]
    if step is None or query.observed is not None:
        return query
    return replace(query, workload=replace(query.workload, requests_per_second=math.exp(step * _STEP)))
