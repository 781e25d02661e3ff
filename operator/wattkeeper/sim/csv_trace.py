"""Traces from CSV: one request a row, `arrival_s` and `service_s` in seconds from the trace's start.

A file may be of any length: it is read in chunks, by numpy where a chunk is as it should be, and line by line
where something is wrong, so that the error names the line.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from wattkeeper.sim.arrivals import CHUNK_REQUESTS, Chunk, Floats, Trace, TraceError

ARRIVAL, SERVICE = "arrival_s", "service_s"
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE_BYTES = 65_536
_UNIX_TIME = 1e8  # three years: no trace begins with so long a pause


@dataclass(frozen=True, slots=True)
class _Layout:
    file: str
    delimiter: str
    arrival: int  # column numbers
    service: int | None
    default_service: float | None


def read_csv(path: Path, *, default_service: float | None = None, name: str = "") -> Trace:
    """The trace of a file; TraceError where it can't be one.

    The header is read at once, the rows whenever the trace is used. `default_service` stands in for a missing
    column `service_s`.
    """
    file = str(path)
    with _opened(path) as stream:
        layout = _layout(file, _guarded(stream, file).__next__(), default_service)
        sample = stream.read(_SAMPLE_BYTES)
    rows = max(1, sample.count("\n"))
    size = round(path.stat().st_size / max(1.0, len(sample) / rows)) if sample else 0

    def chunks() -> Iterator[Chunk]:
        return _chunks(path, layout)

    return Trace(name or path.stem, chunks, size_hint=size)


def _opened(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise TraceError(f"{path}: can't be read: {error.strerror or error}") from None


def _guarded(stream: TextIO, file: str) -> Iterator[str]:
    """The lines; an error of reading as one that names the file."""
    try:
        line = ""
        for line in stream:
            yield line
        if not line:
            raise TraceError(f"{file}: is empty: needs a header line with {ARRIVAL} and {SERVICE}")
    except UnicodeDecodeError:
        raise TraceError(f"{file}: is no text in UTF-8: save it as CSV in UTF-8") from None
    except OSError as error:
        raise TraceError(f"{file}: can't be read: {error.strerror or error}") from None


def _layout(file: str, header: str, default_service: float | None) -> _Layout:
    for delimiter in _DELIMITERS:
        names = [name.strip().lower() for name in next(csv.reader([header], delimiter=delimiter), [])]
        if ARRIVAL in names:
            break
    else:
        raise TraceError(
            f"{file}: line 1: no column {ARRIVAL} in {header.strip()!r:.60}: write a header line "
            f"{ARRIVAL},{SERVICE}, times in seconds from the trace's start"
        )
    for name in (ARRIVAL, SERVICE):
        if names.count(name) > 1:
            raise TraceError(f"{file}: line 1: column {name} is there {names.count(name)} times: keep one")
    service = names.index(SERVICE) if SERVICE in names else None
    if service is None and default_service is None:
        raise TraceError(
            f"{file}: line 1: no column {SERVICE}: add it, or say how long every request takes "
            "with --service-seconds"
        )
    return _Layout(file, delimiter, names.index(ARRIVAL), service, default_service)


def _chunks(path: Path, layout: _Layout) -> Iterator[Chunk]:
    line, before, requests = 2, 0.0, 0
    with _opened(path) as stream:
        lines = _guarded(stream, layout.file)
        next(lines)
        while part := list(islice(lines, CHUNK_REQUESTS)):
            chunk = _fast(part, layout, before)
            if chunk is None:
                chunk = _slow(part, layout, before, line)
            if not requests and len(chunk.arrivals) and chunk.arrivals[0] >= _UNIX_TIME:
                raise TraceError(
                    f"{layout.file}: {ARRIVAL}: begins with {chunk.arrivals[0]:.15g}, which looks like Unix "
                    "time: subtract the trace's start"
                )
            line += len(part)
            if len(chunk.arrivals):
                before = float(chunk.arrivals[-1])
                requests += len(chunk.arrivals)
                yield chunk
    if not requests:
        raise TraceError(f"{layout.file}: no requests after the header line: a trace needs at least one row")


def _fast(lines: list[str], layout: _Layout, before: float) -> Chunk | None:
    """A chunk in which all is well; None where something isn't, or isn't for numpy to say."""
    columns = [layout.arrival] if layout.service is None else [layout.arrival, layout.service]
    if not any(line.strip() for line in lines):
        return Chunk(np.empty(0), np.empty(0))
    try:
        table: Floats = np.loadtxt(lines, delimiter=layout.delimiter, usecols=columns, ndmin=2, comments=None)
    except ValueError:
        return None
    arrivals = np.ascontiguousarray(table[:, 0])
    services = (
        np.full(len(arrivals), layout.default_service)
        if layout.service is None
        else np.ascontiguousarray(table[:, 1])
    )
    in_order = arrivals[0] >= before and (np.diff(arrivals) >= 0).all()  # False with NaN, too
    well = in_order and math.isfinite(arrivals[-1]) and np.isfinite(services).all() and services.min() >= 0
    return Chunk(arrivals, services) if well else None


def _slow(lines: list[str], layout: _Layout, before: float, first_line: int) -> Chunk:
    arrivals: list[float] = []
    services: list[float] = []
    reader = csv.reader(lines, delimiter=layout.delimiter, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            where = f"{layout.file}: line {first_line + reader.line_num - 1}"
            raise TraceError(f"{where}: no valid CSV ({error}): write one request a line") from None
        if row is None:
            return Chunk(np.array(arrivals), np.array(services))
        if not any(cell.strip() for cell in row):
            continue
        where = f"{layout.file}: line {first_line + reader.line_num - 1}"
        arrival = _number(row, layout.arrival, f"{where}: {ARRIVAL}", layout)
        if arrival < before:
            raise TraceError(
                f"{where}: {ARRIVAL}: {arrival:.15g} comes after {before:.15g}: sort the rows by {ARRIVAL}"
            )
        arrivals.append(arrival)
        services.append(
            _number(row, layout.service, f"{where}: {SERVICE}", layout)
            if layout.service is not None
            else layout.default_service or 0.0
        )
        before = arrival


def _number(row: list[str], column: int, where: str, layout: _Layout) -> float:
    if column >= len(row):
        raise TraceError(
            f"{where}: is missing: the line has {len(row)} columns, delimited by {layout.delimiter!r}"
        )
    text = row[column].strip()
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        hint = " with a decimal point" if "," in text else ""
        raise TraceError(f"{where}: must be a number of seconds{hint}, got {text!r:.40}")
    if value < 0:
        raise TraceError(
            f"{where}: must not be negative, got {text}: count seconds from the trace's start"
            if column == layout.arrival
            else f"{where}: must not be negative, got {text}"
        )
    return value
