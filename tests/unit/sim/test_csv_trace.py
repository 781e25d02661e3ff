"""Traces from CSV: what is handled, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattkeeper.sim.arrivals import CHUNK_REQUESTS, Trace, TraceError
from wattkeeper.sim.csv_trace import read_csv

HEADER = "arrival_s,service_s\n"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(trace: Trace) -> list[tuple[float, float]]:
    return [
        (float(at), float(service))
        for chunk in trace.chunks()
        for at, service in zip(chunk.arrivals, chunk.services, strict=True)
    ]


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "1.5,2\n3,0\n3,4e0\n",
        "arrival_s;service_s\r\n1.5;2\r\n3;0\r\n3;4\r\n",
        "arrival_s\tservice_s\n1.5\t2\n3\t0\n3\t4\n",
        "service_s|id|Arrival_S\n2|a|1.5\n0|b|3\n4|c|3\n",
        "\ufeffarrival_s, service_s\n1.5, 2\n\n3, 0\n3, 4",
        '"arrival_s","service_s"\n"1.5","2"\n"3","0"\n"3","4"\n',
    ],
    ids=["plain", "semicolons", "tabs", "columns in another order", "spaces and blank lines", "quoted"],
)
def test_what_is_handled(text: str, tmp_path: Path) -> None:
    trace = read_csv(write(tmp_path, text))
    assert rows(trace) == [(1.5, 2.0), (3.0, 0.0), (3.0, 4.0)]
    assert rows(trace) == rows(trace), "a trace can be read again"
    assert trace.name == "trace" and trace.size_hint > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: needs a header line"),
        (HEADER, "no requests after the header line"),
        (HEADER + "\n\n", "no requests"),
        ("1,2\n3,4\n", "line 1: no column arrival_s in '1,2'"),
        ("arrival_s\n1\n", "line 1: no column service_s: add it, or say how long"),
        ("arrival_s,service_s,arrival_s\n1,1,1\n", "line 1: column arrival_s is there 2 times"),
        (HEADER + "1,2\n0.5,1\n", "line 3: arrival_s: 0.5 comes after 1: sort the rows by arrival_s"),
        (HEADER + "1,2\n\n-2,1\n", "line 4: arrival_s: must not be negative, got -2: count seconds"),
        (HEADER + "1,-2\n", "line 2: service_s: must not be negative, got -2"),
        (HEADER + "1,2\nnan,1\n", "line 3: arrival_s: must be a number of seconds, got 'nan'"),
        (HEADER + "1,2\n2,NaN\n", "line 3: service_s: must be a number of seconds, got 'NaN'"),
        (HEADER + "inf,1\n", "line 2: arrival_s: must be a number of seconds, got 'inf'"),
        (HEADER + "1,1e999\n", "line 2: service_s: must be a number of seconds, got '1e999'"),
        (HEADER + "1760104535,1\n", "arrival_s: begins with 1760104535, which looks like Unix time"),
        (HEADER + "1,\n", "line 2: service_s: must be a number of seconds, got ''"),
        (HEADER + "1_0,1\n", "line 2: arrival_s: must be a number of seconds, got '1_0'"),
        (HEADER + "1,2\n3\n", "line 3: service_s: is missing: the line has 1 columns, delimited by ','"),
        (HEADER + "1,2\n2;4\n", "line 3: arrival_s: must be a number of seconds, got '2;4'"),
        (
            "arrival_s;service_s\n1,5;2\n",
            "line 2: arrival_s: must be a number of seconds with a decimal point",
        ),
        (HEADER + "2026-01-01T00:00:00Z,2\n", "line 2: arrival_s: must be a number of seconds, got '2026"),
        (HEADER + '"1,2\n3,4\n', "line 3: no valid CSV"),
        (b"arrival_s,service_s\n\xff\xfe,1\n", "is no text in UTF-8"),
        (b"\x00\x01\x02", "line 1: no column arrival_s"),
    ],
)
def test_what_is_refused(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as raised:
        rows(read_csv(write(tmp_path, text)))
    told = str(raised.value)
    assert message in told and told.startswith(str(tmp_path / "trace.csv")) and "\n" not in told


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.csv"):
        with pytest.raises(TraceError, match="can't be read"):
            rows(read_csv(path))


@pytest.mark.parametrize("bad", [CHUNK_REQUESTS - 1, CHUNK_REQUESTS, 2 * CHUNK_REQUESTS + 5])
def test_the_line_is_right_in_every_chunk(bad: int, tmp_path: Path) -> None:
    lines = [f"{i},1\n" for i in range(3 * CHUNK_REQUESTS)]
    lines[bad] = "0.5,1\n"
    with pytest.raises(TraceError, match=f"line {bad + 2}: arrival_s: 0.5 comes after {bad - 1}"):
        rows(read_csv(write(tmp_path, HEADER + "".join(lines))))


def test_a_service_time_for_all_stands_in_for_the_column(tmp_path: Path) -> None:
    trace = read_csv(write(tmp_path, "arrival_s\n1\n2\n"), default_service=7.5)
    assert rows(trace) == [(1.0, 7.5), (2.0, 7.5)]


@settings(max_examples=40)
@given(text=st.text(alphabet="0123456789.,;-+eEnaif_\"\n \t'", max_size=60))
def test_any_text_gives_a_trace_or_one_clear_error(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.mktemp("csv"), HEADER + text)
    try:
        found = np.array(rows(read_csv(path)))
    except TraceError as error:
        assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
    else:
        assert np.isfinite(found).all() and (found >= 0).all() and (np.diff(found[:, 0]) >= 0).all()
