"""One client's connection: reads requests, writes answers, keeps the times, lets go of a client cleanly."""

from __future__ import annotations

import asyncio
import socket
import struct
from enum import Enum
from typing import TYPE_CHECKING, cast

from wattkeeper.activator.exchange import Exchange
from wattkeeper.activator.request_reader import PipelinedError, RequestReader
from wattkeeper.core.http_rules import RequestHead
from wattkeeper.core.refusals import Refusal, RefusedError, Why

if TYPE_CHECKING:
    from wattkeeper.activator.frontend import Frontend

#: A client that was answered early may still send for so long: closing at once would make its kernel discard
#: the answer. Seconds.
_LINGER_SECONDS = 2.0
_WRITE_HIGH_BYTES = 128 * 1024
_NEVER = float("inf")
#: SO_LINGER on, 0 s: the connection ends with a reset.
_RESET = struct.pack("ii", 1, 0)
#: Stands in for a request that couldn't be read.
_UNREAD = RequestHead(b"-", b"-", "1.1", (), host=None)


class Phase(Enum):
    """Where a connection is."""

    HEAD = "waits for a request, or reads its head"
    EXCHANGE = "a request's body is being read, or its answer is under way"
    TUNNEL = "another protocol's bytes pass through"
    LINGER = "answered; what still comes is discarded"
    CLOSED = "over"


