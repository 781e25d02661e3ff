"""Samples at any timestamps into Prometheus, by its remote write protocol (version 1).

A WriteRequest is four small protobuf messages, compressed with snappy:

    WriteRequest { repeated TimeSeries timeseries = 1 }
    TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2 }
    Label        { string name = 1; string value = 2 }
    Sample       { double value = 1; int64 timestamp = 2 }   // ms
"""

from __future__ import annotations

import http.client
import struct
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import cramjam
from prometheus_client.parser import text_string_to_metric_families

Labels = Mapping[str, str]
Point = tuple[float, float]  # Unix seconds, value
_HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


class RefusedError(RuntimeError):
    """Prometheus didn't take the samples: out of order, too far ahead, …"""


class RemoteWriter:
    """Writes to one Prometheus over one connection. Points of a series must not go back in time."""

    def __init__(self, url: str, timeout_seconds: float = 60.0) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=timeout_seconds)
        self._encoded: dict[tuple[tuple[str, str], ...], bytes] = {}

    def write(self, series: Iterable[tuple[Labels, Iterable[Point]]]) -> None:
        """All in one request; raises RefusedError with Prometheus' reason."""
        body = b"".join(
            _field(1, self._labels(labels) + b"".join(map(_sample, points))) for labels, points in series
        )
        compressed = bytes(cramjam.snappy.compress_raw(body))
        self._connection.request("POST", "/api/v1/write", compressed, _HEADERS)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 204):
            raise RefusedError(f"{answer.status}: {text.decode(errors='replace')[:300]}")

    def write_page(self, page: str, at: float, target: Labels | None = None) -> None:
        """A page of the text format as Prometheus stores it with `honor_labels: false`: the target's labels
        win, and what they push aside is called exported_…; empty labels are left out."""
        series = []
        for name, labels, value in read_page(page):
            kept = {f"exported_{k}" if k in (target or {}) else k: v for k, v in labels.items() if v}
            series.append(({"__name__": name, **kept, **(target or {})}, [(at, value)]))
        self.write(series)

    def close(self) -> None:
        self._connection.close()

    def _labels(self, labels: Labels) -> bytes:
        key = tuple(sorted(labels.items()))
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self._encoded[key] = b"".join(
                _field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in key
            )
        return encoded


def read_page(page: str) -> list[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each line of a page in the text format."""
    lines = "".join(f"{line}\n" for line in page.splitlines() if not line.startswith("#"))
    families = text_string_to_metric_families(lines)
    return [(each.name, each.labels, float(each.value)) for family in families for each in family.samples]


def _sample(point: Point) -> bytes:
    at, value = point
    message = b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(round(at * 1000))
    return _field(2, message)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
