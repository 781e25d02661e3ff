"""Trimmed copies of what the cluster holds, kept by listing once and watching from there.

kopf's indexes would do this, but they hang at the start when there are more objects of a kind than
`worker_limit` (nolar/kopf#1243), keep an object for ever that was deleted while a watch was broken, and
hold a task and a memory for each pod of the cluster. A reflector holds one small value for each object
that matters (`trim` returns None for the others) and compares the whole list anew after a broken watch.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import aiohttp

from wattkeeper.kube.client import Client, Object
from wattkeeper.kube.errors import ApiError, TransientError
from wattkeeper.kube.resources import Resource

logger = logging.getLogger(__name__)

T = TypeVar("T")

Trim = Callable[[Object], T | None]
#: Told of every change: the value before (None: new) and after (None: gone), never equal ones.
Changed = Callable[[T | None, T | None], None]

#: The server ends a watch after so many seconds, so that connections spread over its replicas again …
WATCH_SERVER_SECONDS = 300
#: … and a connection that outlives that is dead.
WATCH_CLIENT_SECONDS = 330
#: Bookmarks come about every minute: silence for two means a dead connection.
_SILENCE_SECONDS = 150
_RECONNECT_SECONDS = 0.1  # a server that ends every watch at once isn't flooded
_BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(slots=True)
class Store(Generic[T]):
    """The values by object uid. `apply` and `replace` report what really changed."""

    changed: Changed[T]
    _values: dict[str, T] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values.values())

    def apply(self, uid: str, value: T | None) -> None:
        """One object is now like this; None: it is gone, or doesn't matter any more."""
        before = self._values.get(uid)
        if value is None:
            self._values.pop(uid, None)
        else:
            self._values[uid] = value
        if before != value:
            self.changed(before, value)

    def replace(self, values: dict[str, T]) -> None:
        """These are all there are."""
        for uid in self._values.keys() - values.keys():
            self.apply(uid, None)
        for uid, value in values.items():
            self.apply(uid, value)


class _ExpiredError(Exception):
    """The resource version is too old: list again."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind are watched."""

    namespace: str | None = None
    label_selector: str = ""


EVERYWHERE = Scope()


class Reflector(Generic[T]):
    """Keeps a `Store` of one kind equal to the cluster's, for as long as `run` runs."""

    def __init__(
        self, client: Client, resource: Resource, trim: Trim[T], store: Store[T], scope: Scope = EVERYWHERE
    ) -> None:
        self.resource = resource
        self.store = store
        self.synced = asyncio.Event()
        self._client = client
        self._trim = trim
        self._scope = scope

    async def run(self) -> None:
        """List, watch, and again: ends only by cancellation."""
        failures = 0
        while True:
            try:
                version = await self._list()
                failures = 0
                await self._watch_from(version)
            except _ExpiredError:
                logger.debug("%s: the watch is too far behind, listing again", self.resource.plural)
            except (ApiError, aiohttp.ClientError, OSError, ValueError) as error:
                delay = _BACKOFF_SECONDS[min(failures, len(_BACKOFF_SECONDS) - 1)] * random.uniform(0.8, 1.2)  # noqa: S311
                failures += 1
                severity = logging.DEBUG if failures == 1 else logging.WARNING
                logger.log(severity, "%s: %s; again in %.1f s", self.resource.plural, error, delay)
                await asyncio.sleep(delay)

    async def _list(self) -> str:
        values: dict[str, T] = {}
        version = ""
        async for items, at in self._client.pages(
            self.resource, self._scope.namespace, self._scope.label_selector
        ):
            version = at
            for item in items:
                value = self._value(item)
                if value is not None:
                    values[item["metadata"]["uid"]] = value
        self.store.replace(values)
        self.synced.set()
        return version

    def _value(self, item: Object) -> T | None:
        """What is kept of an object; None also where one can't be read, which must not hide the others."""
        try:
            return self._trim(item)
        except Exception:
            where = (item["metadata"].get("namespace"), item["metadata"].get("name"))
            logger.exception("%s %s: can't be read, and counts as not there", self.resource.plural, where)
            return None

    async def _watch_from(self, version: str) -> None:
        """Watch until the resource version expires; a watch that merely ends goes on where it was."""
        while True:
            query = {
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(WATCH_SERVER_SECONDS),
            } | ({"labelSelector": self._scope.label_selector} if self._scope.label_selector else {})
            limits = aiohttp.ClientTimeout(total=WATCH_CLIENT_SECONDS, sock_read=_SILENCE_SECONDS)
            try:
                async with self._client.watch(self.resource, self._scope.namespace, query, limits) as lines:
                    async for line in lines:
                        version = self._take(json.loads(line)) or version
            except TimeoutError:
                logger.debug("%s: the watch fell silent, watching anew", self.resource.plural)
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _take(self, event: Object) -> str | None:
        """Apply one event; returns the resource version it carries. Raises _ExpiredError, TransientError."""
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            if item.get("code") == 410:
                raise _ExpiredError
            reason, message = str(item.get("reason")), str(item.get("message"))
            raise TransientError(f"watch {self.resource.plural}", int(item.get("code", 0)), reason, message)
        metadata = item["metadata"]
        if kind != "BOOKMARK":
            self.store.apply(metadata["uid"], None if kind == "DELETED" else self._value(item))
        return str(metadata["resourceVersion"])