class ClientConnection(asyncio.Protocol):
    """The server's side of HTTP/1.1 over one transport; `check` is called now and then for its deadlines."""

    __slots__ = (
        "_body_began",
        "_exchange",
        "_frontend",
        "_head_began",
        "_out",
        "_paused_since",
        "_port",
        "_read_deadline",
        "_reader",
        "_stop_reading",
        "_write_deadline",
        "peer",
        "phase",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, frontend: Frontend, port: int) -> None:
        settings = frontend.settings
        self._frontend = frontend
        self._port = port
        self._reader = RequestReader(self, settings.max_head_bytes, settings.max_header_fields)
        self._exchange: Exchange | None = None
        self._out: list[bytes] = []
        self._head_began = False
        self._body_began = 0.0
        self._paused_since: float | None = None  # reading is paused by us: the client isn't slow
        self._stop_reading = False  # what follows the request is nothing that can be answered
        self._read_deadline = self._write_deadline = _NEVER
        self.phase = Phase.HEAD
        self.peer = ""

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        address = transport.get_extra_info("peername")
        self.peer = address[0] if address else ""
        self._read_deadline = self._frontend.now() + self._frontend.settings.keep_alive_seconds
        if not self._frontend.opened(self):
            self._unreadable(Refusal(Why.TOO_MANY_CONNECTIONS, "too many connections: come back", 1))

    def connection_lost(self, exc: Exception | None) -> None:
        self.phase = Phase.CLOSED
        self._frontend.closed(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.task is not None:
            exchange.task.cancel()

    def eof_received(self) -> bool:
        """A client that ends its side is gone, as for the engines' own servers; a tunnel has two ends."""
        if self.phase is Phase.TUNNEL and self._exchange is not None and self._exchange.sink is not None:
            return self._exchange.sink.end_of_tunnel()
        return False

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.TUNNEL and self._exchange is not None and self._exchange.sink is not None:
            self._exchange.sink.pass_on(data)
            return
        if self._stop_reading or self.phase not in (Phase.HEAD, Phase.EXCHANGE):
            return
        try:
            rest = self._reader.feed(data)
        except RefusedError as error:
            self._unreadable(error.refusal)
            return
        except PipelinedError:
            self._stop_reading = True
            rest = b""
        exchange = self._exchange
        if exchange is None:
            if self._reader.started and not self._head_began:
                self._head_began = True
                self._read_deadline = self._frontend.now() + self._frontend.settings.head_timeout_seconds
            return
        if rest:  # the other protocol's first bytes
            exchange.body.append(rest)
        if exchange.task is None:
            self._frontend.start(exchange)
        elif exchange.sink is not None:
            exchange.sink.flush()

    def pause_writing(self) -> None:
        self._write_deadline = self._frontend.now() + self._frontend.settings.stall_seconds
        if self._exchange is not None and self._exchange.sink is not None:
            self._exchange.sink.pause_reading()

    def resume_writing(self) -> None:
        self._write_deadline = _NEVER
        if self._exchange is not None and self._exchange.sink is not None:
            self._exchange.sink.resume_reading()

    # What the reader calls.

    def on_request(self, head: RequestHead) -> None:
        now = self._frontend.now()
        limit = self._frontend.settings.max_body_bytes
        if head.content_length is not None and head.content_length > limit:
            raise _too_large(limit)
        self.phase = Phase.EXCHANGE
        self._body_began = now
        self._read_deadline = now + self._frontend.settings.body_grace_seconds
        self._exchange = Exchange(head, self, self._port, self.peer, now)

    def on_request_body(self, chunk: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        limit = self._frontend.settings.max_body_bytes
        if exchange.received_bytes + len(chunk) > limit:
            raise _too_large(limit)
        if (refusal := exchange.receive(chunk)) is not None:
            raise RefusedError(refusal)

    def on_request_end(self, trailers: list[tuple[bytes, bytes]]) -> None:
        self._read_deadline = _NEVER
        if self._exchange is not None:
            self._exchange.finish_request(trailers)

    # What the exchange calls.

    def write(self, data: bytes) -> None:
        """Append to what the next `flush` sends."""
        self._out.append(data)

    def flush(self) -> None:
        if self._out:
            data, self._out = b"".join(self._out), []
            if not self.transport.is_closing():
                self.transport.write(data)

    @property
    def writable(self) -> bool:
        """Whether the client takes what it is sent."""
        return self._write_deadline == _NEVER

    def pause_reading(self) -> None:
        if self._paused_since is None and not self.transport.is_closing():
            self._paused_since = self._frontend.now()
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused_since is not None:
            self._body_began += self._frontend.now() - self._paused_since
            self._paused_since = None
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def answered(self, exchange: Exchange) -> None:
        """The answer is whole: on to the next request, or the end."""
        self._exchange = None
        if exchange.close or not exchange.complete or self._stop_reading:
            self._finish(linger=not exchange.complete or self._stop_reading)
            return
        self.phase = Phase.HEAD
        self._head_began = False
        self._reader.next()
        self._read_deadline = self._frontend.now() + self._frontend.settings.keep_alive_seconds
        self.resume_reading()

    def cut(self, *, reset: bool) -> None:
        """End the connection so that the client sees that the answer isn't whole: without its last chunk or
        byte, or with a reset where the end of the connection is all that tells the end."""
        self._exchange = None
        if not reset:
            self._finish(linger=False)
            return
        self.flush()
        if (sock := self.transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def become_tunnel(self) -> None:
        self.flush()
        self.phase = Phase.TUNNEL
        self._read_deadline = _NEVER
        self.resume_reading()

    def end_writing(self) -> bool:
        """The pod's end of a tunnel has no more to send. Returns whether the client's may still."""
        if self.transport.is_closing():
            return False
        self.transport.write_eof()
        return True

    def end_tunnel(self) -> None:
        self._exchange = None
        self._finish(linger=False)

    # Times, and ends.

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return self.phase is Phase.HEAD and not self._head_began

    def close_idle(self) -> None:
        if self.idle:
            self._finish(linger=False)

    def abort(self) -> None:
        self.transport.abort()

    def check(self, now: float) -> None:
        """Act on a deadline that has passed."""
        if now >= self._write_deadline:
            self.transport.abort()
        elif now >= self._read_deadline:
            self._too_slow(now)

    def _too_slow(self, now: float) -> None:
        if self.phase is Phase.LINGER:
            self.transport.abort()
        elif self.phase is Phase.HEAD:
            if self._head_began:
                self._unreadable(Refusal(Why.SLOW_REQUEST, "the request's headers came too slowly"))
            else:
                self._finish(linger=False)
        elif self._exchange is not None:
            settings = self._frontend.settings
            since = self._body_began + (now - self._paused_since if self._paused_since is not None else 0.0)
            allowed = settings.body_grace_seconds + (
                self._exchange.received_bytes / settings.min_body_bytes_per_second
            )
            self._read_deadline = since + allowed
            # Who is being answered already may go on as slowly as it likes: that is a conversation.
            if now >= self._read_deadline and not self._exchange.status:
                self._unreadable(Refusal(Why.SLOW_REQUEST, "the request's body came too slowly"))

    def _unreadable(self, refusal: Refusal) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.complete:
            self._stop_reading = True  # what follows a whole request is no other one
            return
        if exchange is None:
            exchange = Exchange(_UNREAD, self, self._port, self.peer, self._frontend.now())
        exchange.break_off(refusal)
        if exchange.task is None:
            self._frontend.journal(exchange)

    def _finish(self, *, linger: bool) -> None:
        """Send what is left and close; `linger`: wait for the client to end first."""
        self.flush()
        if self.phase is Phase.CLOSED or self.transport.is_closing():
            return
        self.phase = Phase.LINGER
        if linger and self.transport.can_write_eof():
            self._read_deadline = self._frontend.now() + _LINGER_SECONDS
            self.transport.write_eof()
            self.resume_reading()
        else:
            self._read_deadline = self._frontend.now() + self._frontend.settings.stall_seconds
            self.transport.close()


def _too_large(limit: int) -> RefusedError:
    return RefusedError(Refusal(Why.BODY_TOO_LARGE, f"the request's body is larger than {limit} bytes"))
