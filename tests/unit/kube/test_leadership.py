"""The Lease, against an API server in memory: who leads, when it ends, and what the fence says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from wattkeeper.kube.errors import LeadershipLostError
from wattkeeper.kube.leadership import Leadership
from wattkeeper.settings import Settings

PATH = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class Leases:
    """Leases with resource versions, and a server that can be made to hang or to refuse."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes = 0
        self.hang = False
        self.refuse: int | None = None
        self.refused = 0

    @property
    def holder(self) -> str | None:
        return self.lease["spec"].get("holderIdentity") if self.lease else None

    async def handle(self, request: web.Request) -> web.Response:
        if self.hang:
            await asyncio.sleep(30)
        if self.refuse:
            self.refused += 1
            return self._status(self.refuse, "refused")
        if request.method == "GET":
            return web.json_response(self.lease) if self.lease else self._status(404, "no lease")
        body = await request.json()
        if request.method == "POST" and self.lease is not None:
            return self._status(409, "exists")
        known = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if request.method == "PUT" and body["metadata"]["resourceVersion"] != known:
            return self._status(409, "changed meanwhile")
        return self.store(body)

    def store(self, body: dict[str, Any]) -> web.Response:
        self.writes += 1
        body["metadata"]["resourceVersion"] = str(self.writes)
        self.lease = body
        return web.json_response(body)

    def taken_by(self, other: str) -> None:
        assert self.lease is not None
        self.lease["spec"]["holderIdentity"] = other
        self.lease["spec"]["renewTime"] = "2026-01-01T00:00:00.000001Z"
        self.store(json.loads(json.dumps(self.lease)))

    @staticmethod
    def _status(code: int, message: str) -> web.Response:
        return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


@asynccontextmanager
async def world() -> AsyncIterator[tuple[Leases, ApiClient]]:
    leases = Leases()
    app = web.Application()
    app.router.add_route("*", PATH, leases.handle)
    app.router.add_route("*", PATH + "/{name}", leases.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = ApiClient(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    try:
        yield leases, api
    finally:
        await api.close()
        await runner.cleanup()


def settings(identity: str, renew_deadline_seconds: float = 2) -> Settings:
    return Settings(
        identity=identity,
        lease_duration_seconds=renew_deadline_seconds + 1,
        renew_deadline_seconds=renew_deadline_seconds,
        retry_period_seconds=1,
    )


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def forever() -> None:
    await asyncio.sleep(60)


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition has no waiters
            await asyncio.sleep(0.01)


async def test_it_leads_works_and_gives_the_lease_back() -> None:
    async with world() as (leases, api):
        leadership = Leadership(api, settings("one"))
        seen: list[str | None] = []

        async def work() -> None:
            leadership.fence()
            seen.append(leases.holder)

        await leadership.lead(work)
        assert seen == ["one"]
        assert leases.holder is None
        with pytest.raises(LeadershipLostError):
            leadership.fence()


async def test_what_the_work_raises_comes_out_and_the_lease_goes_back() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    async with world() as (leases, api):
        with pytest.raises(ZeroDivisionError):
            await Leadership(api, settings("one")).lead(work)
        assert leases.holder is None


async def test_cancelled_while_leading_it_gives_the_lease_back() -> None:
    async with world() as (leases, api):
        leadership = Leadership(api, settings("one"))
        task = asyncio.create_task(leadership.lead(forever))
        await until(lambda: leadership.leading)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert leases.holder is None


async def test_the_fence_closes_when_the_process_was_stopped() -> None:
    """The clock went on while nothing ran: before the election has even noticed, nothing may be written."""
    async with world() as (leases, api):
        clock = Clock()
        leadership = Leadership(api, settings("one"), clock=clock)
        task = asyncio.create_task(leadership.lead(forever))
        await until(lambda: leadership.leading)
        leadership.fence()
        leases.hang = True
        clock.now += 2.1
        with pytest.raises(LeadershipLostError, match=r"wasn't renewed for 2\.1 s"):
            leadership.fence()
        with pytest.raises(LeadershipLostError):
            await asyncio.wait_for(task, 10)


async def test_whoever_sees_another_holder_has_lost_at_once() -> None:
    async with world() as (leases, api):
        leadership = Leadership(api, settings("one"))
        task = asyncio.create_task(leadership.lead(forever))
        await until(lambda: leadership.leading)
        leases.taken_by("two")
        with pytest.raises(LeadershipLostError, match="two holds the Lease"):
            await asyncio.wait_for(task, 10)
        assert leases.holder == "two"  # it isn't given back by who doesn't have it


@pytest.mark.parametrize("trouble", ["hang", "refuse"])
async def test_a_leader_that_cannot_renew_ends(trouble: str) -> None:
    async with world() as (leases, api):
        leadership = Leadership(api, settings("one"))
        task = asyncio.create_task(leadership.lead(forever))
        await until(lambda: leadership.leading)
        if trouble == "hang":
            leases.hang = True
        else:
            leases.refuse = 503
        with pytest.raises(LeadershipLostError):
            await asyncio.wait_for(task, 10)


async def test_one_failed_attempt_is_survived() -> None:
    async with world() as (leases, api):
        leadership = Leadership(api, settings("one", renew_deadline_seconds=8))
        task = asyncio.create_task(leadership.lead(forever))
        await until(lambda: leadership.leading)
        leases.refuse = 503
        await until(lambda: leases.refused == 1)
        leases.refuse = None
        writes = leases.writes
        await until(lambda: leases.writes > writes)
        assert leadership.leading
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_follower_waits_for_the_lease_to_run_out() -> None:
    async with world() as (leases, api):
        first, second = Leadership(api, settings("one")), Leadership(api, settings("two"))
        leading = asyncio.create_task(first.lead(forever))
        await until(lambda: first.leading)
        following = asyncio.create_task(second.lead(forever))
        await asyncio.sleep(1.5)
        assert not second.leading
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        await until(lambda: second.leading)
        assert leases.holder == "two"
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_lease_that_cannot_be_made_is_said_in_words(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as (leases, api):

        async def handle(request: web.Request) -> web.Response:
            if request.method == "POST":
                return Leases._status(403, 'namespaces "power" not found')
            return Leases._status(404, "no lease")

        leases.handle = handle  # type: ignore[method-assign]
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        api.configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        task = asyncio.create_task(Leadership(api, settings("one")).lead(forever))
        await until(lambda: "can't create the Lease" in caplog.text)
        assert 'namespaces "power" not found' in caplog.text
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()
