"""What the activator answers by itself while a model is parked, in the shapes of the OpenAI API.

Probes, metrics and the list of models neither wake a model nor count as traffic: `QuietRequests` says which
requests those are, `quiet_answer` what they get.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote_to_bytes

from wattkeeper.core.activation import Route
from wattkeeper.core.refusals import Refusal, Why

_MODELS = b"/v1/models"
_EVENT = b"data: %s\n\n"
#: A comment line of an event stream: ignored by every client, and enough to keep it waiting.
COMMENT = b": waking\n\n"


class Quiet(StrEnum):
    """How a quiet request is answered."""

    HEALTH = "health"  # 200: the model can be had, though its pods may be gone
    METRICS = "metrics"
    MODELS = "models"
    MODEL = "model"  # one of the list


@dataclass(frozen=True, slots=True)
class QuietRequests:
    """Which requests neither wake a model nor count as traffic: GET and HEAD of these paths, or anything by
    these agents (prefixes of User-Agent)."""

    health_paths: frozenset[bytes] = frozenset(
        {b"/health", b"/healthz", b"/livez", b"/readyz", b"/ping", b"/health/live", b"/health/ready"}
    )
    metrics_paths: frozenset[bytes] = frozenset({b"/metrics"})
    lists_models: bool = True
    agents: tuple[bytes, ...] = (b"kube-probe/", b"GoogleHC/", b"ELB-HealthChecker/")

    def kind(self, method: bytes, path: bytes, agent: bytes = b"") -> Quiet | None:
        """How the request is answered quietly; None: it is traffic."""
        if method not in (b"GET", b"HEAD"):
            return None
        if path in self.health_paths:
            return Quiet.HEALTH
        if path in self.metrics_paths:
            return Quiet.METRICS
        if self.lists_models and path == _MODELS:
            return Quiet.MODELS
        if self.lists_models and path.startswith(_MODELS + b"/"):
            return Quiet.MODEL
        return Quiet.HEALTH if self.agents and agent.startswith(self.agents) else None


@dataclass(frozen=True, slots=True)
class QuietAnswer:
    """An answer of the activator's own."""

    status: int
    content_type: bytes
    body: bytes


def quiet_answer(kind: Quiet, route: Route, path: bytes) -> QuietAnswer | Refusal:
    """What a quiet request gets while no pod is there to answer it."""
    match kind:
        case Quiet.HEALTH:
            return _json({"status": "parked", "state": route.state.value})
        case Quiet.METRICS:
            text = (
                "# HELP wattkeeper_model_parked The model's pods are gone; a request wakes it.\n"
                "# TYPE wattkeeper_model_parked gauge\nwattkeeper_model_parked 1\n"
            )
            return QuietAnswer(200, b"text/plain; version=0.0.4; charset=utf-8", text.encode())
        case Quiet.MODELS:
            return _json({"object": "list", "data": [_entry(route, name) for name in route.served_models]})
        case Quiet.MODEL:
            wanted = unquote_to_bytes(path[len(_MODELS) + 1 :]).decode("utf-8", "replace")
            if wanted in route.served_models:
                return _json(_entry(route, wanted))
            return Refusal(Why.MODEL_NOT_FOUND, f"the model {wanted[:200]!r} isn't served here")


def _json(value: object) -> QuietAnswer:
    return QuietAnswer(200, b"application/json", json.dumps(value, ensure_ascii=False).encode())


def _entry(route: Route, name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": route.created_at, "owned_by": "wattkeeper"}


def wants_events(accept: bytes, content_type: bytes, body: Sequence[bytes], complete: bool) -> bool:
    """Whether a client that waits is waiting for an event stream, and may so be sent comments meanwhile."""
    if b"text/event-stream" in accept.lower():
        return True
    if not complete or not content_type.lower().startswith(b"application/json"):
        return False
    try:
        asked = json.loads(b"".join(body))
    except (ValueError, RecursionError):
        return False
    return isinstance(asked, dict) and asked.get("stream") is True


def error_event(body: bytes) -> bytes:
    """An error inside a stream that has begun; `body`: what would have been the answer's."""
    try:
        shown = json.dumps(json.loads(body))
    except (ValueError, RecursionError):
        message = body[:2000].decode("utf-8", "replace")
        shown = json.dumps(
            {"error": {"message": message, "type": "server_error", "param": None, "code": None}}
        )
    return _EVENT % shown.encode()
