"""The activator: routing tables in, demand and standings out, requests through."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence

from wattkeeper.activator.client_connection import ClientConnection
from wattkeeper.activator.frontend import Frontend
from wattkeeper.activator.journal import AccessLogStyle, Journal
from wattkeeper.activator.listeners import Listeners
from wattkeeper.activator.metrics import Metrics
from wattkeeper.activator.model import Model, Shared
from wattkeeper.activator.pipeline import Surroundings, assemble
from wattkeeper.activator.ports import Leader
from wattkeeper.activator.settings import ActivatorSettings, usable_connections
from wattkeeper.activator.waiting_room import Budget
from wattkeeper.core.activation import RoutingTable, Standing
from wattkeeper.core.openai_answers import QuietRequests

logger = logging.getLogger(__name__)

_REPORT_SECONDS = 1.0
#: Between two reports that were asked for at once. Seconds.
_LEAST_REPORT_SECONDS = 0.02
_DRAIN_STEP_SECONDS = 0.1


class Activator:
    """One process's activator. Made and used inside a running event loop."""

    def __init__(
        self,
        settings: ActivatorSettings,
        leader: Leader,
        quiet: QuietRequests | None = None,
        metrics: Metrics | None = None,
        access_log: Callable[[str], object] | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics()
        self.table: RoutingTable | None = None
        self._leader = leader
        self._models: dict[int, Model] = {}  # by port
        self._report_now = asyncio.Event()
        self._settle_now = asyncio.Event()
        self._shared = Shared(settings, Budget(settings.max_held_bytes), leader, self._report_now.set)
        self._loop = asyncio.get_running_loop()
        style = AccessLogStyle(settings.access_log)
        journal = Journal(self.metrics, self._models, style, access_log or _to_standard_output)
        connections = usable_connections(settings.max_connections)
        if connections < settings.max_connections:
            logger.warning("file descriptors suffice for %d connections only", connections)
        self._frontend = Frontend(settings, connections, journal, self.metrics)
        self._frontend.handler = assemble(
            Surroundings(
                settings, quiet or QuietRequests(), journal, self._models, lambda: self._frontend.draining
            )
        )
        self._listeners = Listeners(
            settings.listen_host,
            lambda port: ClientConnection(self._frontend, port),
            settings.gone_port_seconds,
            self.metrics,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics.watch(self.standings)

    # What the operator's side calls.

    def swap(self, table: RoutingTable) -> None:
        """Act on a newer table from here on: in one step, no request sees half of it."""
        self.table = table
        known = {model.route.model: model for model in self._models.values()}
        self._models.clear()  # shared with the pipeline
        for port, route in table.by_port.items():
            model = known.pop(route.model, None) or Model(route, self._shared, self.metrics.of(route.model))
            self._models[port] = model
            model.update(route)
        for model in known.values():
            model.end()
            self.metrics.forget(model.route.model)
        self._listeners.follow(table.by_port.keys())
        self._settle_now.set()

    def standings(self) -> Sequence[Standing]:
        """How every model stands here now."""
        return [
            model.standing(listening=self._listeners.listening(port)) for port, model in self._models.items()
        ]

    @property
    def ready(self) -> bool:
        """Whether requests may be sent here: a table is known, its ports listen, and this isn't the end."""
        return self.table is not None and self._listeners.settled and not self._frontend.draining

    # Its life.

    async def start(self) -> None:
        """Begin to listen and to report; returns when the present table's ports listen."""
        await self._listeners.settle()
        self._tasks = [
            self._loop.create_task(self._keep_listening()),
            self._loop.create_task(self._keep_reporting()),
            self._loop.create_task(self._frontend.keep_times()),
        ]

    async def drain(self) -> None:
        """End gracefully: for a while as before, though not `ready`; then nobody new; what waits or streams
        goes on until `drain_seconds` are over."""
        self._frontend.draining = True
        self._report_now.set()
        began = self._loop.time()
        await self._idle_until(began + self.settings.propagation_seconds, at_least=True)
        self._listeners.close()
        await self._idle_until(self._loop.time() + self.settings.drain_seconds, at_least=False)
        for model in self._models.values():
            model.room.call_all(model.refusal_for_shutdown())
        await asyncio.sleep(_DRAIN_STEP_SECONDS)  # to answer them
        await self.stop()

    async def _idle_until(self, end: float, *, at_least: bool) -> None:
        while self._loop.time() < end and (at_least or self._frontend.busy):
            if not at_least:
                self._frontend.close_idle()
            await asyncio.sleep(min(_DRAIN_STEP_SECONDS, max(0.0, end - self._loop.time())))

    async def stop(self) -> None:
        """End at once."""
        self._listeners.close()
        await self._frontend.end()
        for model in self._models.values():
            model.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_listening(self) -> None:
        while True:
            try:
                async with asyncio.timeout(1.0):
                    await self._settle_now.wait()
            except TimeoutError:
                pass
            self._settle_now.clear()
            await self._listeners.settle()

    async def _keep_reporting(self) -> None:
        while True:
            self._report_now.clear()
            try:
                async with asyncio.timeout(self.settings.leader_timeout_seconds):
                    await self._leader.report(self.standings())
            except Exception as error:  # whatever it is, it is told again
                self.metrics.report_failures.inc()
                logger.warning("the standings couldn't be told, again soon: %r", error)
            await asyncio.sleep(_LEAST_REPORT_SECONDS)
            try:
                async with asyncio.timeout(_REPORT_SECONDS):
                    await self._report_now.wait()
            except TimeoutError:
                pass


def _to_standard_output(lines: str) -> None:
    sys.stdout.write(lines)
    sys.stdout.flush()
