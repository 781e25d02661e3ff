"""Why a request isn't answered by its model, and what the client is told: OpenAI-shaped errors.

Clients of the OpenAI API read the status, `Retry-After`, and `error.code` of the JSON body.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum


class Why(Enum):
    """Each reason with its HTTP status; the name in lower case is the `code` and the metrics' label."""

    MALFORMED = 400
    MODEL_NOT_FOUND = 404
    METHOD = 405
    SLOW_REQUEST = 408
    BODY_TOO_LARGE = 413
    HEAD_TOO_LARGE = 431
    INTERNAL = 500
    CODING = 501
    POD_FAILED = 502
    QUEUE_FULL = 503, 1
    QUEUE_BYTES = 503, 2
    WAKE_TIMEOUT = 503, 3
    WAKE_IMPOSSIBLE = 503, 4
    SHUTTING_DOWN = 503, 5
    TOO_MANY_CONNECTIONS = 503, 6
    VERSION = 505
    LOOP = 508

    def __init__(self, status: int, _distinct: int = 0) -> None:
        self.status = status

    @property
    def code(self) -> str:
        return self.name.lower()


REASON_PHRASES = {
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    505: b"HTTP Version Not Supported",
    508: b"Loop Detected",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer in place of the model's. `retry_after_seconds` None: coming back unchanged is no use."""

    why: Why
    message: str
    retry_after_seconds: int | None = None

    @property
    def status(self) -> int:
        return self.why.status

    def body(self) -> bytes:
        """The JSON of an OpenAI error."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": self.message, "type": kind, "param": None, "code": self.why.code}
        return json.dumps({"error": error}, ensure_ascii=False).encode()


class RefusedError(Exception):
    """Carries a refusal up to where it is answered."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.why.code}: {refusal.message}")
        self.refusal = refusal
