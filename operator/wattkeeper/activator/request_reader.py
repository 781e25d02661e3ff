"""Reads requests from one client's bytes with llhttp, in its strict mode, and bounds what a head may take."""

from __future__ import annotations

from typing import Protocol

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from wattkeeper.core.http_rules import RequestHead, read_request, without_upgrade
from wattkeeper.core.refusals import Refusal, RefusedError, Why


class RequestSink(Protocol):
    """Who is told what was read."""

    def on_request(self, head: RequestHead) -> None: ...
    def on_request_body(self, chunk: bytes) -> None: ...
    def on_request_end(self, trailers: list[tuple[bytes, bytes]]) -> None: ...


class PipelinedError(Exception):
    """Another request came before this one was answered: the connection closes after the answer, and the
    client sends the other one again, as RFC 9112, 9.3.2 has it."""


class RequestReader:
    """One connection's requests, one after the other. `next()` is called when an answer is out."""

    __slots__ = (
        "_fed",
        "_fields_left",
        "_headers",
        "_in_body",
        "_max_head_bytes",
        "_max_header_fields",
        "_parser",
        "_progress",
        "_reparse",
        "_sink",
        "_size",
        "_target",
        "_trailers",
        "busy",
        "started",
    )

    def __init__(self, sink: RequestSink, max_head_bytes: int, max_header_fields: int) -> None:
        self._sink = sink
        self._max_head_bytes = max_head_bytes
        self._max_header_fields = max_header_fields
        self._parser = HttpRequestParser(self)
        self._reparse = b""
        self.busy = False  # a request was read, in part or whole, that isn't answered yet
        self.next()

    def next(self) -> None:
        """Ready for the next request."""
        self.busy = self.started = self._in_body = False
        self._size = 0  # of what the parser gave of head and trailers
        self._fed = 0  # bytes that the parser took since it last gave anything of a body
        self._fields_left = self._max_header_fields
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._trailers: list[tuple[bytes, bytes]] = []

    def feed(self, data: bytes) -> bytes:
        """Read on. Returns what follows a request for another protocol (a WebSocket's first frames).

        Raises RefusedError for what can't be read and PipelinedError.
        """
        self._progress = False
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            return self._after_upgrade(data[upgrade.args[0] :])
        except HttpParserCallbackError as error:
            raise _cause(error) from None
        except HttpParserError as error:
            raise self._refused(error) from None
        # A field, a chunk's extension or a row of empty lines that doesn't end is kept or swallowed inside
        # the parser, so what goes in is counted too.
        self._fed = 0 if self._progress else self._fed + len(data)
        if self._fed > self._max_head_bytes:
            raise _too_large(f"head of the request is larger than {self._max_head_bytes} bytes")
        return b""

    def _after_upgrade(self, rest: bytes) -> bytes:
        if not self._reparse:
            return rest
        head, self._reparse = self._reparse, b""
        self._parser = HttpRequestParser(self)
        self.next()
        return self.feed(head + rest)

    def _refused(self, error: HttpParserError) -> RefusedError:
        if self._parser.get_http_version() == "2.0":
            return RefusedError(Refusal(Why.VERSION, "HTTP/2 isn't spoken here: use HTTP/1.1"))
        return RefusedError(Refusal(Why.MALFORMED, f"this isn't sound HTTP/1.1: {error}"))

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._max_head_bytes:
            raise _too_large(f"head of the request is larger than {self._max_head_bytes} bytes")

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.busy:
            raise PipelinedError
        self.started = True

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._grow(len(part))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields_left -= 1
        if self._fields_left < 0:
            raise _too_large(f"request has more than {self._max_header_fields} header fields")
        self._grow(len(name) + len(value) + 4)
        (self._trailers if self._in_body else self._headers).append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        method = parser.get_method()
        head = read_request(method, self._target, parser.get_http_version(), self._headers)
        if parser.should_upgrade() and not head.wants_websocket:
            self._reparse = without_upgrade(method, self._target, self._headers)
            return
        self.busy = self._in_body = self._progress = True
        self._sink.on_request(head)

    def on_body(self, chunk: bytes) -> None:
        self._progress = True
        self._sink.on_request_body(chunk)

    def on_message_complete(self) -> None:
        if not self._reparse:
            self._in_body, self._progress = False, True
            self._sink.on_request_end(self._trailers)


def _too_large(what: str) -> RefusedError:
    return RefusedError(Refusal(Why.HEAD_TOO_LARGE, f"the {what}"))


def _cause(error: HttpParserCallbackError) -> BaseException:
    """What was raised inside a callback."""
    cause: BaseException = error.__context__ or error
    return cause
