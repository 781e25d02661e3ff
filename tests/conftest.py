"""What every test may use: the measured data, and the local cluster."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["tests.cluster.fixtures"] if importlib.util.find_spec("tests.cluster.fixtures") else []

# A slow machine is not a failure: wall time is measured in benchmarks. CI draws the same examples every time.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "ci", parent=hypothesis.settings.get_profile("default"), derandomize=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")

NO_DATA = "needs the measured data: set WATTKEEPER_DATA to the folder that holds wattgpu/, gpus/, llms/ …"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the measured data sets; skips, saying why, where there is none."""
    folder = os.environ.get("WATTKEEPER_DATA")
    if not folder:
        pytest.skip(NO_DATA)
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"WATTKEEPER_DATA={folder} is not a folder")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `data` are skipped with the reason printed where the data isn't at hand."""
    if os.environ.get("WATTKEEPER_DATA"):
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason=NO_DATA))
