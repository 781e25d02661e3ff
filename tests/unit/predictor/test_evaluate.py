"""The paper's table on the measured runs: the JSON's shape, and figures as good as the paper's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from wattkeeper_predictor.artifact import write_artifact
from wattkeeper_predictor.cli import app
from wattkeeper_predictor.predictor import default_artifacts
from wattkeeper_predictor.training.dataset import dense, load_dataset
from wattkeeper_predictor.training.train_wattgpu import train_wattgpu

pytestmark = pytest.mark.data
ROW = {"mdape_percent", "rmse", "kendall_tau_llm", "kendall_tau_gpu", "n"}
MDAPE_AT_MOST = {
    "cv": {"power": (1.5, 5.5), "itl": (8, 3.5)},
    "logo": {"power": (4.5, 17), "itl": (29, 11)},
    "lolo": {"power": (3, 9), "itl": (22, 9)},
}


def _paths(data_dir: Path) -> dict[str, Path]:
    folder = data_dir / "wattgpu"
    return {
        "runs": folder / "watt_counts_runs.csv",
        "models": folder / "model_features.csv",
        "gpus": folder / "gpu_features.csv",
    }


@pytest.mark.parametrize("protocol", MDAPE_AT_MOST)
def test_the_papers_table(data_dir: Path, protocol: str) -> None:
    options = [text for name, path in _paths(data_dir).items() for text in (f"--{name}", str(path))]
    result = CliRunner().invoke(
        app, ["evaluate", "--recipe", "wattgpu", "--protocol", protocol, *options, "--json"]
    )
    assert result.exit_code == 0
    assert result.stderr.count("a mixture of experts") == 5
    scores: dict[str, Any] = json.loads(result.stdout)
    assert set(scores) == {"power", "itl", "baselines"}
    for target in ("power", "itl"):
        for scenario, most in zip(("offline", "server"), MDAPE_AT_MOST[protocol][target], strict=True):
            row = scores[target][scenario]
            assert set(row) == ROW
            assert row["mdape_percent"] <= most
            assert row["n"] == (1213 if scenario == "offline" else 2430)
    assert set(scores["baselines"]) == {"TDP", "LS-TDP", "Roofline"}
    assert scores["baselines"]["TDP"]["itl"] is None
    assert scores["baselines"]["Roofline"]["power"] is None
    assert scores["baselines"]["Roofline"]["itl"]["server"]["mdape_percent"] > 20


@pytest.mark.full
def test_the_shipped_artifacts_are_what_training_gives(data_dir: Path, tmp_path: Path) -> None:
    write_artifact(tmp_path, train_wattgpu(dense(load_dataset(**_paths(data_dir)))))
    for path in default_artifacts("wattgpu").iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
