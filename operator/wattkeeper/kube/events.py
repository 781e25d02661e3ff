"""Events of the operator: what was decided, and why, where `kubectl describe` shows it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from wattkeeper.api import names
from wattkeeper.kube.client import Client, Request
from wattkeeper.kube.errors import ApiError
from wattkeeper.kube.resources import EVENTS

logger = logging.getLogger(__name__)

Severity = Literal["Normal", "Warning"]

_MAX_NOTE = 1024  # of the API
#: The same thing about the same object is said once in so long; conditions say what holds meanwhile.
_REPEAT_SECONDS = 600.0
_REMEMBERED = 4096
_MOST_UNSENT = 4096


class EventRecorder:
    """Writes Events, best effort: one that can't be written never holds up what it is about."""

    def __init__(self, client: Client, instance: str, clock: Callable[[], float]) -> None:
        self._client = client
        self._instance = instance[:128]
        self._clock = clock
        self._said: OrderedDict[tuple[str, ...], float] = OrderedDict()
        self._unsent: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_UNSENT)

    def record(
        self, about: Mapping[str, Any], severity: Severity, reason: str, action: str, note: str
    ) -> None:
        """Say something about an object. `reason` and `action` are CamelCase words; `note` is for people.

        It is sent by `work`, so that nobody waits for it.
        """
        metadata = about["metadata"]
        if self._said_lately((metadata["uid"], severity, reason, note)):
            return
        namespace = metadata.get("namespace") or "default"
        event = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}", "namespace": namespace},
            "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "reportingController": f"{names.GROUP}/operator",
            "reportingInstance": self._instance,
            "type": severity,
            "reason": reason,
            "action": action,
            "note": note if len(note) <= _MAX_NOTE else note[: _MAX_NOTE - 1] + "…",
            "regarding": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "namespace": metadata.get("namespace"),
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
        }
        try:
            self._unsent.put_nowait(event)
        except asyncio.QueueFull:
            logger.warning("too many Events, one about %s is lost: %s", metadata["name"], note)

    async def work(self) -> None:
        """Send what was recorded, for as long as the leader leads."""
        while True:
            await self._send(await self._unsent.get())

    async def flush(self) -> None:
        """Send what is recorded by now."""
        while not self._unsent.empty():
            await self._send(self._unsent.get_nowait())

    async def _send(self, event: dict[str, Any]) -> None:
        path = EVENTS.collection(event["metadata"]["namespace"])
        try:
            await self._client.send(Request("POST", path, EVENTS.kind, {}, event))
        except ApiError as error:
            logger.debug("an Event was lost: %s", error)

    def _said_lately(self, what: tuple[str, ...]) -> bool:
        now = self._clock()
        before = self._said.pop(what, None)
        lately = before is not None and now - before < _REPEAT_SECONDS
        self._said[what] = before if lately and before is not None else now
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        return lately
