"""Generated arrivals: seeded, in chunks, of any length.

Rates are requests per hour, times are seconds. Each request is served for an exponential time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np

from wattkeeper.sim.arrivals import CHUNK_REQUESTS, DAY, Chunk, Floats, Trace

HOUR = 3600.0
_PERIODS = 512


@dataclass(frozen=True, slots=True)
class Poisson:
    """Requests that know nothing of each other."""

    per_hour: float = 5.0

    def arrivals(self, rng: np.random.Generator) -> Iterator[Floats]:
        return _summed(lambda: rng.exponential(HOUR / self.per_hour, CHUNK_REQUESTS))


@dataclass(frozen=True, slots=True)
class Mmpp:
    """Quiet and busy times in turn, each of an exponential length (a Markov-modulated Poisson process)."""

    quiet: float = 2.0
    busy: float = 60.0
    quiet_length: float = 900.0
    busy_length: float = 600.0

    def arrivals(self, rng: np.random.Generator) -> Iterator[Floats]:
        begun = 0.0
        rates = np.tile([self.quiet, self.busy], _PERIODS // 2) / HOUR
        means = np.tile([self.quiet_length, self.busy_length], _PERIODS // 2)
        while True:
            lengths = rng.exponential(means)
            starts = begun + np.concatenate([[0.0], np.cumsum(lengths[:-1])])
            counts = rng.poisson(rates * lengths)
            places = np.repeat(starts, counts) + rng.random(counts.sum()) * np.repeat(lengths, counts)
            yield np.sort(places)
            begun = float(starts[-1] + lengths[-1])


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A sine from 6 to 18 h that peaks at noon, above a share of it at night; weekends get a share of it all.

    The trace begins at midnight on a Monday.
    """

    peak: float = 30.0
    night: float = 0.2
    weekend: float = 1.0

    def arrivals(self, rng: np.random.Generator) -> Iterator[Floats]:
        for candidates in Poisson(self.peak).arrivals(rng):
            yield candidates[rng.random(len(candidates)) < self._share(candidates)]

    def _share(self, times: Floats) -> Floats:
        sine = np.maximum(0.0, np.sin(math.pi * (times % DAY / HOUR - 6.0) / 12.0))
        weekend = np.where(times // DAY % 7 >= 5, self.weekend, 1.0)
        share: Floats = (self.night + (1.0 - self.night) * sine) * weekend
        return share


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Gaps whose logarithm is normal."""

    mean_gap: float = 600.0
    sigma: float = 1.5

    def arrivals(self, rng: np.random.Generator) -> Iterator[Floats]:
        centre = math.log(self.mean_gap) - self.sigma**2 / 2
        return _summed(lambda: rng.lognormal(centre, self.sigma, CHUNK_REQUESTS))


@dataclass(frozen=True, slots=True)
class Pareto:
    """Heavy-tailed gaps, none below `least_gap`; with `alpha` of at most 1 their mean is infinite."""

    least_gap: float = 60.0
    alpha: float = 1.5

    def arrivals(self, rng: np.random.Generator) -> Iterator[Floats]:
        return _summed(lambda: self.least_gap * (1.0 + rng.pareto(self.alpha, CHUNK_REQUESTS)))


@dataclass(frozen=True, slots=True)
class Periodic:
    """One request every so often, give or take a uniform jitter."""

    every: float = 900.0
    jitter: float = 20.0

    def arrivals(self, rng: np.random.Generator) -> Iterator[Floats]:
        for first in itertools.count(1, CHUNK_REQUESTS):
            times = self.every * np.arange(first, first + CHUNK_REQUESTS)
            yield np.sort(times + rng.uniform(-self.jitter, self.jitter, CHUNK_REQUESTS))


Process = Poisson | Mmpp | Diurnal | Lognormal | Pareto | Periodic
PROCESSES: Mapping[str, type[Process]] = {
    "poisson": Poisson,
    "mmpp": Mmpp,
    "diurnal": Diurnal,
    "lognormal": Lognormal,
    "pareto": Pareto,
    "periodic": Periodic,
}
SHARES = ("night", "weekend")


def check(process: Process) -> None:
    """ValueError where a figure of the process makes no sense."""
    for field in fields(process):
        value = getattr(process, field.name)
        least = 0.0 if field.name in (*SHARES, "jitter", "quiet") else math.ulp(0.0)
        most = 1.0 if field.name in SHARES else math.inf
        if not (math.isfinite(value) and least <= value <= most):
            bound = "from 0 to 1" if field.name in SHARES else f"{'not negative' if not least else 'above 0'}"
            raise ValueError(f"{field.name} must be {bound}, got {value:g}")
    if isinstance(process, Periodic) and process.jitter > process.every / 2:
        raise ValueError(f"jitter must be at most half of every, got {process.jitter:g}")


def generate(
    name: str,
    process: Process,
    horizon: float,
    *,
    seed: int | tuple[int, ...] = 0,
    mean_service: float = 10.0,
) -> Trace:
    """Requests up to the horizon. The same seed gives the same ones, at every reading."""
    check(process)

    def chunks() -> Iterator[Chunk]:
        came, served = (np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(2))
        for arrivals in process.arrivals(came):
            beyond = len(arrivals) > 0 and arrivals[-1] >= horizon
            inside = arrivals[: np.searchsorted(arrivals, horizon, "left")] if beyond else arrivals
            # Before second 0 there is no request: a jitter may have moved the first one there.
            inside = inside[inside >= 0.0]
            yield Chunk(inside, served.exponential(mean_service, len(inside)))
            if beyond:
                return

    return Trace(name, chunks, covers=horizon)


def _summed(draw: Callable[[], Floats]) -> Iterator[Floats]:
    """Arrivals from gaps."""
    now = 0.0
    while True:
        times = now + np.cumsum(draw())
        yield times
        now = float(times[-1])
