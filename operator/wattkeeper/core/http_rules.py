"""The rules of a reverse proxy for HTTP/1.1 messages (RFC 9110 and 9112): what is passed on, and how framed.

Pure functions on what a parser has read. Names and values are the bytes as they came: case, order and
repetition are kept. Every head that is written here has its own framing, made from what was parsed, so two
parsers in a row can't disagree about where a message ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from wattkeeper.core.refusals import Refusal, RefusedError, Why

Headers = Sequence[tuple[bytes, bytes]]

#: Meant for the next hop alone (RFC 9110, 7.6.1), with what the forwarding itself writes anew.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"content-length",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_TO_POD = _HOP_BY_HOP | {b"expect", b"http2-settings", b"via", b"x-forwarded-for"}
#: Never dropped on a client's word in `Connection`: without them the request would mean something else.
_ALWAYS_KEPT = frozenset({b"host", b"x-forwarded-host", b"x-forwarded-proto", b"authorization"})
#: Fields that steer the framing or the routing must not come as trailers (RFC 9110, 6.5.1).
_NOT_TRAILERS = _NOT_TO_POD | {b"host", b"trailer", b"authorization", b"set-cookie", b"content-type"}
_READ = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"user-agent",
        b"via",
    }
)
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
#: TRACE would send the client's own secrets back; CONNECT asks for a tunnel to anywhere.
_REFUSED_METHODS = frozenset({b"CONNECT", b"TRACE"})


@dataclass(slots=True)
class RequestHead:
    """A request's first lines, read and found sound. `target` is in origin form (or `*`)."""

    method: bytes
    target: bytes
    version: str  # "1.0" or "1.1"
    headers: Headers
    host: bytes | None
    content_length: int | None = None
    chunked: bool = False
    options: frozenset[bytes] = frozenset()  # of Connection, in lower case
    expects_continue: bool = False
    accepts_trailers: bool = False
    upgrade: bytes = b""  # in lower case; empty: none is asked for
    via: bytes = b""
    agent: bytes = b""

    def field(self, name: bytes) -> bytes:
        """The first field of that name (in lower case), empty when there is none."""
        return next((value for key, value in self.headers if key.lower() == name), b"")

    @property
    def path(self) -> bytes:
        return self.target.partition(b"?")[0]

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.content_length)

    @property
    def keeps_alive(self) -> bool:
        return self.version == "1.1" and b"close" not in self.options

    @property
    def wants_websocket(self) -> bool:
        return self.upgrade == b"websocket" and self.method == b"GET" and not self.has_body


def read_request(method: bytes, target: bytes, version: str, headers: Headers) -> RequestHead:
    """Understand a parsed head; raises RefusedError where it is ambiguous or asks for what isn't offered."""
    if version not in ("1.0", "1.1"):
        raise RefusedError(Refusal(Why.VERSION, f"HTTP/{version} isn't spoken here: use HTTP/1.1"))
    if method in _REFUSED_METHODS:
        raise RefusedError(Refusal(Why.METHOD, f"{method.decode()} isn't offered"))
    head = RequestHead(method, target, version, headers, host=None)
    options: list[bytes] = []
    for name, value in headers:
        lower = name.lower()
        if lower in _READ:
            _read_field(head, lower, value, options)
    head.options = frozenset(options)
    if b"upgrade" not in head.options:
        head.upgrade = b""
    if head.chunked and (version == "1.0" or head.content_length is not None):
        raise _malformed("Transfer-Encoding beside Content-Length, or in HTTP/1.0")
    if target[:1] not in (b"/", b"*"):
        _use_origin_form(head)
    if head.host is None and version == "1.1":
        raise _malformed("Host is missing")
    return head


def _read_field(head: RequestHead, lower: bytes, value: bytes, options: list[bytes]) -> None:  # noqa: PLR0912 - a case a field
    match lower:
        case b"host":
            if head.host is not None or not _HOST.fullmatch(value):
                raise _malformed("Host must be given once, and be a host")
            head.host = value
        case b"content-length":
            if head.content_length is not None or not value.isdigit():
                raise _malformed("Content-Length must be given once, in digits")
            head.content_length = int(value)
        case b"transfer-encoding":
            *others, last = (coding.strip().lower() for coding in value.split(b","))
            if head.chunked or last != b"chunked":
                raise _malformed("Transfer-Encoding must be given once, and end with chunked")
            if others:
                raise RefusedError(Refusal(Why.CODING, "the only Transfer-Encoding understood is chunked"))
            head.chunked = True
        case b"connection":
            options.extend(option.strip().lower() for option in value.split(b","))
        case b"expect":
            head.expects_continue = value.strip().lower() == b"100-continue" and head.version == "1.1"
        case b"te":
            head.accepts_trailers = b"trailers" in value.lower()
        case b"upgrade":
            head.upgrade = value.strip().lower()
        case b"user-agent":
            head.agent = value
        case b"via":
            head.via = head.via + b"," + value if head.via else value


def _use_origin_form(head: RequestHead) -> None:
    """`GET http://host/path` means `GET /path` with that Host (RFC 9112, 3.2.2)."""
    try:
        parts = urlsplit(head.target.decode("latin-1"))
    except ValueError:
        raise _malformed("the target isn't a URL") from None
    host = parts.netloc.encode("latin-1")
    if parts.scheme.lower() not in ("http", "https") or not host or not _HOST.fullmatch(host):
        raise _malformed("the target must be a path, or an http URL without credentials")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head.target = path.encode("latin-1")
    head.host = host
    head.headers = [(b"Host", host), *((n, v) for n, v in head.headers if n.lower() != b"host")]


