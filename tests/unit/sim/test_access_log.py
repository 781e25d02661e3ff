"""Traces from access logs of OpenAI-compatible servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattkeeper.sim.access_log import Log, looks_like_a_log, read_log
from wattkeeper.sim.arrivals import TraceError

NGINX = (
    '10.0.0.1 - - [10/Oct/2025:13:55:40 +0000] "POST /v1/chat/completions HTTP/1.1" 200 512 "-" "x" 4.500\n'
    '10.0.0.1 - - [10/Oct/2025:13:55:41 +0000] "GET /health HTTP/1.1" 200 2 "-" "kube-probe" 0.001\n'
    '10.0.0.2 - - [10/Oct/2025:15:55:41 +0200] "POST /v1/completions HTTP/1.1" 200 99 "-" "app" rt=6.000\n'
)


def write(folder: Path, text: str) -> Path:
    path = folder / "access.log"
    path.write_text(text)
    return path


def rows(log: Log, model: str) -> list[tuple[float, float]]:
    return [
        (round(float(at), 6), float(service))
        for chunk in log.traces[model].chunks()
        for at, service in zip(chunk.arrivals, chunk.services, strict=True)
    ]


def test_the_combined_format_with_request_times(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, NGINX))
    # Both began at 13:55:35 UTC and a half, in the order of their beginnings.
    assert rows(log, "") == [(0.0, 6.0), (0.5, 4.5)]
    trace = log.traces[""]
    assert trace.starts_at == 1760104535.0 and trace.covers == 3600.0 and trace.name == "access"
    assert log.passed_over == 1


def test_json_lines_tell_models_apart(tmp_path: Path) -> None:
    lines = [
        {
            "timestamp": "2025-10-10T13:55:40Z",
            "path": "/v1/chat/completions",
            "model": "a",
            "duration_ms": 500,
        },
        {"timestamp": "2025-10-10T13:55:50", "path": "/v1/chat/completions", "model": "b", "duration": "1.5"},
        {"ts": 1760104600.0, "uri": "/v1/embeddings?x=1", "model": "a", "request_time": 2},
        {"created": 1760104700000, "model": "b", "latency_s": 3},
        {"time": "2025-10-10T13:55:40Z", "path": "/metrics"},
    ]
    log = read_log(write(tmp_path, "\n".join(map(json.dumps, lines))))
    assert rows(log, "a") == [(0.0, 0.5), (58.5, 2.0)]
    assert rows(log, "b") == [(9.0, 1.5), (160.5, 3.0)]  # the last one's time is when it began
    assert log.passed_over == 1 and log.traces["a"].starts_at == log.traces["b"].starts_at


def test_a_duration_for_all(tmp_path: Path) -> None:
    line = '1.2.3.4 - - [10/Oct/2025:13:55:40 +0000] "POST /v1/chat/completions HTTP/1.1" 200 5\n'
    log = read_log(write(tmp_path, line), default_service=8.0)
    assert rows(log, "") == [(0.0, 8.0)]
    with pytest.raises(TraceError, match=r"line 1: no duration: .*--service-seconds"):
        read_log(write(tmp_path, line))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'INFO: 10.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n',
            "line 1: neither JSON nor the common",
        ),
        ("", "no request for inference in 0 lines"),
        (NGINX.splitlines()[1], "no request for inference in 1 lines"),
        ('{"path": "/v1/completions", "duration": 1}', "line 1: no time: needs one of start_time"),
        ('{"ts": "yesterday", "duration": 1}', "line 1: ts: must be a time"),
        ('{"ts": true, "duration": 1}', "line 1: ts: must be a time"),
        ('{"ts": 1, "duration": -1}', "line 1: duration: must be a duration that isn't negative, got -1"),
        ('{"ts": 1, "duration": "NaN"}', "line 1: duration: must be a duration"),
        ('{"ts": 1, "duration": 1}\n{"ts": 2', "line 2: no valid JSON"),
        ("[1, 2]", "line 1: neither JSON nor"),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as raised:
        read_log(write(tmp_path, text))
    assert message in str(raised.value) and str(raised.value).startswith(str(tmp_path))


def test_a_log_is_known_by_its_first_line() -> None:
    assert looks_like_a_log(NGINX.splitlines()[0]) and looks_like_a_log(' {"ts": 1}')
    assert not looks_like_a_log("arrival_s,service_s\n")
