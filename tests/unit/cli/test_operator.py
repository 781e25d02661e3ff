"""`wattkeeper operator run` before it runs: its help, and what ends it at once."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from wattkeeper.cli import app
from wattkeeper.settings import EXIT_CONFIGURATION, EXIT_LEADERSHIP_LOST, describe


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["operator", "run", *arguments], env=environment)
    return result.exit_code, result.output


def test_the_help_tells_every_variable_and_how_it_ends() -> None:
    status, text = run("--help")
    assert status == 0
    assert [name for name, _, _ in describe() if name not in text] == []
    assert str(EXIT_LEADERSHIP_LOST) in text
    assert str(EXIT_CONFIGURATION) in text


def test_settings_that_cannot_be_used_are_named() -> None:
    status, text = run(WATTKEEPER_WORKERS="many", WATTKEEPER_SETTLE_SECONDS="NaN")
    assert status == EXIT_CONFIGURATION
    assert "WATTKEEPER_WORKERS: write a whole number from 1 to 64; got 'many'" in text
    assert "WATTKEEPER_SETTLE_SECONDS: write seconds" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("content", ["", "apiVersion: v1\nkind: Config\n", "{not yaml"])
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(content)
    status, text = run("--kubeconfig", str(kubeconfig))
    assert status == EXIT_CONFIGURATION
    assert str(kubeconfig) in text
    assert "Traceback" not in text


def test_missing_artifacts_are_named(tmp_path: Path) -> None:
    status, text = run("--artifacts", str(tmp_path))
    assert status == EXIT_CONFIGURATION
    assert str(tmp_path) in text
    assert "Traceback" not in text
