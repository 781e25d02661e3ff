"""Typed look-up in a Hugging Face config.json, under the several spellings that families use.

Errors: ``InvalidInput`` with ``model.config.<key>`` as the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import InvalidInput, shown

_LARGEST_FACTOR = 1e6
# Far above any model's sizes, and small enough for their products to be numbers.
_LARGEST_WHOLE = 10**12


class Reader:
    """Typed look-up under several spellings; remembers nothing, raises ``InvalidInput``."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, int]) -> None:
        self._config = config
        self._defaults = defaults

    def raw(self, *names: str) -> tuple[str, Any]:
        """The first name that has a value, with it; the family's default comes last."""
        for name in names:
            if self._config.get(name) is not None:
                return name, self._config[name]
        for name in names:
            if name in self._defaults:
                return name, self._defaults[name]
        return names[0], None

    def optional(self, *names: str) -> int | None:
        """A whole number of at least 1, or None where absent."""
        name, value = self.raw(*names)
        return None if value is None else whole(name, value, least=1)

    def count(self, *names: str) -> int:
        """A whole number of at least 1 that must be there."""
        value = self.optional(*names)
        if value is None:
            raise InvalidInput(f"model.config.{names[0]}", "missing; add it to the config.json")
        return value

    def factor(self, name: str) -> float:
        """A finite number of at least 1; 1 where absent."""
        value = self._config.get(name, 1.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < _LARGEST_FACTOR:
            raise InvalidInput(
                f"model.config.{name}", f"{shown(value)} isn't a factor of at least 1; mend it"
            )
        return float(value)

    def part(self, *names: str) -> Mapping[str, Any] | None:
        """An object, or None where absent."""
        name, value = self.raw(*names)
        if value is not None and not isinstance(value, Mapping):
            raise InvalidInput(f"model.config.{name}", f"{shown(value)} isn't an object; mend it")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(f"model.config.{name}", f"{shown(value)} isn't true or false")
        return value


def whole(name: str, value: Any, *, least: int) -> int:
    """``value`` as a whole number from ``least`` on; infinities and NaN are none."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= value <= _LARGEST_WHOLE or value != int(value):
        raise InvalidInput(
            f"model.config.{name}",
            f"{shown(value)} isn't a whole number from {least} to {_LARGEST_WHOLE:.0e}; mend it",
        )
    return int(value)
