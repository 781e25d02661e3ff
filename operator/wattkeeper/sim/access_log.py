"""Traces from access logs of OpenAI-compatible servers: JSON lines, or the common and combined formats.

A line counts where it is a request for inference (`/v1/chat/completions` and the like); health checks and
metrics are passed over. Servers write a line when the request ends, so the arrival is the line's time less
its duration, unless the field says start. A line's model, where there is one, tells traces apart. A log's
requests are kept in memory, 16 bytes each, for they must be put in order.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from wattkeeper.sim.arrivals import CHUNK_REQUESTS, Chunk, Trace, TraceError

HOUR = 3600.0
INFERENCE = re.compile(
    r"/v1/(chat/completions|completions|responses|embeddings|messages|rerank|score|audio/\w+|images/\w+)"
    r"|/(generate|generate_stream|api/chat|api/generate|api/embed)\b"
)
# Names in use, in the order in which they are believed.
START_FIELDS = ("start_time", "startTime", "request_start", "created", "created_at")
END_FIELDS = ("end_time", "endTime", "timestamp", "@timestamp", "time", "ts", "time_iso8601", "date")
SECONDS_FIELDS = (
    "duration_s",
    "latency_s",
    "request_time",
    "duration",
    "latency",
    "response_time",
    "elapsed",
)
MILLISECONDS_FIELDS = ("duration_ms", "latency_ms", "request_time_ms", "response_time_ms", "elapsed_ms")
PATH_FIELDS = ("path", "request_path", "uri", "url", "request_uri", "route", "request")
_COMMON = re.compile(
    r'^\S+ \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<request>[^"]*)" (?P<status>\d{3}) \S+'
    r'(?: "[^"]*" "[^"]*")?(?P<rest>.*)$'
)
_DURATION = re.compile(r"(?:^|[\s=\"])(?P<seconds>\d+\.\d+)(?:[\s\"]|$)")
_LATEST = 1e11  # Unix seconds; larger numbers are milliseconds


@dataclass(slots=True)
class _Requests:
    starts: array[float] = field(default_factory=lambda: array("d"))
    seconds: array[float] = field(default_factory=lambda: array("d"))


@dataclass(frozen=True, slots=True)
class Log:
    """The traces of a log by model ("" where lines name none), and how many lines were passed over."""

    traces: Mapping[str, Trace]
    passed_over: int


def looks_like_a_log(first_line: str) -> bool:
    """Whether a file's first line is one of an access log rather than a CSV header."""
    return first_line.lstrip().startswith("{") or _COMMON.match(first_line) is not None


def read_log(path: Path, *, default_service: float | None = None) -> Log:
    """All of a log; TraceError where a line of it can't be used."""
    found: dict[str, _Requests] = {}
    passed_over = 0
    for where, line in _lines(path):
        request = (
            _from_json(line, where, default_service)
            if line.lstrip().startswith("{")
            else _from_text(line, where, default_service)
        )
        if request is None:
            passed_over += 1
            continue
        model, start, seconds = request
        kept = found.setdefault(model, _Requests())
        kept.starts.append(start)
        kept.seconds.append(seconds)
    if not found:
        raise TraceError(
            f"{path}: no request for inference in {passed_over} lines: paths such as /v1/chat/completions "
            "are looked for"
        )
    starts_at = min(min(kept.starts) for kept in found.values())
    last = max(float((np.asarray(kept.starts) + np.asarray(kept.seconds)).max()) for kept in found.values())
    covers = max(1, math.ceil((last - starts_at) / HOUR)) * HOUR
    traces = {
        model: _trace(model or path.stem, kept, starts_at, covers) for model, kept in sorted(found.items())
    }
    return Log(traces, passed_over)


def _trace(name: str, kept: _Requests, starts_at: float, covers: float) -> Trace:
    starts, seconds = np.asarray(kept.starts) - starts_at, np.asarray(kept.seconds)
    order = np.argsort(starts, kind="stable")
    starts, seconds = starts[order], seconds[order]

    def chunks() -> Iterator[Chunk]:
        for first in range(0, len(starts), CHUNK_REQUESTS):
            part = slice(first, first + CHUNK_REQUESTS)
            yield Chunk(starts[part], seconds[part])

    return Trace(name, chunks, starts_at, covers, len(starts))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield f"{path}: line {number}", line
    except OSError as error:
        raise TraceError(f"{path}: can't be read: {error.strerror or error}") from None


def _from_json(line: str, where: str, default_service: float | None) -> tuple[str, float, float] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise TraceError(f"{where}: no valid JSON: write one object a line") from None
    if not isinstance(values, dict):
        raise TraceError(f"{where}: must be a JSON object, got {line.strip()!r:.40}")
    path = _first(values, PATH_FIELDS)
    if path is not None and not INFERENCE.search(str(values[path])):
        return None
    service = _json_service(values, where, default_service)
    model = values.get("model")
    name = model if isinstance(model, str) else ""
    if start := _first(values, START_FIELDS):
        return name, _time(values[start], f"{where}: {start}"), service
    if end := _first(values, END_FIELDS):
        return name, _time(values[end], f"{where}: {end}") - service, service
    raise TraceError(f"{where}: no time: needs one of {', '.join((*START_FIELDS, *END_FIELDS))}")


def _json_service(values: Mapping[str, Any], where: str, default: float | None) -> float:
    name = _first(values, SECONDS_FIELDS)
    milliseconds = None if name else _first(values, MILLISECONDS_FIELDS)
    found = name or milliseconds
    if found is None:
        return _default(default, where, ", ".join((*SECONDS_FIELDS, *MILLISECONDS_FIELDS)))
    return _seconds(values[found], f"{where}: {found}") / (1.0 if name else 1000.0)


def _from_text(line: str, where: str, default_service: float | None) -> tuple[str, float, float] | None:
    match = _COMMON.match(line.strip())
    if match is None:
        raise TraceError(
            f"{where}: neither JSON nor the common log format (which has the time in brackets), got "
            f"{line.strip()!r:.60}: log the time of each request, and its duration"
        )
    if not INFERENCE.search(match["request"]):
        return None
    # nginx' $request_time and its like: a number with a fraction, after the format's own fields.
    durations = _DURATION.findall(match["rest"])
    service = (
        _seconds(durations[-1], f"{where}: duration")
        if durations
        else _default(default_service, where, "the request's time in seconds at the end of the line")
    )
    return "", _time(match["time"], f"{where}: time") - service, service


def _default(default: float | None, where: str, cure: str) -> float:
    if default is None:
        raise TraceError(f"{where}: no duration: log {cure}, or say how long all take with --service-seconds")
    return default


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if values.get(name) not in (None, "")), None)


def _seconds(value: Any, where: str) -> float:
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise TraceError(f"{where}: must be a duration that isn't negative, got {value!r:.40}")
    return seconds


def _time(value: Any, where: str) -> float:
    """Unix seconds from a number, ISO 8601 or the common log format's time."""
    if isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        try:
            return _aware(datetime.fromisoformat(value.strip()))
        except ValueError:
            pass
        try:
            return datetime.strptime(value.strip(), "%d/%b/%Y:%H:%M:%S %z").timestamp()
        except ValueError:
            pass
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise TraceError(
            f"{where}: must be a time (ISO 8601, Unix seconds or [10/Oct/2025:13:55:36 +0000]), "
            f"got {value!r:.40}"
        )
    return seconds / 1000.0 if seconds > _LATEST else seconds


def _aware(time: datetime) -> float:
    """Without a zone it is taken for UTC, wherever this runs."""
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
