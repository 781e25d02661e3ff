"""Tells the leader, again and again, that a model is wanted: one signal for a whole burst."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from wattkeeper.activator.ports import Leader
from wattkeeper.activator.settings import ActivatorSettings
from wattkeeper.core.activation import ModelKey

logger = logging.getLogger(__name__)

#: Two bursts in a row are told at most this far apart. Seconds.
_LEAST_INTERVAL_SECONDS = 0.02


class DemandSignal:
    """One model's. Runs only while `wanted()` says the epoch that is wanted; None: no demand any more."""

    def __init__(
        self,
        model: ModelKey,
        leader: Leader,
        settings: ActivatorSettings,
        wanted: Callable[[], int | None],
        failed: Callable[[], None],
    ) -> None:
        self._model = model
        self._leader = leader
        self._settings = settings
        self._wanted = wanted
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._at_once = asyncio.Event()

    def raise_(self) -> None:
        """A burst begins, or a new epoch: tell at once."""
        self._at_once.set()
        if not self.running:
            self._task = asyncio.get_running_loop().create_task(self._repeat())

    @property
    def running(self) -> bool:
        """Whether the leader is being told."""
        return self._task is not None and not self._task.done()

    async def _repeat(self) -> None:
        while (epoch := self._wanted()) is not None:
            self._at_once.clear()
            await self._tell(epoch)
            await asyncio.sleep(_LEAST_INTERVAL_SECONDS)
            try:
                async with asyncio.timeout(self._settings.demand_interval_seconds):
                    await self._at_once.wait()
            except TimeoutError:
                continue

    async def _tell(self, epoch: int) -> None:
        try:
            async with asyncio.timeout(self._settings.leader_timeout_seconds):
                await self._leader.demand(self._model, epoch)
        except Exception as error:  # whatever it is, it is told again
            self._failed()
            logger.warning("%s: its demand couldn't be told, again soon: %r", self._model, error)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
