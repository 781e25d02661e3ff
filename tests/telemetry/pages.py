"""Pages served on loopback, as exporters and model servers serve theirs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Pages:
    """A server whose pages a test changes at will; a page that is missing answers 404."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.pages: dict[str, str] = {}
        self.asked: list[str] = []
        self.address = f"127.0.0.1:{server.server_port}"

    def url(self, path: str = "/metrics") -> str:
        return f"http://{self.address}{path}"


@contextmanager
def serving_pages() -> Iterator[Pages]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages.asked.append(self.path)
            page = pages.pages.get(self.path)
            self.send_response(200 if page is not None else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            body = (page or "").encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    pages = Pages(server)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield pages
    finally:
        server.shutdown()
        server.server_close()
