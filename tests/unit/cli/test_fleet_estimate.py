"""`wattkeeper estimate` from the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from wattkeeper.cli import app


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["estimate", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_seeds_estimate_beside_what_is_published() -> None:
    code, out, _ = run("--json")
    found = json.loads(out)
    assert code == 0 and found["published"] == {
        "gwh": 462.0,
        "range_gwh": [92.0, 1745.0],
        "co2_kilotonnes": 180.0,
    }
    assert found["base"]["gwh"] == pytest.approx(461.1, abs=0.05)
    assert found["inputs"]["gpus"] == {"low": 2e6, "base": 3.76e6, "high": 6e6}
    rows = found["policies"]["low (5 requests/h)"]
    assert [row["policy"] for row in rows][-2:] == ["T*", "T*, fast loader"]
    assert rows[-2]["fleet_gwh"] == pytest.approx(0.442 * 461.1, rel=0.002)


def test_the_table() -> None:
    code, out, _ = run()
    assert code == 0
    assert "461.1 GWh" in out and "92.16 GWh" in out and "1,745 GWh" in out and "60 min" in out
    assert "Published: 462 GWh (92 to 1,745), 180 kt CO2." in out


def test_a_fleet_of_ones_own() -> None:
    code, out, _ = run("--gpus", "500", "--utilisation", "0.2:0.3:0.4", "--tax-watts", "49.9", "--json")
    found = json.loads(out)
    assert code == 0 and "published" not in found
    assert found["base"]["gwh"] == pytest.approx(500 * 0.7 * 49.9 * 8760 / 1e9)
    assert found["least"]["gwh"] == pytest.approx(500 * 0.6 * 49.9 * 8760 / 1e9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "many"], "--gpus: 'many' is no range: write a number, or LOW:BASE:HIGH"),
        (["--gpus", "1:2"], "--gpus: '1:2' is no range"),
        (["--gpus", "-5"], "--gpus: must be finite numbers, none negative"),
        (["--carbon", "nan"], "--carbon: must be finite numbers"),
        (["--tax-watts", "3:2:1"], "--tax-watts: low, base and high must ascend"),
        (["--utilisation", "1.2"], "utilisation must be at most 1"),
    ],
)
def test_bad_inputs(arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1
