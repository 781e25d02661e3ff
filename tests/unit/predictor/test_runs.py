"""Both CSV formats give the same runs; broken rows are counted and named."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from wattkeeper_predictor import InvalidInput
from wattkeeper_predictor.levels import Level, level_of_rate
from wattkeeper_predictor.training.metadata import read_metadata
from wattkeeper_predictor.training.runs import read_runs

SUMMARY = (
    "row,model,gpu_type,lambda_qps,prompt_tokens,generation_tokens,requests,power_w,e2e_s,"
    "tokens_per_joule,tokens_per_s"
)
SERVER_LISTS = ["[0.1, 0.2, 0.5]", "[1.1, 4.2, 0.5]", "[11, 101, 1]", "[10, 20, 30]"]
UPSTREAM = [
    "index",
    "model",
    "gpu_type",
    "lambda_qps",
    "generation_tokens_total",
    "measurement_duration",
    "gpu_energy",
    "gpu_0_power_draw_watts_mean",
    "time_to_first_token_seconds_events",
    "e2e_request_latency_seconds_events",
    "request_generation_tokens",
    "request_prompt_tokens",
]


def _summary(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([SUMMARY, *rows]) + "\n")
    return path


def _upstream(path: Path, *rows: list[object]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([UPSTREAM, *rows])
    return path


def test_the_summary_format(tmp_path: Path) -> None:
    path = _summary(
        tmp_path / "runs.csv",
        "0,m/a,L4,-1.0,14,200,1000,70,40,20,1000",
        "1,m/a,L4,0.33,14,200,97,60,4,1,70",
    )
    offline, server = read_runs(path).runs
    assert (offline.level, offline.itl_seconds) == (Level.OFFLINE, 0.001)
    assert (server.level, server.itl_seconds) == (Level.HIGH, 0.02)
    assert (server.power_watts, server.output_tokens, server.prompt_tokens) == (60, 200, 14)


def test_the_upstream_format(tmp_path: Path) -> None:
    path = _upstream(
        tmp_path / "runs.csv",
        [0, "m/a", "L4", "", 5000, 2.5, 100, 70.0, "[]", "[]", "[100, 200]", "[10, 20]"],
        [
            1,
            "m/a",
            "L4",
            0.017,
            300,
            60,
            100,
            40.0,
            "[0.1, 0.2, 0.5]",
            "[1.1, 4.2, 0.5]",
            "[11, 101, 1]",
            "[10, 20, 30]",
        ],
    )
    offline, server = read_runs(path).runs
    assert (offline.level, offline.itl_seconds) == (Level.OFFLINE, 0.0005)
    assert offline.output_tokens == 150
    # Requests of one token have no interval: (1.0 / 10 + 4.0 / 100) / 2.
    assert (server.level, server.itl_seconds) == (Level.LOW, pytest.approx(0.07))
    assert server.prompt_tokens == 20


@pytest.mark.parametrize(
    "row",
    [
        "1,m/a,L4,0.33,14,200,97,nan,4,1,70",
        "1,m/a,L4,0.33,14,0,97,60,4,1,70",
        "1,m/a,L4,0.33,14,200,97,-60,4,1,70",
        "1,m/a,L4,0.33,14,200,97,sixty,4,1,70",
        "1,,L4,0.33,14,200,97,60,4,1,70",
        "1,m/a,L4,fast,14,200,97,60,4,1,70",
        "1,m/a,L4,inf,14,200,97,60,4,1,70",
        "1,m/a,L4,0.33,14,200,97,1e308,4,1,70",
        "1,m/a,L4,0.33,14,200,97,1e-300,4,1,70",
        "1,m/a,L4",
    ],
)
def test_a_broken_row_is_left_out_and_named_or_refused(tmp_path: Path, row: str) -> None:
    path = _summary(tmp_path / "runs.csv", "0,m/a,L4,0.33,14,200,97,60,4,1,70", row)
    table = read_runs(path)
    assert len(table.runs) == 1
    assert "1 broken rows" in str(table.complaint())
    assert "line 3" in str(table.complaint())
    with pytest.raises(InvalidInput, match="line 3"):
        read_runs(path, strict=True)


@pytest.mark.parametrize(
    "tokens", ["[1e999, 5]", "[-5, 5]", "[nan]", "{}", "[" * 99, "[1j]", "-" * 100_000 + "1", "f()"]
)
def test_a_broken_list_of_requests_is_a_broken_row(tmp_path: Path, tokens: str) -> None:
    sound: list[object] = [0, "m/a", "L4", 0.33, 300, 60, 100, 40.0, *SERVER_LISTS]
    broken = [*sound[:10], tokens, sound[11]]
    table = read_runs(_upstream(tmp_path / "runs.csv", sound, broken))
    assert [line for line, _ in table.broken] == [3]
    assert len(table.runs) == 1


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    header = SUMMARY.removeprefix("row,")
    path.write_text(f"{header}\nm/a,L4,0.33,14,200,97,60,4,1,70\n", encoding="utf-8-sig")
    assert read_runs(path, strict=True).runs[0].model == "m/a"


@pytest.mark.parametrize("content", [SUMMARY.encode("utf-16"), SUMMARY.encode() + b"\n0,m/\xe9,L4"])
def test_a_file_in_another_encoding_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"runs\.csv: isn't text in UTF-8 .*save it as that"):
        read_runs(path)
    with pytest.raises(InvalidInput, match=r"runs\.csv: isn't text in UTF-8"):
        read_metadata(path, path)


def test_a_sound_file_has_no_complaint(tmp_path: Path) -> None:
    path = _summary(tmp_path / "runs.csv", "0,m/a,L4,0.33,14,200,97,60,4,1,70")
    assert read_runs(path, strict=True).complaint() is None


def test_missing_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(SUMMARY.replace("power_w", "watts") + "\n")
    with pytest.raises(InvalidInput, match="power_w"):
        read_runs(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no rows"):
        read_runs(_summary(tmp_path / "runs.csv"))


@pytest.mark.parametrize(
    ("rate", "level"), [(None, Level.OFFLINE), (0.017, Level.LOW), (0.33, Level.HIGH), (0.1, Level.LOW)]
)
def test_levels(rate: float | None, level: Level) -> None:
    assert level_of_rate(rate) is level


@pytest.mark.data
def test_the_measured_runs_are_all_sound(data_dir: Path) -> None:
    table = read_runs(data_dir / "wattgpu/watt_counts_runs.csv", strict=True)
    assert len(table.runs) == 4048
    assert len({run.model for run in table.runs}) == 41
    assert len({run.gpu for run in table.runs}) == 8
