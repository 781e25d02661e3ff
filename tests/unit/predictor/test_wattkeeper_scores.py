"""The recipe's figures on the measured data: what it must show, by the paper's protocols."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from wattkeeper_predictor.cli import app

pytestmark = pytest.mark.data


@cache
def scores(data: Path, protocol: str, anchored: str = "", source: str = "wattgpu") -> dict[str, Any]:
    options = ["--runs", str(data / "mlenergy/llm_runs.csv")]
    if source == "wattgpu":
        options = [
            "--runs", str(data / "wattgpu/watt_counts_runs.csv"),
            "--models", str(data / "wattgpu/model_features.csv"),
            "--gpus", str(data / "wattgpu/gpu_features.csv"),
        ]  # fmt: skip
    options += ["--anchored", anchored] if anchored else []
    result = CliRunner().invoke(app, ["evaluate", "--protocol", protocol, *options, "--json"])
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    ("protocol", "target", "scenario", "most"),
    [
        ("logo", "itl", "server", 3.5),
        ("logo", "itl", "offline", 17),
        ("logo", "power", "offline", 3.5),
        ("logo", "power", "server", 13),
        ("lolo", "itl", "server", 2.0),
        ("lolo", "itl", "offline", 13),
        ("lolo", "power", "offline", 1.6),
        ("lolo", "power", "server", 6.5),
    ],
)
def test_public_metadata_alone(
    data_dir: Path, protocol: str, target: str, scenario: str, most: float
) -> None:
    assert scores(data_dir, protocol)[target][scenario]["mdape_percent"] <= most


@pytest.mark.parametrize(("protocol", "most"), [("logo", 7.0), ("lolo", 4.0)])
def test_server_power_with_idle_watts_and_length_known(data_dir: Path, protocol: str, most: float) -> None:
    assert scores(data_dir, protocol, "idle,length")["power"]["server"]["mdape_percent"] <= most


def test_gpus_are_ranked(data_dir: Path) -> None:
    anchored = scores(data_dir, "logo", "idle,length")
    assert anchored["itl"]["server"]["kendall_tau_gpu"] >= 0.95
    assert anchored["power"]["server"]["kendall_tau_gpu"] >= 0.87


def test_decisions_for_an_unseen_llm(data_dir: Path) -> None:
    for bounds in scores(data_dir, "lolo", "idle,length")["decisions"].values():
        ours, h100 = bounds["predictor, margin 0.9"], bounds["always H100"]
        assert ours["violations_percent"] <= 2.5
        assert ours["violations_percent"] < h100["violations_percent"]
        assert ours["mean_regret_percent"] <= h100["mean_regret_percent"] / 3


def test_families_held_out_of_batch_sweeps(data_dir: Path) -> None:
    swept = scores(data_dir, "lomo", source="mlenergy")["mlenergy"]
    assert swept["itl"]["mdape_percent"] <= 15
    assert swept["power"]["mdape_percent"] <= 10.7


def test_bounds_hold_on_an_unseen_gpu(data_dir: Path) -> None:
    found = scores(data_dir, "logo", "idle,length")["coverage"]
    assert found["itl"]["server"]["mean"] >= 90
    assert found["itl"]["server"]["worst_group"] >= 85
    assert found["power"]["server"]["mean"] >= 90
