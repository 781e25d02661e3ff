"""What is wrong with a resource: every error of it, each with its field and the cure.

ValueError
├── quantities.QuantityError   one text is no quantity or duration
└── SpecErrors                 a resource can't be carried out: permanent until the user changes it
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_SHOWN = 40  # characters of a wrong value that a message repeats
_FEW = 2  # required fields that an example has


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error: the field's path as users write it (`spec.sla.interTokenLatency`) and what to do."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class SpecErrors(ValueError):  # noqa: N818 - it holds several
    """All errors of one resource. `reason` is the condition's, CamelCase."""

    def __init__(self, errors: Iterable[FieldError], *, reason: str = "InvalidSpec") -> None:
        self.errors: tuple[FieldError, ...] = tuple(errors)
        self.reason = reason
        super().__init__("; ".join(map(str, self.errors)))


def join_path(parent: str, *parts: str | int) -> str:
    """`join_path("spec", "args", 0)` → `spec.args[0]`; keys that aren't plain words go in brackets."""
    path = parent
    for part in parts:
        plain = isinstance(part, str) and part.replace("-", "").replace("_", "").isalnum()
        path += (f".{part}" if path else str(part)) if plain else f"[{part}]"
    return path


def field_errors(error: ValidationError, model: type[BaseModel], path: str) -> list[FieldError]:
    """The errors of a pydantic validation in the words of this API, in the order of the fields."""
    found: list[FieldError] = []
    for detail in error.errors(include_url=False):
        where = join_path(path, *(part for part in detail["loc"] if part != "[key]"))
        context = detail.get("ctx", {})
        if detail["type"] == "broken_rules":
            found += [FieldError(join_path(where, *sub), text) for sub, text in context["broken"]]
        elif detail["type"] == "missing":
            found.append(FieldError(where, _missing_field(model, detail["loc"])))
        elif detail["type"] == "extra_forbidden":
            found.append(FieldError(where, _unknown_field(model, detail["loc"])))
        elif detail["type"] == "model_type":
            found.append(FieldError(where, _no_map(model, detail["loc"], detail["input"])))
        else:
            found.append(FieldError(where, _words(detail["type"], context, detail["msg"], detail["input"])))
    return found


def shorten(value: Any) -> str:
    """A wrong value as a message repeats it: its own spelling, on one line, not too long.

    Its cost is bounded too: YAML's aliases make a value of gigabytes out of a few lines.
    """
    text = " ".join(_SPELLING.repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class _Spelling(reprlib.Repr):
    """Spells the beginning of a value, far enough to fill a message."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxstring = self.maxlong = self.maxother = 4 * _SHOWN  # what is longer is cut in its middle

    def repr_int(self, value: int, level: int) -> str:
        try:
            return super().repr_int(value, level)
        except ValueError:  # more digits than Python cares to spell
            return f"an integer of {value.bit_length()} bits"


_SPELLING = _Spelling()


_TYPES = {
    "bool_type": "true or false",
    "dict_type": "a map",
    "int_type": "an integer",
    "list_type": "a list",
    "string_type": "a string",
}
_BOUNDS = {
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "literal_error": "must be one of {expected}",
}


def _words(kind: str, context: dict[str, Any], message: str, value: Any) -> str:
    if kind == "broken_text":
        return f"{message}; got {shorten(value)}"
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}; got {shorten(value)}"
    if kind in _BOUNDS:
        return f"{_BOUNDS[kind].format(**context)}; got {shorten(value)}"
    return f"{message}; got {shorten(value)}"


def _no_map(model: type[BaseModel], loc: Sequence[str | int], value: Any) -> str:
    """What to say of a value in the place of an object: how a simple one is written."""
    wanted = _model_at(model, loc)
    required = [name for name, field in _fields(wanted).items() if field.is_required()] if wanted else []
    example = (
        f" such as {{{', '.join(f'{name}: …' for name in required)}}}" if 0 < len(required) <= _FEW else ""
    )
    return f"must be a map{example}; got {shorten(value)}"


def _missing_field(model: type[BaseModel], loc: Sequence[str | int]) -> str:
    """What to say of a required field that isn't there: what it is."""
    owner = _model_at(model, loc[:-1])
    fields = _fields(owner) if owner else {}
    described = fields[str(loc[-1])].description if str(loc[-1]) in fields else None
    return f"is required: {described}" if described else "is required"


def _unknown_field(model: type[BaseModel], loc: Sequence[str | int]) -> str:
    """What to say of a field that isn't there: the nearest one that is."""
    owner = _model_at(model, loc[:-1])
    names = list(_fields(owner)) if owner else []
    near = difflib.get_close_matches(str(loc[-1]), names, n=1)
    if near:
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; known here: {', '.join(sorted(names))}"


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_at(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel] | None:
    """The model of the object at this place."""
    current: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, str) and current is not None:
            field = _fields(current).get(part)
            current = _model_within(field.annotation) if field else None
    return current


def _model_within(annotation: Any) -> type[BaseModel] | None:
    """The model inside `X`, `X | None` or `list[X]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        model = _model_within(inner)
        if model is not None:
            return model
    return None
