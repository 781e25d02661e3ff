"""The shipped artifact of the recipe wattkeeper: small, whole, reproducible, and readable by its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from wattkeeper_predictor import ArtifactError
from wattkeeper_predictor.artifact import Artifact, read_artifact
from wattkeeper_predictor.cli import app
from wattkeeper_predictor.conformal import LEAST_CONFIDENCE_PERCENT, MOST_CONFIDENCE_PERCENT
from wattkeeper_predictor.predictor import default_artifacts
from wattkeeper_predictor.recipes.wattkeeper.corrections import TREE_KINDS
from wattkeeper_predictor.recipes.wattkeeper.fitted import from_parts, to_parts
from wattkeeper_predictor.recipes.wattkeeper.serve import WattkeeperRecipe
from wattkeeper_predictor.training.model_card import model_card_text

SHIPPED = default_artifacts("wattkeeper")


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return read_artifact(SHIPPED)


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) < 5_000_000


def test_trees_list_their_features_with_units(artifact: Artifact) -> None:
    assert set(artifact.manifest["trees"]) == set(TREE_KINDS)
    for name, kind in TREE_KINDS.items():
        entry = artifact.manifest["trees"][name]
        assert [(f["name"], f["unit"]) for f in entry["features"]] == list(kind.features)
        assert entry["never_falls_in"] == list(kind.rising)


def test_every_table_has_a_factor_for_every_confidence(artifact: Artifact) -> None:
    count = MOST_CONFIDENCE_PERCENT - LEAST_CONFIDENCE_PERCENT + 1
    tables: dict[str, Any] = artifact.manifest["intervals"]
    for regime in ("measured", "unseen_model", "unseen_gpu", "unseen_both"):
        assert {f"{regime}/server", f"{regime}/offline"} <= set(tables)
    for targets in tables.values():
        for entry in targets.values():
            for side in ("upper", "lower"):
                assert len(entry[side]) == count
                assert entry[side] == sorted(entry[side])
                assert entry[side][0] >= 1


def test_what_was_fitted_goes_to_files_and_back(artifact: Artifact) -> None:
    fitted = from_parts(artifact.manifest, artifact.files)
    values, files = to_parts(fitted)
    assert files == dict(artifact.files)
    assert all(artifact.manifest[name] == value for name, value in values.items())


@pytest.mark.parametrize("missing", ["online", "intervals", "ranges", "anchoring", "gpus"])
def test_a_manifest_that_lacks_something_is_refused(artifact: Artifact, missing: str) -> None:
    manifest = {name: value for name, value in artifact.manifest.items() if name != missing}
    with pytest.raises(ArtifactError, match="train again"):
        WattkeeperRecipe(Artifact(manifest, artifact.files))


def test_the_card_names_figures_and_limits(artifact: Artifact) -> None:
    text = model_card_text(artifact.manifest)
    assert "$" not in text
    assert "## What it can't do" in text
    assert f"{artifact.manifest['scores']['logo']['public']['itl']['server']['mdape_percent']:.1f}" in text


@pytest.mark.data
@pytest.mark.full
def test_training_gives_what_is_shipped(data_dir: Path, tmp_path: Path) -> None:
    options = [
        "--runs", str(data_dir / "wattgpu/watt_counts_runs.csv"),
        "--runs", str(data_dir / "mlenergy/llm_runs.csv"),
        "--models", str(data_dir / "wattgpu/model_features.csv"),
        "--gpus", str(data_dir / "wattgpu/gpu_features.csv"),
        "--prompts", str(data_dir / "splitwise/perf_model.csv"),
    ]  # fmt: skip
    result = CliRunner().invoke(app, ["train", *options, "--out", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    for file in SHIPPED.iterdir():
        assert file.read_bytes() == (tmp_path / file.name).read_bytes(), f"{file.name} is stale: train again"
