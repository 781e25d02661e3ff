"""What is kept of each request: counters, and a line in the access log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from wattkeeper.activator.exchange import Exchange
from wattkeeper.activator.metrics import Metrics, Outcome
from wattkeeper.core.refusals import Why

if TYPE_CHECKING:
    from wattkeeper.activator.model import Model

_FAILED = frozenset({Why.POD_FAILED, Why.INTERNAL})


class AccessLogStyle(StrEnum):
    OFF = "off"
    TEXT = "text"  # for people: key=value
    JSON = "json"  # one object a line, for collectors


class Journal:
    """Notes every request once, when it has ended. Lines are kept until `write_out`: a write for each would
    be a fifth of the work of forwarding."""

    def __init__(
        self,
        metrics: Metrics,
        models: Mapping[int, Model],
        style: AccessLogStyle,
        write: Callable[[str], object],
    ) -> None:
        self._metrics = metrics
        self._models = models
        self._style = style
        self._write = write
        self._lines: list[str] = []

    def note(self, exchange: Exchange, now: float, *, abandoned: bool = False) -> None:
        """Count an exchange that ended `now`, by the loop's clock."""
        outcome = outcome_of(exchange, abandoned=abandoned)
        model = self._models.get(exchange.port)
        if model is not None:
            model.metrics.outcomes[outcome].inc()
            if exchange.held_seconds is not None:
                model.metrics.held_seconds.observe(exchange.held_seconds)
        if exchange.refusal is not None:
            self._metrics.reject(model.route.model if model is not None else None, exchange.refusal.why)
        if self._style is not AccessLogStyle.OFF:
            entry = entry_of(exchange, outcome, str(model.route.model) if model is not None else "", now)
            self._lines.append(line_of(entry, self._style))

    def write_out(self) -> None:
        """Write the access log's lines that have gathered."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._write("".join(lines))


def outcome_of(exchange: Exchange, *, abandoned: bool) -> Outcome:
    """How an exchange ended."""
    if abandoned:
        return Outcome.ABANDONED
    if exchange.refusal is not None:
        return Outcome.FAILED if exchange.refusal.why in _FAILED else Outcome.REFUSED
    if exchange.failed:
        return Outcome.FAILED
    return Outcome.FORWARDED if exchange.target else Outcome.QUIET


def entry_of(exchange: Exchange, outcome: Outcome, model: str, now: float) -> dict[str, Any]:
    """The access log's fields. The path without the query, which may hold secrets."""
    entry: dict[str, Any] = {
        "time": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds"),
        "client": exchange.peer,
        "model": model,
        "method": exchange.head.method.decode(),
        "path": exchange.head.path.decode("ascii", "backslashreplace"),
        "status": exchange.status,
        "outcome": outcome.value,
        "received_bytes": exchange.received_bytes,
        "sent_bytes": exchange.sent_bytes,
        "seconds": round(now - exchange.arrived, 4),
        "pod": exchange.target,
    }
    if exchange.held_seconds is not None:
        entry["held_seconds"] = round(exchange.held_seconds, 4)
    if exchange.refusal is not None:
        entry["reason"] = exchange.refusal.why.code
    return entry


def line_of(entry: Mapping[str, Any], style: AccessLogStyle) -> str:
    """One line; the parser lets neither spaces nor control characters into a path."""
    if style is AccessLogStyle.JSON:
        return json.dumps(entry) + "\n"
    return " ".join([f"{key}={'-' if value == '' else value}" for key, value in entry.items()]) + "\n"
