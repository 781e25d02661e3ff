"""Something else than a sound Prometheus behind the address."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from wattkeeper.telemetry.errors import (
    AccessRefusedError,
    MalformedAnswerError,
    NoGpuMetricsError,
    PartialAnswerError,
    QueryRefusedError,
    TelemetryError,
    TooSlowError,
    UnreachableError,
)
from wattkeeper.telemetry.prometheus import PrometheusSource
from wattkeeper.telemetry.promql import PrometheusOptions, PrometheusOptionsError, PromQl

Answer = Callable[[BaseHTTPRequestHandler], None]
EMPTY = '{"status":"success","data":{"resultType":"matrix","result":[]}}'


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def answering(status: int, body: str | bytes, **headers: str) -> Answer:
    content = body.encode() if isinstance(body, str) else body

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return answer


def trickling(request: BaseHTTPRequestHandler) -> None:
    """Always some more, never enough: each packet comes well within any timeout."""
    request.send_response(200)
    request.send_header("Content-Length", "2000")
    request.end_headers()
    for _ in range(2000):
        try:
            request.wfile.write(b" ")
            request.wfile.flush()
        except OSError:
            return
        time.sleep(0.05)


def hanging_up(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"status":')
    request.close_connection = True


def query(url: str, **options: object) -> object:
    fields: dict[str, object] = {"url": url, "query_timeout_seconds": 0.5} | options
    client = PromQl(PrometheusOptions(**fields))  # type: ignore[arg-type]
    try:
        return client.query("up[1m]", 1_700_000_000.0, time.monotonic() + 30)
    finally:
        client.close()


def error(kind: str, text: str) -> str:
    return json.dumps({"status": "error", "errorType": kind, "error": text})


@pytest.mark.parametrize(
    ("answer", "expected", "says"),
    [
        (answering(200, "<html>Sign in</html>"), MalformedAnswerError, "no JSON"),
        (answering(200, '{"status":"success"}'), MalformedAnswerError, "otherwise than Prometheus"),
        (answering(200, "[]"), MalformedAnswerError, "otherwise than Prometheus"),
        (answering(200, '{"data":{"result":{}}}'), MalformedAnswerError, "otherwise than Prometheus"),
        (answering(200, b"\xff\xfe\x00"), MalformedAnswerError, "no JSON"),
        (answering(302, "", Location="/login"), UnreachableError, "redirect"),
        (answering(401, "no"), AccessRefusedError, "token_file"),
        (answering(403, "no"), AccessRefusedError, "token_file"),
        (answering(400, error("bad_data", "parse error")), QueryRefusedError, "parse error"),
        (answering(422, error("execution", "too many samples")), QueryRefusedError, "too many samples"),
        (answering(404, "not found"), UnreachableError, "404"),
        (answering(502, "bad gateway"), UnreachableError, "bad gateway"),
        (answering(503, error("timeout", "query timed out")), TooSlowError, "query timed out"),
        (answering(504, "gateway timeout"), TooSlowError, "504"),
        (
            answering(200, EMPTY[:-1] + ',"warnings":["store 10.0.0.7 is down"]}'),
            PartialAnswerError,
            "store 10.0.0.7",
        ),
        (trickling, TooSlowError, "longer than 0.5 s"),
        (lambda request: time.sleep(1.5), TooSlowError, "longer than 0.5 s"),
        (hanging_up, UnreachableError, ""),
    ],
)
def test_what_is_no_answer_is_an_error_with_its_reason(
    answer: Answer, expected: type[TelemetryError], says: str
) -> None:
    began = time.monotonic()
    with serving(answer) as url, pytest.raises(expected) as raised:
        query(url)
    assert time.monotonic() - began < 30  # the trickle would go on for 100 s
    assert says in str(raised.value)
    assert type(raised.value) is expected


def test_a_label_called_warnings_is_no_warning() -> None:
    item = {"metric": {"__name__": "up", "warnings": "x"}, "values": [[1.0, "1"]]}
    body = json.dumps({"status": "success", "data": {"result": [item]}}, separators=(",", ":"))
    with serving(answering(200, body)) as url:
        assert query(url) == [item]


def test_a_compressed_answer_in_chunks() -> None:
    """As Prometheus sends large ones."""
    item = {"metric": {"__name__": "up"}, "values": [[float(i), str(i)] for i in range(50_000)]}
    packed = gzip.compress(json.dumps({"data": {"result": [item]}}).encode())

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        request.send_header("Content-Encoding", "gzip")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for start in range(0, len(packed), 999):
            part = packed[start : start + 999]
            request.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        request.wfile.write(b"0\r\n\r\n")

    with serving(answer) as url:
        assert query(url, query_timeout_seconds=20) == [item]


def test_an_answer_too_large_to_hold_is_refused_while_it_comes() -> None:
    with serving(answering(200, EMPTY + " " * (2 << 20))) as url:
        assert query(url) == []
        with pytest.raises(MalformedAnswerError, match="1 MiB"):
            query(url, max_answer_bytes=1 << 20)


def test_it_isnt_asked_twice() -> None:
    asked = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        answering(503, "busy")(request)

    with serving(answer) as url, pytest.raises(UnreachableError):
        query(url)
    assert len(asked) == 1
    assert "time=1700000000.000" in asked[0] and "timeout=" in asked[0]


def test_a_rotated_token_is_read_anew(tmp_path: Path) -> None:
    token, seen = tmp_path / "token", []

    def answer(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.headers["Authorization"])
        answering(200, EMPTY)(request)

    token.write_text("first\n")
    with serving(answer) as url:
        client = PromQl(PrometheusOptions(url=url, token_file=str(token)))
        for word in ("first", "second"):
            token.write_text(f"{word}\n")
            client.query("up[1m]", 0.0, time.monotonic() + 30)
        client.close()
    assert seen == ["Bearer first", "Bearer second"]


def test_a_token_that_went_away_is_an_error_too(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    with serving(answering(200, EMPTY)) as url:
        client = PromQl(PrometheusOptions(url=url, token_file=str(token)))
        token.unlink()
        with pytest.raises(UnreachableError, match="token"):
            client.query("up[1m]", 0.0, time.monotonic() + 30)
        client.close()


def test_a_certificate_that_isnt_trusted() -> None:
    with serving(answering(200, EMPTY)) as url, pytest.raises(UnreachableError, match="ca_file"):
        query(url.replace("http:", "https:"))


def test_no_time_left_is_no_query() -> None:
    client = PromQl(PrometheusOptions(url="http://127.0.0.1:9"))
    with pytest.raises(TooSlowError, match="in all"):
        client.query("up[1m]", 0.0, time.monotonic() - 1)
    client.close()


@pytest.mark.parametrize(
    "item",
    [
        '{"metric":{},"values":[[1,"1"]]}',
        '{"values":[[1,"1"]]}',
        "7",
        '{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL"},"values":[[1]]}',
        '{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL"},"values":[[1,"one"]]}',
        '{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL"},"values":7}',
    ],
)
async def test_series_that_are_none(item: str) -> None:
    body = '{"status":"success","data":{"resultType":"matrix","result":[' + item + "]}}"
    with serving(answering(200, body)) as url:
        source = PrometheusSource(PrometheusOptions(url=url, check_future=False))
        with pytest.raises(MalformedAnswerError):
            await source.read(1_700_000_000.0, None)
        await source.close()


class TestOptions:
    def test_every_problem_at_once_each_with_the_cure(self) -> None:
        with pytest.raises(PrometheusOptionsError) as raised:
            PrometheusOptions(
                url="prometheus:9090",
                selector={"a b": "c"},
                window_seconds=5,
                query_timeout_seconds=60,
                ca_file="/nowhere/ca.crt",
            )
        text = str(raised.value)
        for part in (
            "url: 'prometheus:9090'",
            "selector: 'a b'",
            "window_seconds: 5",
            "query_timeout",
            "ca_file",
        ):
            assert part in text

    def test_a_selectors_value_cant_leave_its_quotes(self) -> None:
        source = PrometheusSource(
            PrometheusOptions(url="http://127.0.0.1:9", selector={"cluster": 'a"} or up{x="'})
        )
        assert all(r'cluster="a\"} or up{x=\""' in query for query in source.queries())

    def test_trailing_slashes_are_no_matter(self) -> None:
        paths = []

        def answer(request: BaseHTTPRequestHandler) -> None:
            paths.append(request.path.partition("?")[0])
            answering(200, EMPTY)(request)

        with serving(answer) as url:
            query(f"{url}/prefix/")
        assert paths == ["/prefix/api/v1/query"]


async def test_a_server_that_never_ends_its_headers_holds_up_one_look_only() -> None:
    requests = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        requests.append(request.path)
        if len(requests) > 1:
            answering(200, EMPTY)(request)
            return
        request.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(60):
            try:
                request.wfile.write(f"X-{number}: x\r\n".encode())
            except OSError:
                return
            time.sleep(0.05)
        request.close_connection = True

    with serving(answer) as url:
        options = PrometheusOptions(
            url=url, query_timeout_seconds=0.3, look_timeout_seconds=0.3, check_future=False
        )
        source = PrometheusSource(options)
        with pytest.raises(TooSlowError, match="in all"):
            await source.read(1_700_000_000.0, None)
        with pytest.raises(NoGpuMetricsError):
            await source.read(1_700_000_000.0, None)
        await source.close()
