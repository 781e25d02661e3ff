"""`wattkeeper tax analyze`: the seed's published figures from its recordings, and what bad files get."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from wattkeeper.cli import app
from wattkeeper.cli.tax import PLOT_NEEDS

DOSES = ("h100_dose_response.jsonl", "a100_dose_response.jsonl", "l40s_dose_response.jsonl")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["tax", "analyze", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def studies(*files: Path) -> list[dict[str, Any]]:
    code, out, err = run("--json", *files)
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    return found


@pytest.fixture
def recordings(data_dir: Path) -> Path:
    return data_dir / "parking-tax"


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "step", "clocks", "slope_differs"),
    [
        (DOSES[0], 49.9, (345, 1980), False),
        (DOSES[1], 26.3, (210, 1410), True),
        (DOSES[2], 66.4, (210, 2520), False),
    ],
)
def test_the_published_dose_response(
    file: str, step: float, clocks: tuple[int, int], slope_differs: bool, recordings: Path
) -> None:
    (found,) = studies(recordings / file)
    assert found["kind"] == "doseResponse"
    assert found["step_watts"] == pytest.approx(step, abs=0.05)
    assert (found["bare"]["sm_clock_mhz"], found["levels"][0]["sm_clock_mhz"]) == pytest.approx(clocks)
    assert (found["slope"]["p_value"] < 0.05) is slope_differs
    assert found["equivalence"]["equivalent"] and found["equivalence"]["bound"] == 0.1
    assert found["context_share"] > 0.98
    watts = [level["mean_watts"] for level in found["levels"]]
    assert max(watts) - min(watts) < 1.0
    if slope_differs:  # negative, and less than 0.1 W over the whole memory
        assert found["slope"]["watts_per_gb"] < 0
        assert abs(found["slope"]["watts_per_gb"]) * 72 < 0.1


@pytest.mark.data
def test_the_thermal_covariate_on_a100(recordings: Path) -> None:
    """The memory cools by under 1 °C while the allocation grows, which the seed takes for the cause of the
    slope. With its temperature in the regression the slope shrinks, though it doesn't vanish."""
    (found,) = studies(recordings / DOSES[1])
    (covariate,) = found["covariates"]
    assert covariate["sensor"] == "memory" and covariate["watts_per_celsius"] > 0
    temperatures = [level["memory_temperature_celsius"] for level in found["levels"]]
    assert 0 < temperatures[0] - temperatures[-1] < 1
    alone = found["slope_of_readings"]["watts_per_gb"]
    assert alone < covariate["slope"]["watts_per_gb"] < 0
    assert not covariate["explains_the_slope"]
    # On L40S it does: there the GPU's own temperature moved the power.
    (l40s,) = studies(recordings / DOSES[2])
    assert [each["explains_the_slope"] for each in l40s["covariates"]] == [True]


@pytest.mark.data
def test_the_yardstick_of_a_fifth_of_tdp(recordings: Path) -> None:
    shares = [
        (each["bare_of_tdp"], each["context_of_tdp"]) for each in studies(*(recordings / f for f in DOSES))
    ]
    expected = [(71.8 / 700, 121.7 / 700), (53.7 / 300, 80.0 / 300), (35.6 / 350, 102.0 / 350)]
    assert shares == [pytest.approx(pair, abs=0.001) for pair in expected]


