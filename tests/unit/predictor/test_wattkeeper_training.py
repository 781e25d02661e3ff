"""Training the recipe wattkeeper on made-up rows: deterministic, readable in three formats, servable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.unit.predictor.measurements import SWEPT, write_runs, write_sweep
from wattkeeper_predictor import InvalidInput, Predictor, Workload
from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.cli import app
from wattkeeper_predictor.training.decisions import decision_figures
from wattkeeper_predictor.training.families import family_of, line_of
from wattkeeper_predictor.training.folds import folds
from wattkeeper_predictor.training.load import load_measured
from wattkeeper_predictor.training.measured import Source, mean_cells
from wattkeeper_predictor.training.predict_rows import Anchors, parse_anchors
from wattkeeper_predictor.training.sweeps import read_sweeps


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("rows")
    yield {"runs": write_runs(folder / "runs.csv"), "sweep": write_sweep(folder / "sweep.csv")}


def command(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_equal_rows_give_equal_bytes_and_a_predictor(files: dict[str, Path], tmp_path: Path) -> None:
    for name in ("first", "second"):
        code, _, said = command(
            "train",
            "--runs",
            str(files["runs"]),
            "--runs",
            str(files["sweep"]),
            "--out",
            str(tmp_path / name),
        )
        assert code == 0, said
    assert "nobody/Unheard-Of-14B-FP8: not in the catalogue" in said
    first, second = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("first", "second")
    )
    assert first == second
    predictor = Predictor.load(tmp_path / "first")
    assert predictor.recipe == "wattkeeper"
    work = Workload(requests_per_second=0.33, prompt_tokens=15, output_tokens=155)
    gpu = GpuCatalogue.load().get("A30")
    answer = predictor.predict(ModelCatalogue.load().get("microsoft/phi-2"), gpu, work)
    assert answer.regime == "Measured"
    manifest = json.loads((tmp_path / "first/manifest.json").read_text())
    assert set(manifest["scores"]) == {"cv", "logo", "lolo", "both", "lomo"}


@pytest.mark.parametrize("protocol", ["cv", "logo", "lolo"])
def test_evaluate_gives_the_keys_that_the_paper_has_and_more(files: dict[str, Path], protocol: str) -> None:
    code, out, said = command(
        "evaluate",
        "--protocol",
        protocol,
        "--runs",
        str(files["runs"]),
        "--anchored",
        "idle,length",
        "--json",
    )
    assert code == 0, said
    scores = json.loads(out)
    for target in ("power", "itl"):
        for scenario in ("offline", "server"):
            row = scores[target][scenario]
            assert set(row) == {"mdape_percent", "rmse", "kendall_tau_llm", "kendall_tau_gpu", "n"}
    assert scores["itl"]["server"]["mdape_percent"] < 15
    assert set(scores["baselines"]) == {"TDP", "LS-TDP", "Roofline"}
    assert scores["coverage"]["itl"]["server"]["worst_group"] is not None
    policies = scores["decisions"]["relative_bounds"]
    assert policies["oracle"]["violations_percent"] == 0
    assert policies["oracle"]["mean_regret_percent"] == 0
    assert {"always H100", "smallest TDP", "best TFLOPS per watt", "roofline and TDP", "random"} <= set(
        policies
    )


def test_families_of_a_sweep_are_held_out(files: dict[str, Path]) -> None:
    code, out, said = command("evaluate", "--protocol", "lomo", "--runs", str(files["sweep"]), "--json")
    assert code == 0, said
    swept = json.loads(out)["mlenergy"]
    assert {"itl", "power", "itl_p95"} <= set(swept)
    assert set(swept["itl"]) == {"mdape_percent", "p90_percent", "n", "by_kind", "by_family"}
    assert swept["itl"]["n"] == 5 * len(SWEPT)


def test_other_files_can_be_held_out(files: dict[str, Path]) -> None:
    base = ["evaluate", "--protocol", "holdout", "--runs", str(files["sweep"]), "--json"]
    code, out, said = command(*base, "--train-runs", str(files["runs"]), "--train-runs", str(files["sweep"]))
    assert code == 0, said
    fitted = json.loads(out)["mlenergy"]["power"]["mdape_percent"]
    code, out, said = command(*base)
    assert code == 0
    assert "shipped artifacts" in said
    assert json.loads(out)["mlenergy"]["power"]["mdape_percent"] > fitted


def test_all_formats_are_imported_into_our_own(files: dict[str, Path], tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    code, _, said = command("import", str(files["runs"]), str(files["sweep"]), "--out", str(own))
    assert code == 0, said
    before = load_measured([files["runs"], files["sweep"]]).training
    after = load_measured([own], strict=True).training
    assert (before.rows.source == after.rows.source).all()
    assert (before.rows.model == after.rows.model).all()
    assert (before.rows.gpu == after.rows.gpu).all()
    for name in ("itl", "power"):
        np.testing.assert_allclose(getattr(before.rows, name), getattr(after.rows, name), rtol=1e-6)
    for name in ("gpus", "bytes_per_weight", "rate", "output", "fixed_batch", "queue", "active_billion"):
        np.testing.assert_allclose(
            getattr(before.rows.columns, name), getattr(after.rows.columns, name), rtol=1e-6, err_msg=name
        )
    np.testing.assert_allclose(before.itl_p95, after.itl_p95, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((",8.19,8.19,", ",8.19,9.5,"), "activated_params_billions 9.5 exceeds"),
        ((",8.19,8.19,", ",nan,8.19,"), "total_params_billions"),
        (("H100", "Q9"), "'Q9' isn't in the catalogue"),
        (("bfloat16", "floatish"), "floatish"),
    ],
)
def test_broken_sweep_rows_are_counted_named_and_refused_if_strict(
    files: dict[str, Path], tmp_path: Path, change: tuple[str, str], reason: str
) -> None:
    lines = files["sweep"].read_text().splitlines()
    lines[1] = lines[1].replace(*change)
    path = tmp_path / "broken.csv"
    path.write_text("\n".join(lines) + "\n")
    complaint = read_sweeps(path).complaint() or ""
    assert complaint.startswith("1 broken rows left out (line 2: ")
    assert reason in complaint
    with pytest.raises(InvalidInput, match="line 2"):
        read_sweeps(path, strict=True)


def test_plots_are_drawn(files: dict[str, Path], tmp_path: Path) -> None:
    code, _, said = command(
        "evaluate", "--protocol", "logo", "--runs", str(files["runs"]), "--plots", str(tmp_path / "plots")
    )
    assert code == 0, said
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert names == {
        f"logo-{target}-{what}.{suffix}"
        for target in ("itl", "power")
        for what in ("errors", "calibration")
        for suffix in ("png", "svg")
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--anchored", "idle,mood"], "'mood' isn't one of idle, length, duty"),
        (["--recipe", "wattgpu", "--anchored", "idle"], "public metadata only"),
    ],
)
def test_wrong_options_are_one_line(files: dict[str, Path], arguments: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        command("evaluate", "--protocol", "logo", "--runs", str(files["runs"]), *arguments)


def test_anchors_are_read_in_any_order() -> None:
    assert parse_anchors("duty, idle") == Anchors(idle=True, duty=True)
    assert parse_anchors(None) == parse_anchors("") == Anchors()


def test_no_fold_sees_what_it_predicts(files: dict[str, Path]) -> None:
    rows = load_measured([files["runs"], files["sweep"]]).training.rows
    for protocol, label in (("logo", "gpu"), ("lolo", "model"), ("lomo", "family")):
        wanted_once = np.zeros(len(rows), dtype=int)
        for wanted, held_out in folds(rows, protocol):  # type: ignore[arg-type]
            values = getattr(rows, label)
            assert not set(values[wanted]) & set(values[~held_out])
            wanted_once += wanted
        assert (wanted_once == 1).all()
    for wanted, held_out in folds(rows, "both"):
        assert not set(rows.gpu[wanted]) & set(rows.gpu[~held_out])
        assert not set(rows.model[wanted]) & set(rows.model[~held_out])


def test_decisions_of_perfect_predictions_cost_nothing(files: dict[str, Path]) -> None:
    rows = load_measured([files["runs"]]).training.rows
    cells, _ = mean_cells(rows.take(rows.source == Source.SERVER))
    exact = decision_figures(cells, cells.itl, cells.power)["relative_bounds"]["predictor, margin 1"]
    assert exact["violations_percent"] == exact["unplaced_percent"] == exact["mean_regret_percent"] == 0
    slow = decision_figures(cells, 100 * cells.itl, cells.power)["relative_bounds"]["predictor, margin 1"]
    assert slow["unplaced_percent"] == 100


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
        ("nvidia/Llama-3.1-Minitron-4B-Width-Base", "llama3"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron"),
        ("openai-community/gpt2", "gpt2"),
    ],
)
def test_lines_of_models(model: str, line: str) -> None:
    assert line_of(model) == line
    assert family_of(model, "x_moe") == f"{line}_moe"
