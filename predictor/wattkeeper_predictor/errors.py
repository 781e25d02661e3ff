"""What can go wrong in a prediction, as types.

::

    PredictorError
    ├── InvalidInput            a value that no model or GPU can have; mend the input
    │   ├── UnknownModel        the model's id isn't in the catalogue
    │   └── UnknownGpu          the GPU's name isn't in the catalogue
    ├── OutOfPredictorRange     a sound value that the trained recipe can't speak about
    └── ArtifactError           the trained files are missing, damaged or of another version

Each message says what was read and what to do about it. ``field`` is the dotted path of the
input (``workload.requests_per_second``), so that a caller whose users write other names can map it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any


class PredictorError(Exception):
    """Base of everything this package raises on purpose."""


class InvalidInput(PredictorError):  # noqa: N818 - the condition reason users read
    """A value is malformed or contradicts another one; no recipe can use it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class OutOfPredictorRange(PredictorError):  # noqa: N818 - the condition reason users read
    """The input is sound, but the recipe was not trained on anything like it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class UnknownModel(InvalidInput):
    """The catalogue holds no model of this id."""

    def __init__(self, model_id: str, near: Iterable[str] = ()) -> None:
        hint = _did_you_mean(near)
        super().__init__(
            "model.id",
            f"{model_id!r} isn't in the catalogue{hint}; give the model's architecture inline, "
            "or its Hugging Face config.json by reference",
        )
        self.model_id = model_id


class UnknownGpu(InvalidInput):
    """The catalogue holds no GPU of this name."""

    def __init__(self, name: str, near: Iterable[str] = (), candidates: Iterable[str] = ()) -> None:
        several = list(candidates)
        if several:
            message = f"{name!r} stands for several GPUs; name one of {', '.join(several)}"
        else:
            message = (
                f"{name!r} isn't in the catalogue{_did_you_mean(near)}; give the GPU's memory, bandwidth, "
                "dense FP16 rate, TDP and compute capability from its data sheet"
            )
        super().__init__("gpu", message)
        self.name = name


class ArtifactError(PredictorError):
    """The trained artifacts can't be used; the message names the file and the cure."""


def _did_you_mean(near: Iterable[str]) -> str:
    names = list(near)
    return f" (near: {', '.join(names)})" if names else ""


_SPELLING = reprlib.Repr()
_SPELLING.maxlevel = 2
_SPELLING.maxstring = _SPELLING.maxlong = _SPELLING.maxother = 60


def shown(value: Any) -> str:
    """A wrong value as a message repeats it: its own spelling, cut in the middle where it is long."""
    return _SPELLING.repr(value)
