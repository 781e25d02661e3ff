"""The GPUs of an event-driven simulation: how long each held a context, and how long it served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wattkeeper.sim.power import PowerProfile


@dataclass(slots=True)
class Gpu:
    """One GPU's clock of contexts and of models at work; `contexts` and `working` count models."""

    bare_watts: float
    context_watts: float
    contexts: int = 0
    working: int = 0
    hot_seconds: float = 0.0
    working_seconds: float = 0.0
    _hot_since: float = 0.0
    _working_since: float = 0.0
    profile: PowerProfile | None = None
    _cold_since: float = 0.0

    def take_context(self, now: float) -> None:
        self.contexts += 1
        if self.contexts == 1:
            self._hot_since = now
            self._draw(self._cold_since, now, self.bare_watts)

    def drop_context(self, now: float) -> None:
        self.contexts -= 1
        if self.contexts == 0:
            self._cold_since = now
            self.hot_seconds += now - self._hot_since
            self._draw(self._hot_since, now, self.context_watts)

    def begin_work(self, now: float) -> None:
        self.working += 1
        if self.working == 1:
            self._working_since = now

    def end_work(self, now: float) -> None:
        self.working -= 1
        if self.working == 0:
            self.working_seconds += now - self._working_since

    def finish(self, now: float) -> None:
        """Close what is open at the end."""
        if self.working:
            self.working_seconds += now - self._working_since
        if self.contexts:
            self.hot_seconds += now - self._hot_since
            self._draw(self._hot_since, now, self.context_watts)
        else:
            self._draw(self._cold_since, now, self.bare_watts)

    def _draw(self, since: float, until: float, watts: float) -> None:
        if self.profile is not None and until > since:
            self.profile.hold(np.array([since]), np.array([until - since]), watts)


def pulse(gpus: Iterable[Gpu], now: float, joules: float) -> None:
    """A load's energy, shared evenly by its GPUs' profiles."""
    found = [gpu for gpu in gpus if gpu.profile is not None]
    for gpu in found:
        if gpu.profile is not None:
            gpu.profile.pulse(np.array([now]), joules / len(found))
