from pathlib import Path

import pytest
import yaml

from tests.cluster.__main__ import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 3
    assert main(["kubeconfig"]) == 1
    assert main(["down"]) == 0
    printed = capsys.readouterr()
    assert "not running; start it with: make cluster-up" in printed.out
    assert printed.err.count("not running") == 2


def test_fleet_is_printed_as_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["kind"] == "List"
    assert {item["kind"] for item in document["items"]} == {"Node"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("kind: Pod\n", "not a KubeSchedulerConfiguration"),
        ("- a\n", "not a KubeSchedulerConfiguration"),
        ("{", "while parsing"),
    ],
)
def test_bad_scheduler_file_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], content: str | None, message: str
) -> None:
    path = home / "scheduler.yaml"
    if content is not None:
        path.write_text(content)
    assert main(["up", "--scheduler-config", str(path)]) == 1
    error = capsys.readouterr().err
    assert f"error: --scheduler-config {path}" in error and message in error
