"""Figures as messages show them."""

from __future__ import annotations

_GIB = 1024**3


def gib(size_bytes: float) -> str:
    """Bytes in GiB with one decimal: `21.6 GiB`."""
    return f"{size_bytes / _GIB:.1f} GiB"


def watts(power_watts: float) -> str:
    """Whole watts, from 10 W; below with one decimal."""
    return f"{power_watts:.0f} W" if power_watts >= 10 else f"{power_watts:.1f} W"


def latency(seconds: float) -> str:
    """Milliseconds with three significant digits, from one second on seconds."""
    if seconds >= 1:
        return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else "1 s"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 pool`, `2 pools`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
