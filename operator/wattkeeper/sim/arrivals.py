"""Arrivals as the engines take them: chunks of requests in order, from a file or a generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CHUNK_REQUESTS = 16_384
DAY = 86_400.0


class TraceError(ValueError):
    """A trace that can't be used: file, line and field, what is wrong and what to do, on one line."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some requests: when they came (seconds from the trace's start, ascending), how long each was served."""

    arrivals: Floats
    services: Floats


@dataclass(frozen=True, slots=True)
class Trace:
    """A model's requests. `chunks` begins anew at every call, so that several policies see the same ones.

    `starts_at` is the Unix time of second 0 (policies that know the hour of day ask for it), 0 where unknown.
    """

    name: str
    chunks: Callable[[], Iterator[Chunk]]
    starts_at: float = 0.0
    covers: float | None = None  # seconds, where the source says; else whole days are assumed
    size_hint: int = 0  # about how many requests, for progress; 0: unknown

    def horizon(self, last_end: float) -> float:
        """What to simulate unless told otherwise, the last request ending at `last_end`."""
        return self.covers if self.covers is not None else max(1, math.ceil(last_end / DAY)) * DAY


def from_arrays(name: str, arrivals: Iterable[float], services: Iterable[float]) -> Trace:
    """A trace from values at hand; ValueError where they aren't in order."""
    came, served = np.asarray(list(arrivals), np.float64), np.asarray(list(services), np.float64)
    if came.shape != served.shape or came.ndim != 1:
        raise ValueError("a trace needs one service time an arrival")
    if not (np.isfinite(came).all() and np.isfinite(served).all()):
        raise ValueError("arrivals and services must be finite")
    if len(came) and (came[0] < 0 or (np.diff(came) < 0).any() or served.min() < 0):
        raise ValueError("arrivals must be ascending, and neither they nor services negative")

    def chunks() -> Iterator[Chunk]:
        for first in range(0, len(came), CHUNK_REQUESTS):
            part = slice(first, first + CHUNK_REQUESTS)
            yield Chunk(came[part], served[part])

    return Trace(name, chunks, size_hint=len(came))
