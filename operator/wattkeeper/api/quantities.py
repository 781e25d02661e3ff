"""Kubernetes quantities and durations as exact decimals.

`kubernetes.utils.parse_quantity` hands its text to `Decimal`, which takes "NaN", "Infinity", "1_0" and
digits of every script, and `durationpy` computes in floats; the API has no floats, so both are parsed
here, as the API server's own `quantity()` and `duration()` read them.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal

from wattkeeper.api.errors import shorten

#: Longest text of a quantity or a duration; the CRDs bound it too.
MAX_LENGTH = 32
_MAX_EXPONENT = 99  # far beyond every bound of the API, small enough to compute with

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?0*[0-9]{1,2}))?"
)
_SUFFIXES: dict[str | None, Decimal] = {
    None: Decimal(1),
    **{letter: Decimal(10) ** power for letter, power in zip("num", (-9, -6, -3), strict=True)},
    **{letter: Decimal(10) ** (3 * i) for i, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(2) ** (10 * i) for i, letter in enumerate("KMGTPE", start=1)},
}
_BINARY_SUFFIXES = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")

#: The durations of the API: one to four numbers with a unit, as Go writes them; without sign.
DURATION_PATTERN = r"^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|ms|s|m|h)){1,4}$"
_DURATION = re.compile(DURATION_PATTERN.removesuffix("$") + r"\Z")
_DURATION_PART = re.compile(r"([0-9]+(?:[.][0-9]+)?)(ns|us|ms|s|m|h)")
_UNIT_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_EXACT = Context(prec=160)  # holds every product of a bounded text and a suffix without rounding


class QuantityError(ValueError):
    """A text that is no quantity or no duration. `field` says where it stands, `cure` what to write."""

    def __init__(self, field: str, value: object, cure: str) -> None:
        super().__init__(f"{field}: {cure}; got {shorten(value)}")
        self.field = field
        self.value = value
        self.cure = cure


def parse_quantity(value: object, field: str) -> Decimal:
    """The number that a Kubernetes quantity stands for: `330m` → 0.33, `1k` → 1000, `2Gi` → 2147483648.

    Raises QuantityError for anything else, NaN, infinities, booleans and floats among it.
    """
    cure = "write an integer or a quantity such as 330m, 1.5 or 2k, as a string"
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**MAX_LENGTH else None
    if not isinstance(value, str) or len(value) > MAX_LENGTH:
        raise QuantityError(field, value, cure)
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise QuantityError(field, value, cure)
    number = Decimal(match["number"])
    if match["exponent"] is not None:
        return _EXACT.scaleb(number, int(match["exponent"]))
    return _EXACT.multiply(number, _SUFFIXES[match["suffix"]])


def parse_duration(value: object, field: str) -> Decimal:
    """Seconds of a duration as Go writes it: `50ms` → 0.05, `1h30m` → 5400.

    Raises QuantityError for anything else: a number without unit, a sign, NaN, a float.
    """
    if not isinstance(value, str) or len(value) > MAX_LENGTH or _DURATION.match(value) is None:
        raise QuantityError(field, value, "write a duration with its unit (us, ms, s, m, h), such as 50ms")
    seconds = Decimal(0)
    for number, unit in _DURATION_PART.findall(value):
        seconds = _EXACT.add(seconds, _EXACT.multiply(Decimal(number), _UNIT_SECONDS[unit]))
    return seconds


def format_quantity(value: Decimal) -> str:
    """The shortest exact quantity in decimal suffixes: 0.33 → `330m`, 2000 → `2k`, 1500 → `1500`.

    Raises ValueError for what a quantity can't hold: NaN, infinities, fractions finer than 1n.
    """
    if not value.is_finite():
        raise ValueError(f"no quantity: {value}")
    for suffix in ("E", "P", "T", "G", "M", "k", None, "m", "u", "n"):
        scaled = _EXACT.divide(value, _SUFFIXES[suffix])
        if scaled == scaled.to_integral_value() and (scaled or suffix is None):
            return f"{scaled:f}".split(".", maxsplit=1)[0] + (suffix or "")
    raise ValueError(f"finer than a nano: {value}")


def format_bytes(size: int) -> str:
    """An exact quantity of bytes in binary suffixes: 85520809984 → `81559Mi`."""
    for power, suffix in zip(range(6, 0, -1), _BINARY_SUFFIXES, strict=True):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{suffix}"
    return str(size)


def format_duration(seconds: float | Decimal, *, digits: int = 3, upward: bool = False) -> str:
    """A duration for reading, in one unit, rounded to `digits` significant digits: 0.0206 → `20.6ms`.

    `upward` rounds towards the larger, so that an upper bound is never shown below itself. Raises
    ValueError for what is negative or not finite.
    """
    # A float stands for the shortest decimal that it is read from: 0.08 isn't a little more than 0.08.
    value = seconds if isinstance(seconds, Decimal) else Decimal(repr(float(seconds)))
    if not value.is_finite() or value < 0:
        raise ValueError(f"no duration: {seconds}")
    rounding = ROUND_CEILING if upward else ROUND_HALF_EVEN
    rounded = Context(prec=digits, rounding=rounding).plus(value)
    unit = next((u for u in ("s", "ms", "us") if rounded >= _UNIT_SECONDS[u]), "ns" if rounded else "s")
    return f"{_plain(_EXACT.divide(rounded, _UNIT_SECONDS[unit]))}{unit}"


def _plain(value: Decimal) -> str:
    """Digits without exponent and without trailing zeros after the point."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
