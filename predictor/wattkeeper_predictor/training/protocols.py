"""How data is split to measure what a model does on what it has not seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.errors import InvalidInput

from .runs import Run

Protocol = Literal["cv", "logo", "lolo"]
PROTOCOLS: tuple[Protocol, ...] = ("cv", "logo", "lolo")
_FOLDS = 5
_SEED = 42

Mask = NDArray[np.bool_]


def held_out(runs: Sequence[Run], protocol: Protocol) -> Iterator[Mask]:
    """Masks of the test rows, one a fold: shuffled fifths (cv), each GPU (logo), each LLM (lolo)."""
    if protocol == "cv":
        order = np.random.default_rng(_SEED).permutation(len(runs))
        for part in np.array_split(order, _FOLDS):
            mask = np.zeros(len(runs), dtype=bool)
            mask[part] = True
            yield mask
        return
    groups = np.array([run.gpu if protocol == "logo" else run.model for run in runs])
    names = sorted(set(groups.tolist()))
    if len(names) < 2:
        raise InvalidInput(
            "protocol", f"{protocol} needs at least two groups, but the runs have {len(names)}"
        )
    for name in names:
        yield groups == name


def groups_of(runs: Sequence[Run], attribute: str) -> NDArray[Any]:
    """One value a run, for grouping."""
    return np.array([getattr(run, attribute) for run in runs])
