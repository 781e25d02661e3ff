"""The engine and the built image, once a test run."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.image.base import base_image
from tests.image.build import build_image
from tests.image.engine import Engine, EngineError, engine

TAG = "wattkeeper:test"

# How the chart's pod runs it, as far as an engine can say so.
HARDENED = (
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--network=none",
)


@dataclass(frozen=True, slots=True)
class Image:
    """The image under test."""

    engine: Engine
    tag: str
    base: str
    build_seconds: float
    build_log: str

    def run(self, *command: str, options: tuple[str, ...] = (), check: bool = True) -> str:
        """Standard output and error of the hardened container."""
        arguments = ["run", "--rm", *HARDENED, *options, self.tag, *command]
        result = self.engine.run(*arguments, check=check)
        return result.stdout + result.stderr

    def inspect(self) -> dict[str, Any]:
        return dict(json.loads(self.engine.run("image", "inspect", self.tag).stdout)[0])


@pytest.fixture(scope="session")
def container_engine() -> Iterator[Engine]:
    try:
        with engine() as started:
            yield started
            # Layers that nothing names any more would pile up in the cache of our own engine.
            started.run("image", "prune", "--force", check=False)
            started.run("builder", "prune", "--force", "--keep-storage=4GB", check=False)
    except EngineError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def image(container_engine: Engine) -> Image:
    base = base_image(container_engine)
    begin = time.monotonic()
    log = build_image(container_engine, TAG, base)
    return Image(container_engine, TAG, base, time.monotonic() - begin, log)
