"""A model server as the activator meets it: a process of its own, with the OpenAI paths.

`python -m tests.integration.activator.engine PORT` listens when it reads a line, remembers the requests that
it has begun by their id, so that a test can see what was lost or came twice, and says so at its end.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
from collections import Counter

from aiohttp import WSMsgType, web

_MIB = 1024**2
#: An idle connection is closed after so long.
KEEP_ALIVE_SECONDS = 0.3


class Engine:
    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        self.headers: dict[str, list[list[str]]] = {}

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answers with a digest of the body; `stream`: `n` events, `interval` seconds apart."""
        body = await request.read()
        asked = json.loads(body)
        name = asked["id"]
        self.begun[name] += 1
        self.headers[name] = [[key, value] for key, value in request.headers.items()]
        answer = {"id": name, "sha256": hashlib.sha256(body).hexdigest(), "pid": os.getpid()}
        try:
            if not asked.get("stream"):
                await asyncio.sleep(asked.get("seconds", 0))
                self.finished[name] += 1
                return web.json_response(answer)
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for number in range(asked["n"]):
                await response.write(b"data: %s\n\n" % json.dumps(answer | {"number": number}).encode())
                await asyncio.sleep(asked.get("interval", 0))
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled[name] += 1
            raise
        self.finished[name] += 1
        return response

    async def echo(self, request: web.Request) -> web.StreamResponse:
        """Sends the body back as it comes."""
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response

    async def digest(self, request: web.Request) -> web.Response:
        """Reads the body, as slowly as `bytes_per_second` says."""
        pace = float(request.query.get("bytes_per_second", "inf"))
        digest, size = hashlib.sha256(), 0
        async for chunk in request.content.iter_any():
            digest.update(chunk)
            size += len(chunk)
            await asyncio.sleep(len(chunk) / pace)
        return web.json_response({"sha256": digest.hexdigest(), "bytes": size})

    async def big(self, request: web.Request) -> web.StreamResponse:
        """So many MiB."""
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(int(request.query["mib"])):
            await response.write(b"x" * _MIB)
        await response.write_eof()
        return response

    async def websocket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        return socket

    def said(self) -> dict[str, object]:
        return {
            "begun": self.begun,
            "finished": self.finished,
            "cancelled": self.cancelled,
            "headers": self.headers,
        }

    async def counts(self, _: web.Request) -> web.Response:
        return web.json_response(self.said())

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "from the engine"}]})

    async def die(self, request: web.Request) -> web.StreamResponse:
        """Begins an answer, then the process is gone."""
        if request.query.get("begun"):
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"half")
            await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def main(port: int) -> None:
    sys.stdin.readline()
    engine = Engine()
    app = web.Application(client_max_size=1024 * _MIB)
    app.add_routes(
        [
            web.post("/v1/chat/completions", engine.completions),
            web.post("/echo", engine.echo),
            web.post("/digest", engine.digest),
            web.get("/big", engine.big),
            web.get("/ws", engine.websocket),
            web.get("/counts", engine.counts),
            web.get("/health", engine.health),
            web.get("/v1/models", engine.models),
            web.route("*", "/die", engine.die),
        ]
    )
    web.run_app(
        app,
        host="127.0.0.1",
        port=port,
        print=lambda *_: print("listening", flush=True),
        access_log=None,
        backlog=2048,
        shutdown_timeout=30,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        handler_cancellation=True,
    )
    print(json.dumps(engine.said()), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
