"""The command: results on standard output, one line for a foreseen error, exit codes that tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.predictor.samples import LLAMA_CONFIG
from wattkeeper_predictor import ArtifactError, InvalidInput, OutOfPredictorRange
from wattkeeper_predictor.cli import app, exit_code

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
PAPER = ["--recipe", "wattgpu"]
OFFLINE = ["--scenario", "Offline"]
NOWHERE = ["--scenario", "Offline", "--artifacts", "/nowhere"]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wattkeeper_predictor", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def _stdout(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_predict_in_words() -> None:
    arguments = ["--model", LLAMA, "--gpu", "L4", "--gpu", "A30", "--requests-per-second", "0.33"]
    text = _stdout("predict", *arguments, *PAPER)
    assert "L4: 71 W (at most 72)" in text  # its TDP
    assert "A30: 139 W (at most 150)" in text  # of 149.2: a bound is rounded up


def test_predict_in_json_lists_a_refusal_beside_answers() -> None:
    arguments = ["--gpu", "L4", "--gpu", "MI300X", "--requests-per-second", "0.33", "--json"]
    answer = json.loads(_stdout("predict", "--model", LLAMA, *arguments))
    first, second = answer["predictions"]
    assert first["regime"] == "Measured"
    assert first["memory"]["fits"] is True
    assert "AMD" in second["refused"]


def test_a_gpu_that_lacks_the_format_is_listed_beside_answers() -> None:
    model = ["--model", "openai/gpt-oss-20b"]
    text = _stdout("predict", *model, "--gpu", "T4", "--gpu", "L4", "--requests-per-second", "0.33")
    assert "T4: serving.quantization: T4 (compute capability 7.5) has no mxfp4" in text


def test_a_model_from_its_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_CONFIG))
    arguments = ["--model", "me/mine", "--config", str(path), "--gpu", "L40S", "--scenario", "Offline"]
    assert "UnseenModel" in _stdout("predict", *arguments)


def test_predict_and_explain_say_all_that_the_full_recipe_knows() -> None:
    arguments = ["--model", "Qwen/Qwen3-30B-A3B", "--gpu", "H100 SXM5", "--requests-per-second", "2"]
    arguments += ["--tensor-parallel", "2", "--quantization", "fp8", "--recipe", "wattkeeper"]
    text = _stdout("predict", *arguments)
    for said in ("95 % of gaps", "first token after", "idle", "full load", "tokens/s", "mixture"):
        assert said in text
    read = json.loads(_stdout("predict", *arguments, "--idle-watts", "100", "--json"))["predictions"][0]
    assert read["idle_watts"] == pytest.approx(200, rel=0.1)
    assert read["ttft_seconds"] < read["ttft_upper_seconds"]
    assert "a step:" in _stdout("explain", *arguments)


def test_explain_lists_each_features_part() -> None:
    arguments = ["--model", LLAMA, "--gpu", "H100 SXM5", "--requests-per-second", "0.33", *PAPER]
    text = _stdout("explain", *arguments)
    assert "bandwidth_latency" in text
    assert "neither" not in text
    reasons = json.loads(_stdout("explain", *arguments, "--json"))
    assert reasons["explanations"][0]["level"] == "high"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["catalogue", "gpus"], "H100 NVL"),
        (["catalogue", "models"], LLAMA),
        (["catalogue", "model", LLAMA], "8.03"),
    ],
)
def test_the_catalogue_can_be_read(arguments: list[str], said: str) -> None:
    assert said in _stdout(*arguments)


def test_the_catalogue_says_how_a_name_is_read() -> None:
    read = json.loads(_stdout("catalogue", "gpu", "NVIDIA-H100-NVL-MIG-1g.12gb"))
    assert read["read_as"]["mig"]["compute_slices"] == 1
    assert read["gpu"]["name"] == "H100 NVL"


def test_the_model_card_can_be_printed() -> None:
    for recipe in ("wattgpu", "wattkeeper"):
        text = _stdout("model-card", "--recipe", recipe)
        assert f"# Model card: recipe `{recipe}`" in text
        assert "## What it can't do" in text


@pytest.mark.parametrize(
    ("error", "code"),
    [(InvalidInput("a", "b"), 2), (OutOfPredictorRange("a", "b"), 3), (ArtifactError("a"), 4)],
)
def test_exit_codes(error: InvalidInput | OutOfPredictorRange | ArtifactError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["predict", "--model", "no/such", "--gpu", "L4", "--requests-per-second", "1"], 2, "config.json"),
        (["predict", "--model", LLAMA, "--gpu", "L4"], 2, "requests_per_second"),
        (["predict", "--model", "Qwen/Qwen3-30B-A3B", "--gpu", "L4", *OFFLINE, *PAPER], 3, "experts"),
        (["predict", "--model", LLAMA, "--gpu", "L4", *OFFLINE, *PAPER, "--artifacts", "."], 2, "either"),
        (["predict", "--model", LLAMA, "--gpu", "L4", *OFFLINE, *PAPER, "--duty", "1"], 3, "doesn't learn"),
        (["predict", "--model", LLAMA, "--gpu", "L4", *OFFLINE, "--idle-watts", "-1"], 2, "idle_watts"),
        (
            ["predict", "--model", LLAMA, "--gpu", "L4", "--scenario", "Offline", "--artifacts", "/nowhere"],
            4,
            "/nowhere",
        ),
        (
            ["predict", "--model", LLAMA, "--gpu", "NVIDIA-L4-SHARED", "--scenario", "Offline"],
            3,
            "whole GPUs",
        ),
        (
            ["predict", "--model", LLAMA, "--gpu", "NVIDIA-H100-NVL-MIG-1g.12gb", "--scenario", "Offline"],
            3,
            "whole GPUs",
        ),
        (["evaluate", "--protocol", "dream"], 2, "dream"),
    ],
)
def test_a_foreseen_error_is_one_line_and_a_code(arguments: list[str], code: int, said: str) -> None:
    done = _run(*arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("content", ["{not json", "", "[" * 100_000, "\ufeff{}"], ids="abcd")
def test_a_config_that_is_no_json_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    done = _run("predict", "--model", "a/b", "--config", str(path), "--gpu", "L4", "--scenario", "Offline")
    assert done.returncode == 2
    assert "isn't JSON" in done.stderr


@pytest.mark.data
def test_building_the_catalogue_gives_what_is_shipped(data_dir: Path, tmp_path: Path) -> None:
    _stdout("catalogue", "build", "--data", str(data_dir), "--out", str(tmp_path))
    own = Path(__file__).parents[3] / "predictor/wattkeeper_predictor/catalog"
    for name in ("gpus.json", "models.json"):
        assert (tmp_path / name).read_bytes() == (own / name).read_bytes(), f"{name} is stale: build it again"
