"""The connection to a pod that one request is forwarded over: the client's side of HTTP/1.1.

A fresh connection for each request: a kept one may be closed by the pod just as a request is sent, and then
nobody can tell whether the request was begun; and a pod that is to be parked must not be kept connected.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from enum import Enum, auto
from typing import cast

from httptools import (
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

from wattkeeper.activator.exchange import Exchange
from wattkeeper.core.activation import Address
from wattkeeper.core.http_rules import ResponseHead, has_no_body, last_chunk, read_response

logger = logging.getLogger(__name__)

_WRITE_HIGH_BYTES = 128 * 1024
#: Head or trailers of an answer. Bytes.
_MAX_HEAD_BYTES = 256 * 1024
#: The pod closes first, so that the many ended connections are remembered there and not here. Seconds.
_CLOSE_SECONDS = 1.0
#: A pod whose node is gone is noticed after about 30 s, however long it may take to answer.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),  # ms
)


class Ending(Enum):
    """How the forwarding of one request ended."""

    WHOLE = auto()  # the answer was passed on to its end
    NO_ANSWER = auto()  # the pod may have begun the request, but told nothing of it
    PARTIAL = auto()  # the answer broke off
    UNREADABLE = auto()  # what came isn't HTTP
    TUNNEL = auto()  # a tunnel ended


async def connect(exchange: Exchange, address: Address, timeout_seconds: float) -> PodConnection | None:
    """Connect to a pod; None when it can't be reached: then nothing was sent to it."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_seconds):
            _, pod = await loop.create_connection(
                lambda: PodConnection(exchange, loop), address.host, address.port
            )
    except OSError:  # refused, unreachable, out of descriptors; TimeoutError is one
        return None
    return pod


def _set_options(own: socket.socket) -> None:
    """uvloop's stand-in for a socket makes a new object for every call: take one for all."""
    sock = socket.socket(own.family, own.type, own.proto, fileno=own.fileno())
    try:
        for level, option, value in _SOCKET_OPTIONS:
            sock.setsockopt(level, option, value)
    finally:
        sock.detach()


class PodConnection(asyncio.Protocol):
    """Sends one request, passes its answer on as it comes. `done` is set once; a lost client cancels it."""

    __slots__ = (
        "_answer",
        "_chunked",
        "_client_ended",
        "_closer",
        "_exchange",
        "_fed",
        "_headers",
        "_loop",
        "_out",
        "_parser",
        "_pod_ended",
        "_progress",
        "_reason",
        "_sent_all",
        "_trailers",
        "_tunnel",
        "done",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, exchange: Exchange, loop: asyncio.AbstractEventLoop) -> None:
        self._exchange = exchange
        self._loop = loop
        self._parser = HttpResponseParser(self)
        self._out: list[bytes] = []
        self._chunked = exchange.head.chunked
        self._sent_all = False
        self._reason = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._trailers: list[tuple[bytes, bytes]] = []
        self._answer: ResponseHead | None = None
        self._fed = 0
        self._progress = False
        self._tunnel = self._client_ended = self._pod_ended = False
        self._closer: asyncio.TimerHandle | None = None
        self.done: asyncio.Future[Ending] = loop.create_future()

    def send(self, head: bytes) -> None:
        """Send the request, and what comes of its body."""
        self._out.append(head)
        self._exchange.send_body_to(self)
        self.flush()

    # A request's sink.

    def send_body(self, chunk: bytes) -> None:
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(chunk), chunk)
        self._out.append(chunk)

    def end_body(self, trailers: list[tuple[bytes, bytes]]) -> None:
        self._sent_all = True
        if self._chunked:
            self._out.append(last_chunk(trailers))

    def flush(self) -> None:
        if self._out:
            data, self._out = b"".join(self._out), []
            if not self.transport.is_closing():
                self.transport.write(data)

    def pause_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def pass_on(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def end_of_tunnel(self) -> bool:
        """The client has no more to send. Returns whether its connection stays open for the pod's."""
        self._client_ended = True
        if self._pod_ended or self.transport.is_closing():
            self._end(Ending.TUNNEL)
            return False
        self.transport.write_eof()
        return True

    def abort(self) -> None:
        self.transport.abort()

    def close(self) -> None:
        """Let go of the pod: at once when it isn't finished, else it may close first."""
        if self._tunnel:
            self.transport.close()
        elif not self._sent_all or not self.done.done() or self.done.cancelled():
            self.transport.abort()
        elif not self.transport.is_closing():
            self._closer = self._loop.call_later(_CLOSE_SECONDS, self.transport.abort)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        _set_options(transport.get_extra_info("socket"))
        if not self._exchange.connection.writable:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self._exchange.connection.pause_reading()

    def resume_writing(self) -> None:
        if not self.done.done():
            self._exchange.connection.resume_reading()

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if self._tunnel:
            exchange.sent_bytes += len(data)
            exchange.connection.write(data)
            exchange.flush()
            return
        if self.done.done():
            return
        self._progress = False
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._begin_tunnel(data[upgrade.args[0] :])
        except HttpParserError as error:
            logger.info("pod %s: its answer can't be read: %r", exchange.target, error.__context__ or error)
            self._end(Ending.UNREADABLE)
        self._fed = 0 if self._progress else self._fed + len(data)
        if self._fed > _MAX_HEAD_BYTES:
            self._end(Ending.UNREADABLE)
        exchange.flush()

    def eof_received(self) -> bool:
        if self._tunnel:
            self._pod_ended = True
            if not self._client_ended and self._exchange.connection.end_writing():
                return True
        self._ended_by_pod(whole=True)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closer is not None:
            self._closer.cancel()
        self._ended_by_pod(whole=exc is None)

    def _ended_by_pod(self, *, whole: bool) -> None:
        """The end of the connection ends an answer that has no other end; any other is broken off."""
        if self.done.done():
            return
        answer = self._answer
        if self._tunnel:
            self._end(Ending.TUNNEL)
        elif answer is None:
            self._end(Ending.NO_ANSWER)
        elif whole and answer.content_length is None and not answer.chunked:
            self._exchange.end()
            self._exchange.flush()
            self._end(Ending.WHOLE)
        else:
            self._end(Ending.PARTIAL)

    def _end(self, ending: Ending) -> None:
        if not self.done.done():
            self.done.set_result(ending)

    def _begin_tunnel(self, rest: bytes) -> None:
        self._tunnel = True
        connection = self._exchange.connection
        connection.become_tunnel()
        if rest:
            connection.write(rest)

    # What the parser calls.

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        (self._headers if self._answer is None else self._trailers).append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        head = read_response(status, self._reason, self._headers)
        self._reason, self._headers = b"", []
        exchange = self._exchange
        if status == 101:
            if not (exchange.head.wants_websocket and self._parser.should_upgrade()):
                raise ValueError("switches protocols unasked")
            exchange.begin(head)
        elif status < 200:
            if status != 100:  # the client was told to go on by us
                exchange.inform(head)
            return
        else:
            exchange.begin(head, exchange.extra)
        self._answer = head
        self._progress = True
        if status != 101 and has_no_body(exchange.head.method, status):
            self._whole()

    def on_body(self, chunk: bytes) -> None:
        self._progress = True
        if not self.done.done():
            self._exchange.write(chunk)

    def on_message_complete(self) -> None:
        if self._answer is not None and self._answer.status != 101:
            self._whole()

    def _whole(self) -> None:
        if not self.done.done():
            self._exchange.end(self._trailers)
            self._end(Ending.WHOLE)
