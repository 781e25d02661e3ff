"""The operator's HTTP endpoint: /healthz, /readyz and /metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

logger = logging.getLogger(__name__)


class Health:
    """What the probes ask. A follower is ready: it stands by, and a rollout must not wait for it to lead."""

    def __init__(self) -> None:
        self.started = False  # settings, connection and predictor are usable
        self.leading = False
        self.synced = False  # the leader knows the whole cluster

    @property
    def ready(self) -> bool:
        return self.started and (self.synced or not self.leading)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The running endpoint."""

    port: int
    close: Callable[[], Awaitable[None]]


async def serve(health: Health, registry: CollectorRegistry, host: str, port: int) -> Endpoint:
    """Start answering. Raises OSError when the port can't be had."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # the event loop answers

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if health.ready else web.Response(status=503, text="starting\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host or None, port).start()
    bound = int(runner.addresses[0][1])
    logger.info("serving /healthz, /readyz and /metrics on port %d", bound)
    return Endpoint(bound, runner.cleanup)
