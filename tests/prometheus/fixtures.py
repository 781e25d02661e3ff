"""pytest fixtures over a real Prometheus. A conftest.py that wants them imports them by name.

prometheus          session: one server, into which any test may write; tests keep apart by `instance_label`
prometheus_factory  servers of a test's own, with any configuration
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.prometheus.server import CURE, NOTHING_SCRAPED, PrometheusServer, program


class PrometheusFactory(Protocol):
    """Starts a Prometheus that ends with the test."""

    def __call__(
        self, config: str = NOTHING_SCRAPED, environment: Mapping[str, str] | None = None
    ) -> PrometheusServer: ...


def _require_program() -> None:
    if program() is None:
        pytest.skip(CURE)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    _require_program()
    with PrometheusServer(tmp_path_factory.mktemp("prometheus")) as server:
        yield server


@pytest.fixture
def prometheus_factory(tmp_path: Path) -> Iterator[PrometheusFactory]:
    _require_program()
    with ExitStack() as stack:
        count = 0

        def start(
            config: str = NOTHING_SCRAPED, environment: Mapping[str, str] | None = None
        ) -> PrometheusServer:
            nonlocal count
            count += 1
            return stack.enter_context(
                PrometheusServer(tmp_path / f"prometheus-{count}", config, environment)
            )

        yield start
