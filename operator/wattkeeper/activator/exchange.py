"""One request and its answer, as everything between the client's and the pod's connection sees it."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from wattkeeper.core.http_rules import (
    Framing,
    RequestHead,
    ResponseHead,
    framing_to_client,
    last_chunk,
    response_to_client,
)
from wattkeeper.core.openai_answers import COMMENT, error_event
from wattkeeper.core.refusals import REASON_PHRASES, Refusal

if TYPE_CHECKING:
    from wattkeeper.activator.client_connection import ClientConnection

#: A body that nobody takes yet is read only so far, unless a waiting room has made room for it. Bytes.
_UNCLAIMED_BYTES = 64 * 1024
#: Of a body that becomes an error inside a stream. Bytes.
_ERROR_BYTES = 64 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_EVENT_STREAM = ResponseHead(
    200,
    b"OK",
    [(b"Content-Type", b"text/event-stream; charset=utf-8"), (b"Cache-Control", b"no-cache")],
    event_stream=True,
)


class Sink(Protocol):
    """Where a request goes: a pod's connection."""

    def send_body(self, chunk: bytes) -> None: ...
    def end_body(self, trailers: list[tuple[bytes, bytes]]) -> None: ...
    def flush(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def abort(self) -> None: ...
    def pass_on(self, data: bytes) -> None: ...
    def end_of_tunnel(self) -> bool: ...


class Room(Protocol):
    """A waiting room, told when what waits in it grows."""

    def grow(self, exchange: Exchange, size_bytes: int) -> Refusal | None: ...


class Exchange:
    """A request that is being read, and the answer that is being written.

    `status` 0: no answer has begun. `failed`: the answer ended before its end; the client is shown so.
    """

    __slots__ = (
        "_early",
        "_error",
        "_framing",
        "_room",
        "_trailers",
        "arrived",
        "body",
        "close",
        "cold_start_seconds",
        "complete",
        "connection",
        "ended",
        "extra",
        "failed",
        "head",
        "held_seconds",
        "peer",
        "port",
        "quiet",
        "received_bytes",
        "refusal",
        "sent_bytes",
        "sink",
        "status",
        "target",
        "task",
    )

    def __init__(self, head: RequestHead, connection: ClientConnection, port: int, peer: str, now: float):
        self.head = head
        self.port = port
        self.peer = peer
        self.arrived = now
        self.task: asyncio.Task[None] | None = None
        # The request.
        self.body: list[bytes] = []  # what was read and not passed on
        self.received_bytes = 0
        self.complete = False
        self._trailers: list[tuple[bytes, bytes]] = []
        self.sink: Sink | None = None
        self._room: Room | None = None
        # The answer.
        self.status = 0
        self.sent_bytes = 0
        self.ended = False
        self.failed = False
        self.close = not head.keeps_alive
        self._framing = Framing.NONE
        self._early = False  # an event stream was begun while the request waited
        self.extra = b""  # header lines that a pod's answer gets
        self._error: bytearray | None = None  # of a pod's answer that can't be told otherwise any more
        self.connection = connection
        # For metrics and the access log.
        self.target = ""
        self.quiet = False
        self.held_seconds: float | None = None
        self.cold_start_seconds: float | None = None
        self.refusal: Refusal | None = None

    # The request, as it is read.

    def receive(self, chunk: bytes) -> Refusal | None:
        """A part of the body. Returns a refusal when there is no room for it."""
        self.received_bytes += len(chunk)
        if self.sink is not None:
            self.sink.send_body(chunk)
            return None
        self.body.append(chunk)
        if self._room is not None:
            return self._room.grow(self, len(chunk))
        if self.received_bytes > _UNCLAIMED_BYTES:
            self.connection.pause_reading()
        return None

    def finish_request(self, trailers: list[tuple[bytes, bytes]]) -> None:
        self.complete = True
        self._trailers = trailers
        if self.sink is not None:
            self.sink.end_body(trailers)

    def wait_in(self, room: Room | None) -> None:
        """The whole body may be read while it waits, as far as the room has space; None: it left."""
        self._room = room
        if room is not None:
            self.invite_body()
            self.connection.resume_reading()

    def invite_body(self) -> None:
        """Tell a client that waits for it to send the body."""
        if self.head.expects_continue and not self.received_bytes and not self.complete and not self.status:
            self.head.expects_continue = False
            self.connection.write(_CONTINUE)

    def send_body_to(self, sink: Sink) -> None:
        """Pass on what was read, and from now on what comes."""
        self.sink = sink
        self.invite_body()
        self.connection.resume_reading()  # before the sink may pause it
        body, self.body = self.body, []
        for chunk in body:
            sink.send_body(chunk)
        if self.complete:
            sink.end_body(self._trailers)

    # The answer, as it is written. Nothing is sent before `flush`.

    def inform(self, answer: ResponseHead) -> None:
        """An interim answer (1xx)."""
        if self.head.version == "1.1" and not self.status:
            self.connection.write(response_to_client(answer, Framing.NONE, close=False))

    def begin(self, answer: ResponseHead, extra: bytes = b"") -> None:
        """The answer's head."""
        if self.ended:
            return
        if self._early:
            if answer.status != 200 or not answer.event_stream:
                self._error = bytearray()
            return
        self.status = answer.status
        self._framing = framing_to_client(self.head, answer.status, answer.content_length)
        self.close = self.close or self._framing is Framing.CLOSE
        self.connection.write(response_to_client(answer, self._framing, self.close, extra))

    def write(self, chunk: bytes) -> None:
        """A part of the answer's body."""
        if self.ended:
            return
        if self._error is not None:
            self._error += chunk[: _ERROR_BYTES - len(self._error)]
            return
        self.sent_bytes += len(chunk)
        if self._framing is Framing.CHUNKED:
            self.connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        elif self._framing is not Framing.NONE:
            self.connection.write(chunk)

    def end(self, trailers: list[tuple[bytes, bytes]] | None = None) -> None:
        """The answer is whole."""
        if self.ended:
            return
        if self._error is not None:
            error, self._error = bytes(self._error), None
            self.failed = True
            self.write(error_event(error))
        if self._framing is Framing.CHUNKED:
            self.connection.write(last_chunk(trailers or ()))
        self.ended = True
        self.connection.answered(self)

    def flush(self) -> None:
        self.connection.flush()

    def comment(self) -> None:
        """Keep a client waiting that takes event streams; begins the stream."""
        if not self.status:
            self.close = True
            self.begin(_EVENT_STREAM)
            self._early = True
        self.write(COMMENT)
        self.flush()

    def answer(
        self, status: int, reason: bytes, content_type: bytes, body: bytes, extra: bytes = b""
    ) -> None:
        """A whole answer of the activator's own."""
        headers = [(b"Content-Type", content_type), (b"Date", formatdate(usegmt=True).encode())]
        self.begin(ResponseHead(status, reason, headers, content_length=len(body)), extra)
        self.write(body)
        self.end()
        self.flush()

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error, or end an answer that has begun in a way the client can't take for whole."""
        self.refusal = self.refusal or refusal
        if self.ended:
            return
        if self.status and not self._early:
            self.cut()
            return
        extra = b""
        if refusal.retry_after_seconds is not None:
            extra = b"Retry-After: %d\r\n" % refusal.retry_after_seconds
        self.answer(
            refusal.status, REASON_PHRASES[refusal.status], b"application/json", refusal.body(), extra
        )

    def break_off(self, refusal: Refusal) -> None:
        """Refuse a request whose handling has begun."""
        self.close = True
        if self.sink is not None:
            self.sink.abort()
        self.refuse(refusal)
        if self.task is not None:
            self.task.cancel()

    def cut(self) -> None:
        """The answer can't be finished: show that by ending the connection without its last chunk."""
        self.failed = True
        if not self.ended:
            self.ended = True
            self.connection.cut(reset=self._framing is Framing.CLOSE)
