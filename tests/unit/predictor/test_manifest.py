"""The shipped artifacts: what they were trained with, how good they are, how small they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wattkeeper_predictor.artifact import read_artifact
from wattkeeper_predictor.conformal import LEAST_CONFIDENCE_PERCENT, MOST_CONFIDENCE_PERCENT
from wattkeeper_predictor.predictor import default_artifacts
from wattkeeper_predictor.recipes.wattgpu.features import ITL_FEATURES, POWER_FEATURES
from wattkeeper_predictor.training.model_card import model_card_text

LOGO_MDAPE_AT_MOST = {
    ("power", "offline"): 4.5,
    ("power", "server"): 17,
    ("itl", "offline"): 29,
    ("itl", "server"): 11,
}
CARD = Path(__file__).parents[3] / "docs/model-card.md"


@pytest.fixture(scope="module")
def manifest() -> Any:
    return read_artifact(default_artifacts("wattgpu")).manifest


def test_features_and_settings_are_the_recipes(manifest: Any) -> None:
    for target, features, settings in (
        ("power", POWER_FEATURES, {"max_depth": 6, "trees": 200, "reg_lambda": 150}),
        ("itl", ITL_FEATURES, {"max_depth": 5, "trees": 100, "reg_lambda": 100}),
    ):
        listed = [(entry["name"], entry["unit"]) for entry in manifest["targets"][target]["features"]]
        assert listed == [(feature.name, feature.unit) for feature in features]
        assert manifest["targets"][target]["settings"] == settings


def test_it_was_trained_on_the_dense_models(manifest: Any) -> None:
    assert manifest["data"]["models"] == 36
    assert manifest["data"]["gpus"] == 8
    assert len(manifest["data"]["left_out"]) == 5
    assert all("mixture" in reason for reason in manifest["data"]["left_out"].values())


@pytest.mark.parametrize(("target", "scenario"), LOGO_MDAPE_AT_MOST)
def test_unseen_gpus_are_predicted_as_well_as_in_the_paper(manifest: Any, target: str, scenario: str) -> None:
    score = manifest["scores"]["logo"][target][scenario]["mdape_percent"]
    assert score <= LOGO_MDAPE_AT_MOST[target, scenario]


def test_measured_gpus_carry_catalogue_names(manifest: Any) -> None:
    assert {gpu["name"] for gpu in manifest["trained_gpus"]} == {
        "A100 SXM4 40GB",
        "A30",
        "H100 NVL",
        "H200 SXM",
        "L4",
        "L40S",
        "T4",
        "V100 SXM2 32GB",
    }


def test_every_regime_has_a_factor_for_every_confidence(manifest: Any) -> None:
    steps = MOST_CONFIDENCE_PERCENT - LEAST_CONFIDENCE_PERCENT + 1
    tables = manifest["intervals"]
    assert set(tables) == {"measured", "unseen_model", "unseen_gpu", "unseen_both"}
    for table in tables.values():
        for level in ("offline", "low", "high"):
            for target in ("power", "itl"):
                factors = table["factors"][level][target]
                assert len(factors) == steps
                assert factors[0] >= 1
                assert factors == sorted(factors)


def test_who_knows_less_is_never_bounded_closer(manifest: Any) -> None:
    regimes = ("measured", "unseen_model", "unseen_gpu", "unseen_both")
    for level in ("offline", "low", "high"):
        for target in ("power", "itl"):
            tables = [manifest["intervals"][name]["factors"][level][target] for name in regimes]
            for factors in zip(*tables, strict=True):
                assert list(factors) == sorted(factors)


def test_a_measured_cell_is_bounded_closer_than_an_unseen_gpu(manifest: Any) -> None:
    tables = manifest["intervals"]
    for level in ("offline", "low", "high"):
        for target in ("power", "itl"):
            known, unseen = (tables[name]["factors"][level][target] for name in ("measured", "unseen_gpu"))
            assert known[40] < unseen[40]


def test_more_sequences_may_cost_more_the_surer_the_bound(manifest: Any) -> None:
    growth = manifest["itl_growth_per_sequence"]
    assert len(growth) == MOST_CONFIDENCE_PERCENT - LEAST_CONFIDENCE_PERCENT + 1
    assert growth == sorted(growth)
    assert 1 < growth[40] < 1.2


def test_the_files_are_small_and_no_pickle() -> None:
    files = list(default_artifacts("wattgpu").iterdir())
    assert sum(path.stat().st_size for path in files) < 5_000_000
    assert {path.suffix for path in files} == {".json", ".ubj"}


def test_the_model_card_is_the_manifests() -> None:
    manifest = read_artifact(default_artifacts()).manifest
    assert CARD.read_text(encoding="utf-8") == model_card_text(manifest), (
        "stale: run `wattkeeper-predictor model-card --out docs/model-card.md`"
    )
