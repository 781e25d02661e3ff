"""All clients' connections of this process: how many there may be, their times, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from wattkeeper.activator.client_connection import ClientConnection
from wattkeeper.activator.exchange import Exchange
from wattkeeper.activator.journal import Journal
from wattkeeper.activator.metrics import Metrics
from wattkeeper.activator.settings import ActivatorSettings

#: Deadlines are looked at so often: one pass over all connections costs less than a timer for each request.
_SWEEP_SECONDS = 0.25


class Frontend:
    """What connections share."""

    def __init__(
        self, settings: ActivatorSettings, max_connections: int, journal: Journal, metrics: Metrics
    ) -> None:
        self.settings = settings
        self.draining = False
        self.handler: Callable[[Exchange], Coroutine[Any, Any, None]] = _unassembled
        self._max_connections = max_connections
        self._journal = journal
        self._connections: set[ClientConnection] = set()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.connections.set_function(lambda: len(self._connections))

    def now(self) -> float:
        return self._loop.time()

    def opened(self, connection: ClientConnection) -> bool:
        """Whether a further client may stay."""
        self._connections.add(connection)
        return len(self._connections) <= self._max_connections

    def closed(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)

    def start(self, exchange: Exchange) -> None:
        """Begin to handle a request."""
        exchange.task = self._loop.create_task(self.handler(exchange))
        self._tasks.add(exchange.task)
        exchange.task.add_done_callback(self._tasks.discard)

    def journal(self, exchange: Exchange) -> None:
        """Note a request that no handler has seen."""
        self._journal.note(exchange, self.now())

    @property
    def busy(self) -> int:
        """Requests that aren't finished."""
        return len(self._tasks)

    async def keep_times(self) -> None:
        """Act on deadlines, and write the access log, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = self.now()
            for connection in tuple(self._connections):
                connection.check(now)
            self._journal.write_out()

    def close_idle(self) -> None:
        for connection in tuple(self._connections):
            connection.close_idle()

    async def end(self) -> None:
        """Let go of everybody at once."""
        for connection in tuple(self._connections):
            connection.abort()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._journal.write_out()


async def _unassembled(exchange: Exchange) -> None:
    raise RuntimeError("the pipeline isn't assembled")
