"""Training on small made-up data: deterministic, honest about what it skips, servable."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wattkeeper_predictor import InvalidInput, Predictor, Workload
from wattkeeper_predictor.artifact import write_artifact
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.cli import app
from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.training.dataset import Dataset, dense, load_dataset
from wattkeeper_predictor.training.train_wattgpu import train_wattgpu

GPU_COLUMNS = [
    "gpu_type",
    "memory_size_gb",
    "memory_type",
    "memory_bandwidth_gb_s",
    "thermal_design_power_w",
    "tensor_tflops",
    "base_clock_mhz",
    "boost_clock_mhz",
    "transistor_count_m",
    "release_year",
    "streaming_multiprocessors",
    "l2_cache_mb",
    "process_size_nm",
    "cuda_major_version",
    "cuda_minor_version",
]
GPU_ROWS = [
    ["NVIDIA A30", 24, "HBM2e", 933.1, 165, 165, 930, 1440, 54200, 2021, 56, 24, 7, 8, 0],
    ["NVIDIA L4", 24, "GDDR6", 300.1, 72, "", 795, 2040, 35800, 2023, 60, 48, 5, 8, 9],
    ["NVIDIA H100 NVL", 94, "HBM3", 3940, 400, 835, 1080, 1785, 80000, 2023, 132, 50, 5, 9, 0],
]
MODEL_COLUMNS = [
    "model_name",
    "model_type",
    "total_b_params",
    "active_b_params",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
]
MODEL_ROWS = [
    [
        "meta-llama/Llama-3.1-8B-Instruct",
        "llama",
        8.03,
        8.03,
        32,
        4096,
        "32.0",
        "8.0",
        "128.0",
        "14336.0",
        128256,
    ],
    ["Qwen/Qwen2.5-3B-Instruct", "qwen2", 3.09, 3.09, 36, 2048, "16.0", "2.0", "", "11008.0", 151936],
    ["example/mixture", "mixtral", 8, 2, 32, 4096, 32, 8, 128, 14336, 32000],
    ["example/headless", "falcon_mamba", 7, 7, 64, 4096, "", "", "", 8192, 65024],
]


def _table(path: Path, separator: str, columns: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=separator).writerows([columns, *rows])
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    runs = []
    for model, *_, size in [(row[0], float(str(row[2]))) for row in MODEL_ROWS] + [("example/unknown", 1.0)]:
        for gpu in GPU_ROWS:
            for rate in (-1.0, 0.017, 0.33):
                for run in range(3):
                    seconds = 2.6 * size / float(str(gpu[3])) * (1 + 0.01 * run)
                    watts = float(str(gpu[4])) * {-1.0: 0.95, 0.017: 0.4, 0.33: 0.7}[rate] * (1 + 0.02 * run)
                    runs.append([model, gpu[0], rate, 15, 200, 97, watts, 200 * seconds, 1, 50 / seconds])
    columns = (
        "model,gpu_type,lambda_qps,prompt_tokens,generation_tokens,requests,power_w,e2e_s,x,tokens_per_s"
    )
    return {
        "runs": _table(tmp_path / "runs.csv", ",", columns.split(","), runs),
        "models": _table(tmp_path / "models.csv", ";", MODEL_COLUMNS, MODEL_ROWS),
        "gpus": _table(tmp_path / "gpus.csv", ";", GPU_COLUMNS, GPU_ROWS),
    }


@pytest.fixture
def data(files: dict[str, Path]) -> Dataset:
    return dense(load_dataset(**files))


def test_what_cannot_be_used_is_named_with_the_reason(data: Dataset) -> None:
    assert set(data.models) == {"meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-3B-Instruct"}
    assert data.skipped["example/mixture"] == "a mixture of experts"
    assert "num_attention_heads" in data.skipped["example/headless"]
    assert "no row" in data.skipped["example/unknown"]


def test_a_tensor_rate_that_the_table_lacks_comes_from_the_catalogue(data: Dataset) -> None:
    assert data.gpus["NVIDIA L4"].fp16_dense_tflops == 121


def test_a_gpu_without_a_row_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    files["gpus"] = _table(tmp_path / "few.csv", ";", GPU_COLUMNS, GPU_ROWS[:1])
    with pytest.raises(InvalidInput, match="NVIDIA H100 NVL"):
        load_dataset(**files)


def test_a_table_with_another_separator_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    files["models"] = _table(tmp_path / "comma.csv", ",", MODEL_COLUMNS, MODEL_ROWS)
    with pytest.raises(InvalidInput, match="separator"):
        load_dataset(**files)


def test_data_that_lacks_a_level_or_a_second_gpu_is_refused(data: Dataset) -> None:
    served = replace(data, runs=tuple(run for run in data.runs if run.level is not Level.OFFLINE))
    with pytest.raises(InvalidInput, match="offline"):
        train_wattgpu(served)
    one = replace(data, runs=tuple(run for run in data.runs if run.gpu == "NVIDIA A30"))
    with pytest.raises(InvalidInput, match="two GPUs"):
        train_wattgpu(one)


def test_equal_data_gives_equal_bytes_and_a_servable_recipe(data: Dataset, tmp_path: Path) -> None:
    said: list[str] = []
    for name in ("one", "two"):
        write_artifact(tmp_path / name, train_wattgpu(data, said.append))
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["cells.json", "itl.ubj", "manifest.json", "power.ubj"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert said, "training says what it does"

    predictor = Predictor.load(tmp_path / "one")
    assert predictor.recipe == "wattgpu"
    model = ModelCatalogue.load().get("meta-llama/Llama-3.1-8B-Instruct")
    gpu = GpuCatalogue.load().get("A30")
    answer = predictor.predict(
        model, gpu, Workload(requests_per_second=0.33, prompt_tokens=15, output_tokens=200)
    )
    assert answer.regime == "Measured"
    assert answer.power_watts == pytest.approx(165 * 0.7 * 1.02)
    assert answer.itl_seconds == pytest.approx(2.6 * 8.03 / 933.1 * 1.01, rel=1e-4)


def test_the_command_trains_and_evaluates(files: dict[str, Path], tmp_path: Path) -> None:
    options = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    options += ["--recipe", "wattgpu"]
    trained = CliRunner().invoke(app, ["train", *options, "--out", str(tmp_path / "out")])
    assert trained.exit_code == 0
    assert "skipped example/mixture: a mixture of experts" in trained.stderr
    assert Predictor.load(tmp_path / "out").recipe == "wattgpu"

    evaluated = CliRunner().invoke(app, ["evaluate", "--protocol", "logo", *options])
    assert evaluated.exit_code == 0
    assert "LS-TDP" in evaluated.stdout
    assert "MdAPE" in evaluated.stdout


def test_strict_refuses_broken_rows(files: dict[str, Path]) -> None:
    with files["runs"].open("a") as file:
        file.write("meta-llama/Llama-3.1-8B-Instruct,NVIDIA A30,0.33,15,200,97,nan,4,1,70\n")
    assert "1 broken rows" in str(load_dataset(**files).broken)
    with pytest.raises(InvalidInput, match="power_w"):
        load_dataset(**files, strict=True)
