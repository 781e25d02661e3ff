"""The ports of the models: opened with a model's route, and closed some time after it is gone."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection

from wattkeeper.activator.metrics import Metrics

logger = logging.getLogger(__name__)

_BACKLOG = 4096
#: Inherited by accepted connections. A client whose node is gone is noticed after about 2 min.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
)


class Listeners:
    """Listening sockets by port. `follow` is told which ports are wanted, `settle` makes it so."""

    def __init__(
        self,
        host: str,
        protocol: Callable[[int], asyncio.Protocol],
        gone_seconds: float,
        metrics: Metrics,
    ) -> None:
        self._host = host
        self._protocol = protocol
        self._gone_seconds = gone_seconds
        self._metrics = metrics
        self._servers: dict[int, asyncio.Server] = {}
        self._wanted: frozenset[int] = frozenset()
        self._gone_since: dict[int, float] = {}
        self._closing = False

    def follow(self, ports: Collection[int]) -> None:
        now = asyncio.get_running_loop().time()
        for port in self._wanted.difference(ports):
            self._gone_since[port] = now
        self._wanted = frozenset(ports)
        for port in ports:
            self._gone_since.pop(port, None)

    def listening(self, port: int) -> bool:
        return port in self._servers

    @property
    def settled(self) -> bool:
        return self._wanted.issubset(self._servers)

    async def settle(self) -> None:
        """Open what is missing, close what is gone for long; what fails is tried at the next call."""
        loop = asyncio.get_running_loop()
        for port in sorted(self._wanted.difference(self._servers)):
            if self._closing:
                return
            try:
                server = await self._open(loop, port)
            except OSError as error:
                self._metrics.listen_failures.inc()
                logger.error("port %d can't be listened on, tried again: %s", port, error)
                continue
            if self._closing:
                server.close()
                return
            self._servers[port] = server
        for port, since in list(self._gone_since.items()):
            if loop.time() - since >= self._gone_seconds:
                del self._gone_since[port]
                if (gone := self._servers.pop(port, None)) is not None:
                    gone.close()

    async def _open(self, loop: asyncio.AbstractEventLoop, port: int) -> asyncio.Server:
        server = await loop.create_server(
            lambda: self._protocol(port), self._host or None, port, backlog=_BACKLOG
        )
        for sock in server.sockets:
            for level, option, value in _SOCKET_OPTIONS:
                sock.setsockopt(level, option, value)
        return server

    def close(self) -> None:
        """Accept nobody any more."""
        self._closing = True
        for server in self._servers.values():
            server.close()
        self._servers.clear()