@pytest.mark.data
def test_the_published_phase_two(recordings: Path, tmp_path: Path) -> None:
    """The earlier H100 run is published as level means: the same regression gives the same figures."""
    published = json.loads((recordings / "published_phase2_results.json").read_text())
    rows = []
    for phase in published["phase_data"]:
        spread = phase["power_std"]
        for sign in (-1, 1):  # two readings with that mean
            rows.append(
                {
                    "phase": phase["phase"],
                    "target_vram_gb": phase["target_gb"],
                    "power_w": phase["power_mean"] + sign * spread / 2,
                    "sm_clock_mhz": phase["sm_clock"],
                    "gpu_name": published["gpu"],
                }
            )
    file = tmp_path / "phase2.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    (found,) = studies(file)
    findings = published["findings"]
    assert found["step_watts"] == pytest.approx(findings["cuda_context_overhead_w"], abs=0.005)
    assert found["slope"]["watts_per_gb"] == pytest.approx(findings["vram_marginal_cost_w_per_gb"], abs=5e-5)
    assert found["slope"]["r_squared"] == pytest.approx(findings["regression_r_squared"], abs=1e-4)
    assert found["slope"]["p_value"] == pytest.approx(findings["regression_p_value"], abs=1e-4)
    # The published interval is the normal one; with five points Student's is wider and holds zero.
    low, high = findings["vram_marginal_cost_95ci"]
    slope, error = found["slope"]["watts_per_gb"], found["slope"]["error"]
    assert (slope - 1.96 * error, slope + 1.96 * error) == pytest.approx((low, high), abs=1e-4)
    assert found["slope"]["low"] < 0 < low
    assert 100 * found["context_share"] == pytest.approx(
        findings["parking_tax_breakdown"]["cuda_context_pct"], abs=0.05
    )


@pytest.mark.data
def test_the_published_observational_study(recordings: Path) -> None:
    published = json.loads((recordings / "published_phase1_results.json").read_text())
    (found,) = studies(recordings / "production_gpu_profiles.csv")
    power = published["power_state_comparison"]["DCGM_FI_DEV_POWER_USAGE"]
    assert found["kind"] == "observational"
    for name, group in (("bare", found["bare"]), ("cuda", found["context"])):
        assert group["mean_watts"] == pytest.approx(power[f"{name}_mean"])
        assert group["deviation_watts"] == pytest.approx(power[f"{name}_std"])
        assert group["readings"] == power[f"n_{name}"]
    assert found["step_watts"] == pytest.approx(power["diff_mean"])
    assert (found["step_low_watts"], found["step_high_watts"]) == pytest.approx(
        (power["ci_low"], power["ci_high"]), abs=1e-4
    )
    assert found["cohens_d"] == pytest.approx(power["cohens_d"])

    effect = published["vram_effect"]
    line = effect.pop("regression")
    assert found["slope_watts_per_gb"] == pytest.approx(line["slope_w_per_gb"])
    assert found["slope_error"] == pytest.approx(line["slope_se"])
    assert found["slope_p_value"] == pytest.approx(line["p_value"])
    assert found["r_squared"] == pytest.approx(line["r_squared"])
    assert found["spearman"] == pytest.approx(line["spearman_rho"])
    contrasts = {f"{c['host']}_gpu{c['one']}_vs_gpu{c['other']}": c for c in found["contrasts"]}
    assert set(contrasts) == set(effect)
    for name, expected in effect.items():
        assert contrasts[name]["watts"] == pytest.approx(expected["power_diff_w"])
        assert contrasts[name]["watts_per_gb"] == pytest.approx(expected["w_per_gb"])
        assert contrasts[name]["cohens_d"] == pytest.approx(expected["cohens_d"])
    assert found["kwh_a_year"] == pytest.approx(published["economic"]["annual_kwh_per_gpu"])


@pytest.mark.data
def test_a_real_model_idles_like_an_empty_allocation(recordings: Path) -> None:
    model = recordings / "h100_model_validation.jsonl"
    (found,) = studies(model)
    assert (found["kind"], found["model"]) == ("idleModel", "Qwen/Qwen2.5-7B")
    assert found["step_watts"] == pytest.approx(50.7, abs=0.05)
    code, out, _ = run(recordings / DOSES[0], model)
    assert code == 0
    assert "121.61 W by the dose-response: -0.13 W" in out


@pytest.mark.data
def test_tables_and_plot(recordings: Path, tmp_path: Path) -> None:
    target = tmp_path / "tax.png"
    files = [recordings / file for file in DOSES]
    code, out, err = run(
        *files,
        recordings / "h100_model_validation.jsonl",
        recordings / "production_gpu_profiles.csv",
        "--plot",
        target,
    )
    assert code == 0, err
    for text in (
        "+49.9 W",
        "+26.3 W",
        "+66.4 W",
        "345 → 1980 MHz",
        "within ±0.1 W/GB",
        "20% of TDP",
        "621 kWh",
    ):
        assert text in out
    assert target.read_bytes().startswith(b"\x89PNG")
    assert run(files[0], "--plot", tmp_path / "tax.svg")[0] == 0
    assert "NVIDIA H100 80GB HBM3" in (tmp_path / "tax.svg").read_text()


