"""Figures as messages show them."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal

_GIB = 1024**3
_DIGITS = 3


def gib(size_bytes: float) -> str:
    """Bytes in GiB with one decimal: `21.6 GiB`."""
    return f"{size_bytes / _GIB:.1f} GiB"


def watts(power_watts: float, *, upward: bool = False) -> str:
    """Whole watts: `71 W`; `upward` for an upper bound, which is never shown below itself."""
    return f"{math.ceil(power_watts) if upward else round(power_watts)} W"


def latency(seconds: float, *, upward: bool = False) -> str:
    """Milliseconds with three significant digits, from one second on seconds; `upward` as in `watts`."""
    milliseconds = _digits(seconds * 1000, upward)
    return f"{milliseconds} ms" if float(milliseconds) < 1000 else f"{_digits(seconds, upward)} s"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 pool`, `2 pools`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def _digits(value: float, upward: bool) -> str:
    # Twelve digits first: the noise of binary fractions must not push a bound up a step.
    exact = Context(prec=12).create_decimal(Decimal(value))
    rounded = Context(prec=_DIGITS, rounding=ROUND_CEILING if upward else ROUND_HALF_EVEN).plus(exact)
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
