"""What the API's models are made of: each bound and rule said once, for Python and for the API server.

Every annotation here does two things: it validates in Python (for `wattkeeper plan`, and for resources
that an older CRD let pass), and it writes itself into the schema as CEL, so that the API server refuses
the same input with the same words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from wattkeeper.api.quantities import (
    DURATION_PATTERN,
    MAX_LENGTH,
    QuantityError,
    parse_duration,
    parse_quantity,
)

VALIDATIONS = "x-kubernetes-validations"
INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVE_UNKNOWN = "x-kubernetes-preserve-unknown-fields"


def cel_string(text: str) -> str:
    """A CEL string literal (JSON's escapes are CEL's)."""
    return json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule between the fields of one object: in CEL, and as the same test in Python.

    `at` names the field that the message is about. `holds` is None for rules that only the API server can
    check (transitions).
    """

    cel: str
    message: str
    at: tuple[str, ...] = ()
    holds: Callable[[Any], bool] | None = None

    def to_schema(self) -> dict[str, str]:
        schema = {"rule": self.cel, "message": self.message}
        if self.at:
            schema["fieldPath"] = "." + ".".join(self.at)
        return schema


class ApiModel(BaseModel):
    """Base of all objects of the API: camelCase names, no silent conversions, rules of its own."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_absent(cls, value: Any) -> Any:
        """A field that is null takes its default: the API server prunes it, as in `parking:` with no more."""
        if not isinstance(value, Mapping):
            return value
        names = {field.alias or name for name, field in cls.model_fields.items()}
        return {key: each for key, each in value.items() if each is not None or key not in names}

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        broken = [(rule.at, rule.message) for rule in self.rules if rule.holds and not rule.holds(self)]
        if broken:
            raise PydanticCustomError("broken_rules", "rules of the object", {"broken": broken})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        for name, field in cls.model_fields.items():
            made = field.default_factory
            if isinstance(made, type) and issubclass(made, ApiModel):
                # The API server fills in the defaults within an object only where the object is.
                schema["properties"][field.alias or name]["default"] = {}
        if cls.rules:
            schema[VALIDATIONS] = [rule.to_schema() for rule in cls.rules]
        return schema


class _Text:
    """Base of the annotations of strings that CEL checks: `check` raises ValueError, `cel` is its twin."""

    max_length: int

    @property
    def cel(self) -> str:
        raise NotImplementedError

    @property
    def message(self) -> str:
        raise NotImplementedError

    def accepts(self, value: Any) -> bool:
        raise NotImplementedError

    def _check(self, value: Any) -> Any:
        if not self.accepts(value):
            raise PydanticCustomError("broken_text", "{message}", {"message": self.message})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.max_length, VALIDATIONS: [self._rule()]}

    def _rule(self) -> dict[str, str]:
        return {"rule": self.cel, "message": self.message}


@dataclass(frozen=True)
class Text(_Text):
    """A string of a pattern (anchored, in the common part of RE2 and Python's re), with words for it."""

    pattern: str
    words: str
    max_length: int

    @property
    def cel(self) -> str:
        return f"self.matches({cel_string(self.pattern)})"

    @property
    def message(self) -> str:
        return f"must be {self.words}, at most {self.max_length} characters"

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, str) or len(value) > self.max_length or "\n" in value:
            return False
        return re.search(self.pattern, value, re.ASCII) is not None


@dataclass(frozen=True)
class DurationRange(_Text):
    """A duration within bounds, as text: `Annotated[str, DurationRange("100us", "60s", "50ms")]`."""

    minimum: str
    maximum: str
    example: str
    max_length: int = MAX_LENGTH

    @property
    def cel(self) -> str:
        return (
            f"self.matches({cel_string(DURATION_PATTERN)})"
            f" && duration(self) >= duration({cel_string(self.minimum)})"
            f" && duration(self) <= duration({cel_string(self.maximum)})"
        )

    @property
    def message(self) -> str:
        return f"must be a duration from {self.minimum} to {self.maximum}, such as {self.example}"

    def accepts(self, value: Any) -> bool:
        try:
            seconds = parse_duration(value, "")
        except QuantityError:
            return False
        return parse_duration(self.minimum, "") <= seconds <= parse_duration(self.maximum, "")


@dataclass(frozen=True)
class QuantityRange(_Text):
    """A quantity within bounds, an integer or a string: `Annotated[int | str, QuantityRange(…)]`."""

    minimum: str
    maximum: str
    example: str
    max_length: int = MAX_LENGTH

    @property
    def cel(self) -> str:
        return (
            "isQuantity(string(self))"
            f" && quantity(string(self)).compareTo(quantity({cel_string(self.minimum)})) >= 0"
            f" && quantity(string(self)).compareTo(quantity({cel_string(self.maximum)})) <= 0"
        )

    @property
    def message(self) -> str:
        return f"must be a quantity from {self.minimum} to {self.maximum}, such as {self.example}"

    def accepts(self, value: Any) -> bool:
        try:
            number = parse_quantity(value, "")
        except QuantityError:
            return False
        return parse_quantity(self.minimum, "") <= number <= parse_quantity(self.maximum, "")

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            INT_OR_STRING: True,
            "maxLength": self.max_length,
            VALIDATIONS: [self._rule()],
        }


@dataclass(frozen=True)
class Schema:
    """Replaces or extends a field's schema where pydantic can't say it: `Annotated[X, Schema({...})]`."""

    extra: dict[str, Any]
    replace: bool = False

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.extra) if self.replace else {**handler(core), **self.extra}


def list_map(*keys: str) -> Schema:
    """A list whose entries server-side apply tells apart by `keys`."""
    return Schema({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


ATOMIC_LIST = Schema({"x-kubernetes-list-type": "atomic"})
ATOMIC_MAP = Schema({"x-kubernetes-map-type": "atomic"})
ANY_OBJECT = Schema({"type": "object", PRESERVE_UNKNOWN: True}, replace=True)
