"""An API server that answers as a test says. A request that nothing was scripted for is a failure."""

import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration

from wattkeeper.kube.client import Client

Answer = Callable[[web.Request], Any]


class ScriptedApi:
    """Answers by method and path, in the order in which they were given; the last one is repeated."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.unexpected: list[str] = []

    def on(self, method: str, path: str, *answers: Any, status: int = 200) -> None:
        """Answers as JSON; a callable makes the whole response."""
        for answer in answers:
            made = answer if callable(answer) else _json(answer, status)
            self._answers[method, path].append(made)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        watch = "watch " if request.query.get("watch") else ""
        key = (watch + request.method, request.path)
        self.requests.append((key[0], request.path, dict(request.query), json.loads(text) if text else None))
        answers = self._answers.get(key)
        if not answers:
            self.unexpected.append(f"{key[0]} {request.path}")
            return web.json_response({"kind": "Status", "message": "not scripted", "code": 500}, status=500)
        answer = answers.popleft() if len(answers) > 1 else answers[0]
        response = answer(request)
        return await response if hasattr(response, "__await__") else response


def _json(body: Any, status: int) -> Answer:
    return lambda _: web.json_response(body, status=status)


def refusal(status: int, reason: str, message: str, **headers: str) -> Answer:
    """An answer of the API server that says no."""
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    return lambda _: web.json_response(body, status=status, headers=headers)


def stream(*events: dict[str, Any], then: Callable[[], Any] | None = None) -> Answer:
    """A watch: these events, then `then` is awaited before it ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(json.dumps(event).encode() + b"\n")
        if then is not None:
            await then()
        return response

    return answer


@asynccontextmanager
async def scripted(**options: Any) -> AsyncIterator[tuple[ScriptedApi, Client]]:
    """The server and a client of it; ends with an assertion that nothing unexpected was asked."""
    api = ScriptedApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    client = Client(configuration, **options)
    try:
        yield api, client
    finally:
        await client.close()
        await runner.cleanup()
    assert api.unexpected == []
