"""`wattkeeper simulate` from end to end: options, files, all outputs, and what bad input gets."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from wattkeeper.cli import app

REQUESTS = "arrival_s,service_s\n100,10\n200,10\n5000,10\n"


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def found(*arguments: str | Path) -> Any:
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def refused(*arguments: str | Path) -> str:
    code, out, err = run(*arguments)
    assert (code, out) == (2, ""), (code, out, err)
    assert err.startswith("error: ") and err.count("\n") == 1, err
    return err.removeprefix("error: ").strip()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "requests.csv"
    path.write_text(REQUESTS)
    return path


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "loader", "energy", "saved", "cold", "break_even"),
    [
        ("low", "standard", 2391.64, 18.12, 81, 270.54),
        ("low", "fast", 2212.84, 24.24, 119, 48.10),
        ("bursty", "standard", 2248.39, 23.02, 48, 270.54),
        ("bursty", "fast", 2587.61, 11.41, 210, 48.10),
    ],
)
def test_the_seeds_simulation(
    name: str, loader: str, energy: float, saved: float, cold: int, break_even: float, data_dir: Path
) -> None:
    trace = data_dir / "parking-tax" / f"arrivals_{name}.csv"
    options = ("--policy", "BreakEven", "--accounting", "total", "--horizon", "24h", "--loader", loader)
    answer = found("--gpu", "H100", "--trace", trace, *options)
    assert answer["always_on_wh"] == pytest.approx(2920.8)
    assert answer["energy_wh"] == pytest.approx(energy, rel=1e-5)
    assert answer["saved_percent"] == pytest.approx(saved, abs=0.005)
    assert answer["cold_starts"] == cold
    assert answer["break_even_seconds"] == pytest.approx(break_even, abs=0.005)
    assert answer["delayed_percent"] == pytest.approx(100 * cold / answer["requests"])
    assert answer["corrected"]["saved_percent"] != pytest.approx(saved, abs=0.5)


@pytest.mark.data
def test_the_published_table_beside_t_star(data_dir: Path) -> None:
    trace = data_dir / "parking-tax" / "arrivals_low.csv"
    rows = found("--trace", trace, "--policy", "published", "--accounting", "total")["outcomes"]
    published = json.loads((data_dir / "parking-tax" / "published_scheduler_results.json").read_text())
    expected = published["Low Traffic (5 req/hr)"]
    names = ["always_on", *(f"ttl_{m}min" for m in (1, 2, 5, 10, 15, 30, 60)), "breakeven_standard"]
    for row, name in zip(rows, names, strict=True):
        assert row["energy_wh"] == pytest.approx(expected[name]["total_energy_wh"], rel=1e-6)
        assert row["cold_starts"] == expected[name]["cold_starts"]


def test_the_accounting_is_corrected_unless_told_otherwise(trace: Path) -> None:
    answer = found("--trace", trace)
    assert answer["accounting"] == "corrected" and "corrected" not in answer
    assert answer["horizon_hours"] == 24.0 and answer["requests"] == 3
    # Bare until 100 s, T* after the second and the third request, two loads.
    hot = 10 + 90 + 10 + 270.54 + 10 + 270.54
    expected = 121.7 * hot + 71.8 * (86_400 - hot) + 2 * 300 * 45
    assert answer["energy_wh"] * 3600 == pytest.approx(expected, rel=1e-6)
    assert answer["cold_starts"] == 2 and answer["delayed_percent"] == pytest.approx(200 / 3)


def test_policies_by_name(trace: Path) -> None:
    words = ["alwayson", "Fixed:5m", "fixed", "adaptive", "waiting-budget:50%", "BreakEven:10%", "optimum"]
    options = [option for word in words for option in ("--policy", word)]
    outcomes = found("--trace", trace, *options, "--fixed", "20m")["outcomes"]
    assert [each["policy"] for each in outcomes] == [
        "Never",
        "Fixed 300 s",
        "Fixed 1200 s",
        "Adaptive",
        "BreakEven, at most 50 % delayed",
        "BreakEven, at most 10 % delayed",
        "Optimum",
    ]
    assert len(found("--trace", trace, "--policy", "all")["outcomes"]) == 6
    longer = found("--trace", trace, "--min-idle", "1h30m")
    assert longer["cold_starts"] == 1


def test_several_kinds_of_gpus_are_compared(trace: Path) -> None:
    outcomes = found("--trace", trace, "--gpu", "L40S", "--gpu", "NVIDIA-L4")["outcomes"]
    assert [each["gpu"] for each in outcomes] == ["L40S", "NVIDIA-L4"]
    assert outcomes[0]["always_on_wh"] == pytest.approx(24 * 102)
    # The catalogue's TDP of 72 W, and the smallest share of it that was measured.
    assert outcomes[1]["always_on_wh"] == pytest.approx(24 * 72 * (0.128 + 0.071))


def test_figures_that_were_measured(trace: Path) -> None:
    own = found("--trace", trace, "--gpu", "H100", "--context-watts", "171.8", "--load-seconds", "10")
    assert own["break_even_seconds"] == pytest.approx(30.0)
    marginal = found("--trace", trace, "--accounting", "marginal", "--load-joules", "302")
    assert marginal["break_even_seconds"] == pytest.approx(302 / 49.9)
    unknown = ("--bare-watts", "10", "--context-watts", "20", "--load-watts", "50")
    assert found("--trace", trace, "--gpu", "Novelty 9", *unknown)["always_on_wh"] == pytest.approx(480)
    host = found("--trace", trace, "--host-watts", "100")
    assert host["loads_wh"] == pytest.approx(2 * 400 * 45 / 3600)
    four = found("--trace", trace, "--tensor-parallel", "4")
    assert four["always_on_wh"] == pytest.approx(4 * 24 * 121.7)


@pytest.mark.parametrize(("models_per_gpu", "saved"), [(1, 0.0), (2, 50.0), (4, 75.0), (8, 87.5)])
def test_sharing_gpus_saves_their_tax(models_per_gpu: int, saved: float) -> None:
    fleet = ("--generate", "poisson:per-hour=4.6", "--copies", "24", "--horizon", "24h")
    answer = found(*fleet, "--models-per-gpu", str(models_per_gpu), "--policy", "AlwaysOn")
    assert answer["tax_saved_percent"] == pytest.approx(saved)
    assert len(answer["models"]) == 24 / models_per_gpu


def test_a_group_waits_less_than_models_that_leave_apart() -> None:
    fleet = (
        "--generate",
        "poisson:per-hour=4.6",
        "--copies",
        "8",
        "--horizon",
        "3d",
        "--models-per-gpu",
        "4",
    )
    group, apart = found(*fleet, "--fixed", "10m"), found(*fleet, "--apart")
    assert group["delayed_percent"] < apart["delayed_percent"] / 2
    assert group["tax_saved_percent"] > apart["tax_saved_percent"]


def test_generated_requests_are_those_of_the_seed() -> None:
    options = ("--generate", "mmpp:quiet=1,busy=120,busy-length=5m,service=2s", "--horizon", "2d")
    one, again, other = (found(*options, "--seed", str(seed)) for seed in (1, 1, 2))
    assert one == again and one["energy_wh"] != other["energy_wh"]


def test_an_access_log_is_a_model_for_each_it_names(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    lines = [
        {
            "timestamp": f"2026-01-01T0{i}:00:00Z",
            "path": "/v1/completions",
            "model": f"m{i % 2}",
            "latency": 4,
        }
        for i in range(4)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    answer = found("--trace", path)
    assert [model["name"] for model in answer["models"]] == ["m0", "m1"]
    assert answer["horizon_hours"] == 4.0
    assert found("--trace", path, "--log-model", "m1")["requests"] == 2
    assert "no requests for gpt: the log has m0, m1" in refused("--trace", path, "--log-model", "gpt")


def test_loads_that_take_time(trace: Path) -> None:
    answer = found("--trace", trace, "--loads-take-time")
    assert answer["cold_starts"] == 2 and answer["mean_wait_seconds"] == pytest.approx(30.0)
    assert "Corrected" in refused("--trace", trace, "--loads-take-time", "--accounting", "total")


FLEET = """
pools:
- {name: big, gpu: H100, modelsPerGpu: 2}
- {name: small, gpu: L4, bareWatts: 12, contextWatts: 30, loadWatts: 60}
models:
- {name: chat, pool: big, trace: requests.csv}
- {name: code, pool: big, generate: 'poisson:per-hour=2', weightsGB: 30}
- {name: wide, pool: big, tensorParallel: 2, gpus: [a, b], generate: periodic}
- {name: tiny, pool: small, generate: 'poisson:per-hour=1', copies: 3, loader: fast}
"""


def test_a_fleet_file(trace: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    answer = found("--fleet", fleet, "--horizon", "24h")
    assert [model["name"] for model in answer["models"]] == [
        "chat, code",
        "wide",
        "tiny-1",
        "tiny-2",
        "tiny-3",
    ]
    assert answer["always_on_wh"] == pytest.approx(24 * (121.7 + 2 * 121.7 + 3 * 30))
    assert answer["gpu"] == "several" and answer["break_even_seconds"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pools: []", "pools: List should have at least 1 item"),
        ("", "has 0 documents: write one, with pools and models"),
        ("a: [", "no valid YAML"),
        ("pools: 5\nmodels: 5", "pools: Input should be a valid list"),
        (FLEET + "extra: 1\n", "extra: Extra inputs are not permitted"),
        (FLEET.replace("pool: small", "pool: tiny"), "models.3 (tiny): pool: there is none named tiny"),
        (FLEET.replace("gpus: [a, b]", "gpus: [a]"), "models.2: gpus names 1 GPUs, tensorParallel is 2"),
        (FLEET.replace("trace: requests.csv", "copies: 2"), "models.0: give either trace or generate"),
        (
            FLEET.replace("weightsGB: 30", "weightsGB: -1"),
            "models.1.weightsGB: Input should be greater than 0",
        ),
        (FLEET.replace("weightsGB: 30", "weightsGB: .nan"), "models.1.weightsGB"),
        (FLEET.replace("requests.csv", "nowhere.csv"), "nowhere.csv: can't be read"),
        (FLEET.replace("name: code", "name: chat"), "two have one name"),
        (FLEET.replace("gpu: H100", "gpu: H9999X"), "models.0 (chat): GPU 'H9999X' isn't known"),
    ],
)
def test_a_bad_fleet_file(text: str, message: str, trace: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(text)
    told = refused("--fleet", fleet, "--horizon", "24h")
    assert message in told and str(tmp_path) in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no requests: give --trace, --generate or --fleet"),
        (["--generate", "poisson"], "--generate needs --horizon"),
        (
            ["--generate", "poison", "--horizon", "1d"],
            "--generate: 'poison' isn't known: choose from poisson",
        ),
        (
            ["--generate", "poisson:rate=5", "--horizon", "1d"],
            "rate isn't known: poisson takes per-hour, service",
        ),
        (["--generate", "poisson:per-hour=x", "--horizon", "1d"], "per-hour: must be a number, got 'x'"),
        (["--generate", "poisson:per-hour=-1", "--horizon", "1d"], "per_hour must be above 0"),
        (
            ["--generate", "poisson", "--horizon", "soon"],
            "--horizon: 'soon' is no duration: write one such as",
        ),
        (["--generate", "poisson", "--horizon", "1h30"], "--horizon: '1h30' is no duration"),
        (["--trace", "T", "--policy", "Adaptiv"], "'Adaptiv' isn't known, did you mean Adaptive?"),
        (["--trace", "T", "--policy", "Never:5"], "Never takes no argument"),
        (["--trace", "T", "--policy", "Fixed:5x"], "--policy Fixed: '5x' is no duration"),
        (["--trace", "T", "--max-delayed", "0%"], "--max-delayed: '0%' is no share"),
        (["--trace", "T", "--max-delayed", "nan"], "--max-delayed: 'nan' is no share"),
        (["--trace", "T", "--gpu", "Novelty 9"], "--gpu: GPU 'Novelty 9' isn't known"),
        (["--trace", "T", "--context-watts", "50"], "context_watts (50) must be at least bare_watts (71.8)"),
        (["--trace", "T", "--fleet", "F"], "--fleet stands for --trace and --generate"),
        (["--trace", "T", "--horizon", "100s"], "T: no request comes before the horizon of 100 s"),
        (["--trace", "T", "--models-per-gpu", "2", "--trace", "T", "--accounting", "total"], "Corrected"),
    ],
)
def test_bad_options(options: list[str], message: str, trace: Path) -> None:
    told = refused(*(str(trace) if option == "T" else option for option in options))
    assert message.replace("T:", f"{trace.stem}:") in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (REQUESTS + "4000,1\n", "line 5: arrival_s: 4000 comes after 5000: sort the rows by arrival_s"),
        (REQUESTS + "6000,nan\n", "line 5: service_s: must be a number of seconds, got 'nan'"),
        ("arrival_s,service_s\n", "no requests after the header line"),
        ("a,b\n1,2\n", "line 1: no column arrival_s"),
        ("", "is empty"),
    ],
)
def test_bad_traces_are_named_with_their_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    told = refused("--trace", path)
    assert message in told and told.startswith(str(path))


def test_table_csv_and_markdown(trace: Path) -> None:
    options = ("--trace", trace, "--policy", "BreakEven", "--policy", "Never", "--accounting", "total")
    code, table, _ = run(*options)
    assert code == 0
    above, header, first, second, *_ = table.splitlines()
    assert "Corrected" in above and header.split()[:2] == ["GPU", "Policy"]
    assert first.split()[:2] == ["H100", "BreakEven"] and second.split()[2] == "0.0"
    assert "as seed 002 published it" in " ".join(table.split())
    rows = list(csv.DictReader(io.StringIO(run(*options, "-o", "csv")[1])))
    assert [row["policy"] for row in rows] == ["BreakEven", "Never"]
    assert float(rows[0]["cold_starts"]) == 2 and float(rows[0]["corrected_saved_percent"]) > 0
    lines = run(*options, "-o", "markdown")[1].splitlines()
    assert lines[0].startswith("| GPU | Policy |") and lines[2].startswith("| H100 | BreakEven |")


def test_plots(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "plot.svg"
    code, _, err = run("--trace", trace, "--policy", "all", "--plot", target)
    assert code == 0, err
    drawn = target.read_text()
    assert drawn.startswith("<?xml") and len(drawn) > 20_000
    assert "can't be written" in refused("--trace", trace, "--plot", tmp_path / "no" / "plot.png")
    assert "can't be written" in refused("--trace", trace, "--plot", tmp_path / "plot.xyz")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "wattkeeper.cli.simulate_plot", raising=False)
    assert "install wattkeeper[plots]" in refused("--trace", trace, "--plot", target)


def test_what_is_left_out_is_said(trace: Path) -> None:
    code, _, err = run("--trace", trace, "--horizon", "1h")
    assert code == 0 and "note: 1 requests came after the horizon and were left out" in err
