"""The text of a Hugging Face config.json, as users hand it in: parsed strictly, or one clear error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from wattkeeper.api.errors import FieldError, SpecErrors
from wattkeeper.api.v1alpha1.architecture import Architecture

_MAX_CHARACTERS = 1_048_576  # what a ConfigMap can hold

#: Names of the inline architecture's fields in a config.json; all are those of Hugging Face.
_ARCHITECTURE_KEYS = tuple(Architecture.model_fields)


def config_from_text(text: str, field: str = "spec.model.configMapRef.key") -> dict[str, Any]:
    """The config.json as a mapping.

    Raises SpecErrors, naming `field`, for what is no JSON object and for NaN or infinite numbers, which
    Python's parser would let pass.
    """
    if len(text) > _MAX_CHARACTERS:
        raise _error(
            field, f"longer than {_MAX_CHARACTERS} characters: hand in the model's config.json alone"
        )
    try:
        config = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _error(
            field, f"no valid JSON ({error.msg} at {where}): copy the model's config.json unchanged"
        ) from None
    except ValueError as error:
        raise _error(field, f"no usable JSON ({error}): copy the model's config.json unchanged") from None
    except RecursionError:
        raise _error(field, "nested too deep: copy the model's config.json unchanged") from None
    if not isinstance(config, dict):
        raise _error(field, "no JSON object: a config.json begins with '{'")
    return config


def config_from_architecture(architecture: Architecture) -> dict[str, Any]:
    """The inline architecture as a config.json would say it; what the user left out is left out."""
    values: Mapping[str, Any] = architecture.model_dump(include=set(_ARCHITECTURE_KEYS), exclude_none=True)
    return {key: values[key] for key in _ARCHITECTURE_KEYS if key in values}


def _error(field: str, message: str) -> SpecErrors:
    return SpecErrors([FieldError(field, message)], reason="InvalidModelConfig")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large")
    return value