def dose(**changes: object) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{"phase": "bare_idle", "power_w": 70.0 + n} for n in range(2)]
    rows += [
        {"phase": f"{size} GB", "target_vram_gb": size, "power_w": 120.0 + n}
        for size in (0, 8, 16)
        for n in range(2)
    ]
    rows[3].update(changes)
    return rows


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_recording_without_phases_is_told_by_its_memory(tmp_path: Path) -> None:
    """Bare is what holds less than an idle context can; the context's own memory isn't allocated memory."""
    lines = ["power_w,mem_used_mb"]
    lines += [f"{70 + n / 10},4" for n in range(3)]
    lines += [f"{120 + n / 10},{623 + 1024 * size}" for size in (0, 8, 16) for n in range(3)]
    file = tmp_path / "log.csv"
    file.write_text("\n".join(lines))
    (found,) = studies(file)
    assert found["step_watts"] == pytest.approx(50)
    assert [level["gigabytes"] for level in found["levels"]] == [0, 8, 16]
    assert found["gpu"] == "unknown GPU"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no readings"),
        ("power_w\n", "no readings"),
        ("{", "line 1: no valid JSON"),
        ('{"power_w": 70, "phase": "bare_idle"}\n[1]', "line 2: must be a JSON object|line 2: no valid"),
        ('{"phase": "bare_idle"}', "line 1: power_w is missing"),
        ('{"power_w": 70}', "line 1: needs phase"),
        (
            '{"power_w": "x", "phase": "bare_idle"}',
            "line 1: power_w must be a number from 0 to 5000, got 'x'",
        ),
        ('{"power_w": NaN, "phase": "bare_idle"}', "line 1: power_w must be a number"),
        ('{"power_w": 1e30, "phase": "bare_idle"}', "line 1: power_w must be a number"),
        ('{"power_w": -4, "phase": "bare_idle"}', "line 1: power_w must be a number"),
        ('{"power_w": true, "phase": "idle", "mem_used_mb": []}', "line 1: mem_used_mb must be a number"),
        ('{"power_w": 70, "phase": "other"}', "line 1: needs target_vram_gb or mem_used_mb"),
        (
            "power_mean,power_std,n_samples,vram_gb,power_state\n70,1,100,4,asleep",
            "line 2: power_state must be",
        ),
        (
            "power_mean,power_std,n_samples,vram_gb,power_state,gpu_slot\n70,1,100,4,bare_idle,0",
            "1 bare GPUs and 0 with a context",
        ),
        ('a,b\n"1', "line 2|no valid CSV"),
    ],
)
def test_bad_files_are_refused_with_line_and_field(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad"
    file.write_text(text)
    code, out, err = run(file)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {file}: ") and err.count("\n") == 1
    assert any(part in err for part in message.split("|"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (dose()[2:], "no bare readings"),
        (dose()[:4], "1 levels of allocated memory"),
        (dose(gpu_name="other"), "readings of several boards"),
        ([{**row, "model": "llm"} for row in dose()[2:]], "0 bare readings"),
    ],
)
def test_incomplete_studies_are_refused(rows: list[dict[str, object]], message: str, tmp_path: Path) -> None:
    code, _, err = run(write(tmp_path / "x.jsonl", rows))
    assert code == 2 and message in err


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "none", tmp_path, tmp_path / "binary"):
        code, _, err = run(file)
        assert code == 2 and "can't be read" in err


def test_a_plot_that_cant_be_drawn_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "x.jsonl", dose())
    assert "can't be written" in run(file, "--plot", tmp_path / "none" / "x.png")[2]
    assert "can't be written" in run(file, "--plot", tmp_path / "x.docx")[2]
    model = write(tmp_path / "m.jsonl", [{**row, "model": "llm"} for row in dose()])
    assert "none was given" in run(model, "--plot", tmp_path / "x.png")[2]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "wattkeeper.cli.tax_plot", raising=False)
    code, _, err = run(file, "--plot", tmp_path / "x.png")
    assert (code, err) == (2, f"error: {PLOT_NEEDS}\n")