def _malformed(message: str) -> RefusedError:
    return RefusedError(Refusal(Why.MALFORMED, message))


def without_upgrade(method: bytes, target: bytes, headers: Headers) -> bytes:
    """The head once more without its wish to upgrade, for a parser that would take the body for the other
    protocol (Java's client asks for h2c with every first request)."""
    lines = [method, b" ", target, b" HTTP/1.1\r\n"]
    for name, value in headers:
        lower = name.lower()
        if lower in (b"upgrade", b"http2-settings"):
            continue
        if lower == b"connection":
            options = [o.strip() for o in value.split(b",")]
            value = b", ".join(o for o in options if o.lower() not in (b"upgrade", b"http2-settings"))  # noqa: PLW2901
        lines += [name, b": ", value, b"\r\n"]
    lines.append(b"\r\n")
    return b"".join(lines)


def request_to_pod(head: RequestHead, client: bytes, pod: bytes, via: bytes) -> bytes:
    """The head as the pod gets it: one request a connection, Host untouched, `X-Forwarded-*` set."""
    dropped = _NOT_TO_POD | (head.options - _ALWAYS_KEPT) if head.options else _NOT_TO_POD
    lines = [head.method, b" ", head.target, b" HTTP/1.1\r\n"]
    forwarded_for = []
    proto = host = False
    for name, value in head.headers:
        lower = name.lower()
        if lower == b"x-forwarded-for":
            forwarded_for.append(value)
        if lower in dropped:
            continue
        proto = proto or lower == b"x-forwarded-proto"
        host = host or lower == b"x-forwarded-host"
        lines += [name, b": ", value, b"\r\n"]
    forwarded_for.append(client)
    if head.host is None:  # HTTP/1.0
        lines += [b"Host: ", pod, b"\r\n"]
    lines += [b"X-Forwarded-For: ", b", ".join(forwarded_for), b"\r\n"]
    if not proto:
        lines.append(b"X-Forwarded-Proto: http\r\n")
    if not host and head.host is not None:
        lines += [b"X-Forwarded-Host: ", head.host, b"\r\n"]
    seen = head.via + b", " if head.via else b""
    lines += [b"Via: ", seen, head.version.encode(), b" ", via, b"\r\n"]
    if head.chunked:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    elif head.content_length is not None:
        lines.append(b"Content-Length: %d\r\n" % head.content_length)
    if head.wants_websocket:
        lines.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    elif head.accepts_trailers:
        lines.append(b"TE: trailers\r\nConnection: close, TE\r\n\r\n")
    else:
        lines.append(b"Connection: close\r\n\r\n")
    return b"".join(lines)


def passed_through(head: RequestHead, via: bytes) -> bool:
    """Whether this very activator has forwarded the request before: a loop."""
    return any(entry.split()[1:2] == [via] for entry in head.via.split(b",")) if head.via else False


class Framing(Enum):
    """How the end of a body is told."""

    NONE = "no body"
    LENGTH = "Content-Length"
    CHUNKED = "chunked"
    CLOSE = "end of the connection"


def has_no_body(method: bytes, status: int) -> bool:
    """Whether an answer ends with its head, whatever that says (RFC 9112, 6.3)."""
    return method == b"HEAD" or status < 200 or status in (204, 304)


def framing_to_client(head: RequestHead, status: int, content_length: int | None) -> Framing:
    """How an answer is framed; `content_length` None: not known beforehand."""
    if has_no_body(head.method, status):
        return Framing.NONE
    if content_length is not None:
        return Framing.LENGTH
    return Framing.CHUNKED if head.version == "1.1" else Framing.CLOSE


@dataclass(slots=True)
class ResponseHead:
    """A pod's answer up to its body."""

    status: int
    reason: bytes
    headers: Headers
    content_length: int | None = None
    chunked: bool = False
    event_stream: bool = False


def read_response(status: int, reason: bytes, headers: Headers) -> ResponseHead:
    """Understand a parsed head; raises ValueError for a coding that can't be passed on."""
    head = ResponseHead(status, reason, headers)
    for name, value in headers:
        lower = name.lower()
        if lower == b"content-length":
            head.content_length = int(value)
        elif lower == b"transfer-encoding":
            if value.strip().lower() != b"chunked":
                raise ValueError(f"Transfer-Encoding {value[:40]!r}")
            head.chunked = True
        elif lower == b"content-type":
            head.event_stream = value.lower().startswith(b"text/event-stream")
    return head


def response_to_client(answer: ResponseHead, framing: Framing, close: bool, extra: bytes = b"") -> bytes:
    """The answer's head as the client gets it; `extra`: further header lines."""
    dropped = _HOP_BY_HOP
    for name, value in answer.headers:
        if name.lower() == b"connection":
            dropped = dropped | {option.strip().lower() for option in value.split(b",")}
    lines = [b"HTTP/1.1 %d " % answer.status, answer.reason, b"\r\n"]
    for name, value in answer.headers:
        if name.lower() not in dropped:
            lines += [name, b": ", value, b"\r\n"]
    if framing is Framing.CHUNKED:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    elif answer.content_length is not None and answer.status >= 200 and answer.status != 204:
        lines.append(b"Content-Length: %d\r\n" % answer.content_length)
    if answer.status == 101:
        lines.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
    elif close:
        lines.append(b"Connection: close\r\n")
    lines += [extra, b"\r\n"]
    return b"".join(lines)


def last_chunk(trailers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The end of a chunked body, with those trailers that may be passed on."""
    lines = [b"0\r\n"]
    for name, value in trailers:
        if name.lower() not in _NOT_TRAILERS:
            lines += [name, b": ", value, b"\r\n"]
    lines.append(b"\r\n")
    return b"".join(lines)
