"""Who may write: one process, by a Lease, and nobody a moment longer than that.

The election itself is `kubernetes.aio.leaderelection`. Around it:

* its requests time out and its connection errors count as failed attempts (there, either would hang or
  end the renewal);
* `fence` forbids writes as soon as the Lease may have run out by this process's own clock. The election
  alone would go on for up to the renew deadline after a process was stopped (SIGSTOP, a frozen VM) and
  woken again;
* whoever sees another holder in the Lease has lost at once;
* a process that ends in peace gives the Lease back, so that its successor needn't wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from wattkeeper.kube.errors import LeadershipLostError
from wattkeeper.settings import Settings

logger = logging.getLogger(__name__)

_WATCHDOG_SECONDS = 0.2
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds_now() -> float:
    """Seconds that go on while the process or the whole machine is stopped."""
    return time.clock_gettime(_CLOCK)


class _OneLine(logging.Filter):
    """The library's failures as one line each, without the traceback of an HTTP answer."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ApiException):
            if error.status == HTTPStatus.CONFLICT:
                return False  # another candidate was faster
            record.msg = f"{record.getMessage()}: {error.status} {error.reason}: {_message_of(error)}"
            record.args, record.exc_info = (), None
        return True


def _message_of(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.body)


logging.getLogger(LeaseLock.__module__).addFilter(_OneLine())


class Leadership:
    """The Lease of one process. `lead` runs the work while it is held."""

    def __init__(
        self, api: ApiClient, settings: Settings, *, clock: Callable[[], float] = seconds_now
    ) -> None:
        self.identity = settings.own_identity
        self.leading = False
        self._settings = settings
        self._clock = clock
        self._lost = asyncio.Event()
        self._lost_because = ""
        self._lock = _Lock(self, settings, api)
        self._renewed_at = float("-inf")

    def fence(self) -> None:
        """Raises LeadershipLostError unless the Lease surely is held at this moment."""
        if not self.leading:
            raise LeadershipLostError(self._lost_because or "the Lease isn't held")
        age = self._clock() - self._renewed_at
        if age > self._settings.renew_deadline_seconds:
            self.lose(f"the Lease wasn't renewed for {age:.1f} s")
            raise LeadershipLostError(self._lost_because)

    def renewed(self, at: float) -> None:
        """The Lease was written; `at` is when the request left."""
        self._renewed_at = at

    def lose(self, because: str) -> None:
        """From now on nothing may be written."""
        if self.leading:
            logger.error("leadership lost: %s", because)
            self.leading = False
            self._lost_because = because
            self._lost.set()

    def now(self) -> float:
        return self._clock()

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, run `work`, and return when it returned; the Lease is given back then.

        Raises what `work` raises, and LeadershipLostError when the Lease is lost meanwhile.
        """
        began = asyncio.Event()

        async def begin() -> None:
            self.leading = True
            began.set()

        election: asyncio.Task[Any] = asyncio.create_task(self._elect(begin), name="leader election")
        waiting: asyncio.Task[Any] = asyncio.create_task(began.wait(), name="waiting for the Lease")
        try:
            await asyncio.wait({election, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not began.is_set():
                election.result()  # raises what ended it
                return
            await self._until_done_or_lost(asyncio.create_task(_as_coroutine(work), name="leader's work"))
        finally:
            for task in (election, waiting):
                task.cancel()
            await asyncio.gather(election, waiting, return_exceptions=True)
            await self._release()

    async def _elect(self, begin: Callable[[], Awaitable[None]]) -> None:
        settings = self._settings
        election = LeaderElection(
            Config(
                self._lock,
                lease_duration=int(settings.lease_duration_seconds),
                renew_deadline=settings.renew_deadline_seconds,
                retry_period=settings.retry_period_seconds,
                onstarted_leading=begin,
                onstopped_leading=_nothing,
            )
        )
        logger.info("waiting for the Lease %s/%s as %s", self._lock.namespace, self._lock.name, self.identity)
        await election.run()
        self.lose(f"the Lease couldn't be renewed within {settings.renew_deadline_seconds:g} s")

    async def _until_done_or_lost(self, work: asyncio.Task[None]) -> None:
        watchdog = asyncio.create_task(self._watchdog(), name="lease watchdog")
        try:
            await asyncio.wait({work, watchdog}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise LeadershipLostError(self._lost_because)
        finally:
            for task in (watchdog, work):
                task.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.retry_period_seconds):
                    await asyncio.gather(watchdog, work, return_exceptions=True)

    async def _watchdog(self) -> None:
        """Ends when leadership ends, however that became known."""
        while not self._lost.is_set():
            try:
                self.fence()
            except LeadershipLostError:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), _WATCHDOG_SECONDS)

    async def _release(self) -> None:
        if self.leading:
            self.leading = False
            await self._lock.release()


class _Lock(LeaseLock):  # type: ignore[misc] # the library is untyped
    """The library's Lease, with timeouts, and telling `Leadership` what it saw."""

    def __init__(self, leadership: Leadership, settings: Settings, api: ApiClient) -> None:
        super().__init__(settings.lease_name, settings.lease_namespace, leadership.identity, api)
        self._leadership = leadership
        # Two attempts have to fit within the deadline.
        self._limit_seconds = settings.renew_deadline_seconds / 2

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        found, record = await self._limited(super().get(name, namespace))
        if found and record is not None and record.holder_identity not in (None, self.identity):
            self._leadership.lose(f"{record.holder_identity} holds the Lease")
        return found, record

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        return await self._written(self._create(name, namespace, election_record))

    async def _create(self, name: str, namespace: str, record: LeaderElectionRecord) -> bool:
        # The library's own passes `pretty=True`, which its generated API (37.0.2) refuses as no string.
        lease = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(record))
        try:
            await self.api_instance.create_namespaced_lease(namespace, lease)
        except ApiException as error:
            if error.status != HTTPStatus.CONFLICT:  # another candidate was faster
                logger.warning("can't create the Lease %s/%s: %s", namespace, name, _message_of(error))
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        return await self._written(super().update(name, namespace, updated_record))

    async def release(self) -> None:
        """Leave the Lease without a holder, if it is still ours."""
        try:
            async with asyncio.timeout(self._limit_seconds):
                found, record = await super().get(self.name, self.namespace)
                if found and record is not None and record.holder_identity == self.identity:
                    self.lease_reference.spec.holder_identity = None
                    self.lease_reference.spec.lease_duration_seconds = 1
                    await self.api_instance.replace_namespaced_lease(
                        self.name, self.namespace, self.lease_reference
                    )
                    logger.info("gave the Lease back")
        except (ApiException, aiohttp.ClientError, OSError) as error:
            logger.warning("couldn't give the Lease back, a successor waits for it to run out: %s", error)

    async def _written(self, request: Awaitable[bool]) -> bool:
        sent_at = self._leadership.now()
        done, _ = await self._limited(_paired(request))
        if done:
            self._leadership.renewed(sent_at)
        return done

    async def _limited(self, request: Awaitable[tuple[bool, Any]]) -> tuple[bool, Any]:
        try:
            async with asyncio.timeout(self._limit_seconds):
                return await request
        except (aiohttp.ClientError, OSError) as error:
            # What the library makes of a failed attempt: it tries again.
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)


async def _paired(request: Awaitable[bool]) -> tuple[bool, None]:
    return await request, None


async def _as_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _nothing() -> None:
    return None
