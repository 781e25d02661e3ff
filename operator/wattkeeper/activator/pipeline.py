"""What a request passes through, assembled in one place from small middlewares.

    journal → closing → known model → loops → quiet requests → hold → forward

A middleware takes the next handler and returns a handler; each may answer by itself. Limits on what is read
(sizes, times, malformed HTTP) lie before all of it, in the client's connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from wattkeeper.activator.exchange import Exchange
from wattkeeper.activator.journal import Journal
from wattkeeper.activator.model import Model, gone
from wattkeeper.activator.pod_connection import Ending, connect
from wattkeeper.activator.settings import ActivatorSettings
from wattkeeper.core.activation import Address, Course, sends_clients_back
from wattkeeper.core.http_rules import passed_through, request_to_pod
from wattkeeper.core.openai_answers import QuietRequests, quiet_answer, wants_events
from wattkeeper.core.refusals import Refusal, Why

logger = logging.getLogger(__name__)

Handler = Callable[[Exchange], Coroutine[Any, Any, None]]
#: Takes a request for a model to one of its pods; False: nothing was sent to any.
Forward = Callable[[Exchange, Model], Awaitable[bool]]
ModelHandler = Callable[[Exchange, Model], Awaitable[None]]


@dataclass(slots=True)
class Surroundings:
    """What the middlewares share."""

    settings: ActivatorSettings
    quiet: QuietRequests
    journal: Journal
    models: Mapping[int, Model]  # by port
    draining: Callable[[], bool]


def assemble(around: Surroundings) -> Handler:
    """The whole way of a request."""
    forward = forwarder(around.settings)
    handler = holding(forward)
    handler = quiet_requests(handler, forward, around.quiet)
    handler = no_loops(handler)
    return journaled(closing(known_model(handler, around.models), around.draining), around.journal)


def journaled(handler: Handler, journal: Journal) -> Handler:
    """Count and log every request once, and let none end without an answer."""

    now = asyncio.get_running_loop().time

    async def handle(exchange: Exchange) -> None:
        abandoned = False
        try:
            await handler(exchange)
        except asyncio.CancelledError:
            abandoned = exchange.refusal is None
            raise
        except Exception:
            logger.exception("a request to port %d failed", exchange.port)
            exchange.refuse(Refusal(Why.INTERNAL, "the activator failed; its log says why"))
        finally:
            journal.note(exchange, now(), abandoned=abandoned)

    return handle


def closing(handler: Handler, draining: Callable[[], bool]) -> Handler:
    """While this process ends, every answer closes its connection."""

    async def handle(exchange: Exchange) -> None:
        exchange.close = exchange.close or draining()
        await handler(exchange)

    return handle


def known_model(handler: ModelHandler, models: Mapping[int, Model]) -> Handler:
    """The port says which model is meant."""

    async def handle(exchange: Exchange) -> None:
        model = models.get(exchange.port)
        if model is None or model.gone:
            exchange.close = True
            exchange.refuse(gone())
        else:
            await handler(exchange, model)

    return handle


def no_loops(handler: ModelHandler) -> ModelHandler:
    """A request that this model's activators have forwarded before goes round in circles."""

    async def handle(exchange: Exchange, model: Model) -> None:
        if passed_through(exchange.head, via(model)):
            exchange.refuse(Refusal(Why.LOOP, f"{model.route.model} forwards to itself"))
        else:
            await handler(exchange, model)

    return handle


def quiet_requests(handler: ModelHandler, forward: Forward, quiet: QuietRequests) -> ModelHandler:
    """Probes, metrics and listings neither wake the model nor count as traffic."""

    async def handle(exchange: Exchange, model: Model) -> None:
        head = exchange.head
        kind = quiet.kind(head.method, head.path, head.agent)
        if kind is None:
            model.seen()
            await handler(exchange, model)
            return
        exchange.quiet = True
        if model.course() is Course.FORWARD and await forward(exchange, model):
            return
        answer = quiet_answer(kind, model.route, head.path)
        if isinstance(answer, Refusal):
            exchange.refuse(answer)
        else:
            exchange.close = exchange.close or sends_clients_back(model.route)
            exchange.answer(answer.status, b"OK", answer.content_type, answer.body)

    return handle


def holding(forward: Forward) -> ModelHandler:
    """Forward, or wait until that is possible, or tell that it won't be."""

    async def handle(exchange: Exchange, model: Model) -> None:
        loop = asyncio.get_running_loop()
        while True:
            match model.course():
                case Course.FORWARD:
                    if await forward(exchange, model):
                        return
                case Course.REFUSE:
                    model.demand_refused()
                    exchange.refuse(model.refusal_for_obstacle())
                    return
                case Course.HOLD:
                    began = loop.time()
                    try:
                        refusal = await model.wait(exchange, _comment_seconds(exchange, model))
                    finally:
                        exchange.held_seconds = (exchange.held_seconds or 0.0) + loop.time() - began
                    if refusal is not None:
                        exchange.refuse(refusal)
                        return
                    exchange.extra = b"X-Wattkeeper-Cold-Start-Seconds: %.3f\r\n" % exchange.held_seconds

    return handle


def _comment_seconds(exchange: Exchange, model: Model) -> float | None:
    """How often a waiting client is sent a comment; None: its protocol has none, or it isn't wished."""
    seconds = model.route.keep_alive_comment_seconds
    head = exchange.head
    if seconds is None or head.version == "1.0" or head.method not in (b"GET", b"POST") or head.upgrade:
        return None
    accept, content_type = head.field(b"accept"), head.field(b"content-type")
    return seconds if wants_events(accept, content_type, exchange.body, exchange.complete) else None


def forwarder(settings: ActivatorSettings) -> Forward:
    """To a pod that accepts the connection. Once a byte was sent nothing is tried again: no duplicates."""

    async def forward(exchange: Exchange, model: Model) -> bool:
        tried: set[Address] = set()
        while (address := model.choose(tried)) is not None:
            with model.forwarding(address):
                pod = await connect(exchange, address, settings.connect_timeout_seconds)
                if pod is None:
                    tried.add(address)
                    model.not_reached(address)
                    continue
                model.reached(address)
                exchange.target = str(address)
                exchange.close = exchange.close or sends_clients_back(model.route)
                try:
                    peer = exchange.peer.encode()
                    pod.send(request_to_pod(exchange.head, peer, exchange.target.encode(), via(model)))
                    ending = await pod.done
                finally:
                    pod.close()
            finish(exchange, ending)
            return True
        return False

    return forward


def finish(exchange: Exchange, ending: Ending) -> None:
    """Show the client how its request ended where the answer itself doesn't."""
    match ending:
        case Ending.WHOLE:
            pass
        case Ending.TUNNEL:
            exchange.ended = True
            exchange.connection.end_tunnel()
        case Ending.NO_ANSWER:
            exchange.refuse(
                Refusal(Why.POD_FAILED, "the model's server closed the connection without an answer")
            )
        case Ending.UNREADABLE:
            exchange.refuse(Refusal(Why.POD_FAILED, "the model's server answered what isn't HTTP/1.1"))
        case Ending.PARTIAL:
            exchange.cut()


def via(model: Model) -> bytes:
    """This model's activators in a `Via` header (RFC 9110, 7.6.3)."""
    return f"wattkeeper-{model.route.model.namespace}.{model.route.model.name}".encode()
