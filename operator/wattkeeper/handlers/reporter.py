"""Telling users: status, written on change only, and Events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from wattkeeper.api.conditions import Stamp
from wattkeeper.api.status import same_status
from wattkeeper.kube.client import Object
from wattkeeper.kube.events import EventRecorder, Severity
from wattkeeper.kube.executor import Executor
from wattkeeper.kube.resources import LLM_DEPLOYMENTS
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import claim_of


class Reporter:
    """Writes what was decided about an LLMDeployment, and remembers it at once."""

    def __init__(
        self, executor: Executor, events: EventRecorder, snapshot: Snapshot, now: Callable[[], datetime]
    ) -> None:
        self._executor = executor
        self._events = events
        self._snapshot = snapshot
        self._now = now

    def stamp(self, resource: Object) -> Stamp:
        """Which generation is spoken of, and when."""
        return Stamp(int(resource["metadata"].get("generation", 0)), self._now())

    async def write(self, resource: Object, status: Mapping[str, Any]) -> Object:
        """Write the status if it changed; returns the resource with it.

        What was written counts from here on, before any watch tells of it: promises are made of it. Raises
        ConflictError when the resource changed since it was read.
        """
        if same_status(resource.get("status") or {}, status):
            return resource
        written = await self._executor.write_status(LLM_DEPLOYMENTS, resource, status)
        self._snapshot.claims.observe(claim_of(written))
        return written

    def event(self, resource: Object, severity: Severity, reason: str, action: str, note: str) -> None:
        """Say something where `kubectl describe` shows it."""
        self._events.record(resource, severity, reason, action, note)
