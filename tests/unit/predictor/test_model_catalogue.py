"""Models by Hugging Face id, with counts that agree with what is published."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from wattkeeper_predictor import ArtifactError, UnknownModel
from wattkeeper_predictor.catalog import ModelCatalogue


def test_it_is_large(models: ModelCatalogue) -> None:
    assert len(models.ids()) >= 150


@pytest.mark.parametrize(
    ("name", "billion"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
        ("Qwen/Qwen2.5-7B-Instruct", 7.62),
        ("Qwen/Qwen3-4B-Instruct-2507", 4.02),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.7),
        ("openai/gpt-oss-120b", 116.8),
        ("google/gemma-3-27b-it", 27.0),
        ("ibm-granite/granite-3.0-2b-instruct", 2.53),
    ],
)
def test_true_counts(name: str, billion: float, models: ModelCatalogue) -> None:
    assert models.get(name).parameters_total_billion == pytest.approx(billion, rel=0.005)


def test_case_does_not_matter(models: ModelCatalogue) -> None:
    assert models.get("META-LLAMA/llama-3.1-8b-instruct").id == "meta-llama/Llama-3.1-8B-Instruct"


def test_an_unknown_id_names_near_ones_and_the_cure(models: ModelCatalogue) -> None:
    with pytest.raises(UnknownModel, match=r"config\.json") as refused:
        models.get("meta-llama/Llama-3.1-8B-Instrukt")
    assert "meta-llama/Llama-3.1-8B-Instruct" in str(refused.value)
    assert refused.value.field == "model.id"


def test_every_entry_has_a_source(models: ModelCatalogue) -> None:
    assert all(models.get(name).sources.get("config") for name in models.ids())


def test_an_unsound_entry_is_named() -> None:
    entry = {"id": "x/y", "config": {"model_type": "llama"}, "sources": {}}
    with pytest.raises(ArtifactError, match="x/y"):
        ModelCatalogue({"models": [entry]})
    with pytest.raises(ArtifactError, match="reinstall"):
        ModelCatalogue({})


@pytest.mark.data
def test_counts_agree_with_the_published_ones(data_dir: Path, models: ModelCatalogue) -> None:
    """Published figures are often a name's round number: 98 % of them within a tenth and a half billion."""
    with (data_dir / "llms/llm_configs.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["published_total_params_b"]]
    known = set(models.ids())
    checked = [row for row in rows if row["hf_id"] in known]
    off = []
    for row in checked:
        published = float(row["published_total_params_b"])
        counted = models.get(row["hf_id"]).parameters_total_billion
        if abs(counted - published) > 0.1 * published + 0.5:
            off.append((row["hf_id"], published, counted))
    assert len(checked) > 150
    assert len(off) <= 0.02 * len(checked), off


@pytest.mark.data
def test_the_measured_models_are_known(data_dir: Path, models: ModelCatalogue) -> None:
    with (data_dir / "wattgpu/model_features.csv").open(encoding="utf-8", newline="") as file:
        names = {row["model_name"] for row in csv.DictReader(file, delimiter=";")}
    hybrids = {"tiiuae/Falcon3-Mamba-7B-Instruct", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"}
    assert names - set(models.ids()) == hybrids
