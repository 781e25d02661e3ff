"""Nodes with stub GPUs, for processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stub_driver.build import StubNode, broken, build

MakeNode = Callable[..., StubNode]


@pytest.fixture(scope="session")
def drivers() -> dict[str, Path]:
    """Where the stub libraries are, of a driver of today and of an old one."""
    try:
        return {"new": build(), "old": build(old=True)}
    except RuntimeError as error:
        pytest.fail(str(error))


@pytest.fixture
def make_node(drivers: dict[str, Path], tmp_path: Path) -> MakeNode:
    """Makes a node; `driver` is "new", "old" or "none"."""

    def make(driver: str = "new", **options: Any) -> StubNode:
        folder = tmp_path / "node"
        folder.mkdir(exist_ok=True)
        libraries = tmp_path / "no-driver"
        if driver == "none":
            libraries.mkdir(exist_ok=True)
            broken(libraries)
        else:
            libraries = drivers[driver]
        return StubNode(libraries, folder, **options)

    return make
