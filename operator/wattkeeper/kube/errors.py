"""What can go wrong with a request to the Kubernetes API, by what to do about it.

ApiError
├── NotFoundError     404: the object isn't there (any more)
├── ConflictError     409: it changed since it was read, or exists already: read again, decide again
├── DeniedError       the server refuses this very request: repeating it is no use until someone changes
│                     the resource, a quota, a policy or the operator's rights
└── TransientError    timeouts, 429, 5xx, broken connections: the same request may pass later
LeadershipLostError   this process must not write any more
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: How server-side apply words a body that doesn't fit the kind's schema, under the status 500.
_UNTYPABLE = "failed to create typed patch object"
_TRANSIENT = frozenset({401, 408, 425, 429, 500, 502, 503, 504})


class ApiError(Exception):
    """`status` is the HTTP status, 0 when there was no answer; `reason` the API's own CamelCase word."""

    def __init__(
        self, what: str, status: int, reason: str, message: str, *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"{what}: {message or reason} ({status or 'no answer'})")
        self.what = what
        self.status = status
        self.reason = reason
        self.message = message or reason
        self.retry_after_seconds = retry_after_seconds


class NotFoundError(ApiError):
    """The object isn't there."""


class ConflictError(ApiError):
    """The object changed since it was read, or exists already."""


class DeniedError(ApiError):
    """Refused for good: invalid, forbidden, over quota."""

    @property
    def lacks_rights(self) -> bool:
        """Whether RBAC refuses it (admission says 'forbidden' too, in other words)."""
        return self.status == 403 and " cannot " in self.message and " in API group " in self.message


class TransientError(ApiError):
    """Worth repeating."""


class LeadershipLostError(Exception):
    """The Lease isn't held any more, as far as this process can know."""


def error_of(what: str, status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error that an answer of the API server stands for; `what` says what was tried."""
    details = _status_object(body)
    reason = str(details.get("reason") or f"HTTP{status}")
    message = str(details.get("message") or body[:200].decode(errors="replace").strip())
    kind: type[ApiError] = DeniedError
    if status in _TRANSIENT and not message.startswith(_UNTYPABLE):
        kind = TransientError
    elif status in (404, 410):
        kind = NotFoundError
    elif status == 409:
        kind = ConflictError
    return kind(what, status, reason, message, retry_after_seconds=_retry_after(headers))


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return min(60.0, max(0.0, float(headers.get("Retry-After", ""))))
    except ValueError:
        return None
