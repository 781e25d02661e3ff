"""Keys that wait for work: each once, none twice at the same time, failed ones again later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

_BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class WorkQueue(Generic[K]):
    """A queue of keys, in the order in which they were first added.

    A key added again while it waits is still there once; while it is worked on, it comes again afterwards.
    """

    def __init__(self, jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2)) -> None:  # noqa: S311
        self._waiting: dict[K, None] = {}
        self._working: set[K] = set()
        self._dirty: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._available = asyncio.Event()
        self._jitter = jitter

    def __len__(self) -> int:
        """Keys that are due and not worked on."""
        return len(self._waiting) + len(self._dirty)

    @property
    def idle(self) -> bool:
        """Whether nothing is due and nothing is worked on."""
        return not (self._waiting or self._working or self._dirty)

    def add(self, key: K) -> None:
        """Work on the key as soon as possible."""
        self._cancel_timer(key)
        if key in self._working:
            self._dirty.add(key)
        else:
            self._waiting[key] = None
            self._available.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Work on the key later, unless it comes up earlier by itself."""
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None and known.when() <= loop.time() + seconds:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(seconds, self.add, key)

    async def get(self) -> K:
        """The next key; it must be handed back by `done` or `failed`."""
        while not self._waiting:
            self._available.clear()
            await self._available.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The work on the key succeeded."""
        self._failures.pop(key, None)
        self._hand_back(key)

    def failed(self, key: K, after_seconds: float | None = None) -> float:
        """The work on the key failed: again later, ever later. Returns in how many seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = _BACKOFF_SECONDS[min(failures, len(_BACKOFF_SECONDS) - 1)] * self._jitter()
        delay = max(delay, after_seconds or 0.0)
        self._hand_back(key)
        if key not in self._waiting:
            self.add_after(key, delay)
        return delay

    def close(self) -> None:
        """Drop all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _hand_back(self, key: K) -> None:
        self._working.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
