"""Fixtures of the tests that run the operator."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.access import Cluster
from tests.cluster.paths import REPOSITORY
from tests.e2e.operators import Models, Operator


@pytest.fixture(scope="session")
def crds(cluster: Cluster) -> None:
    """The CRDs, established in the shared cluster."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(REPOSITORY / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")


@pytest.fixture
def models(cluster: Cluster, namespace: str, crds: None) -> Models:
    """LLMDeployments in the test's namespace."""
    return Models(cluster, namespace)


@pytest.fixture
def operators(
    cluster: Cluster, namespace: str, crds: None, tmp_path: Path
) -> Iterator[Callable[[str], Operator]]:
    """Makes operators by name, not started yet; all are ended after the test, and their pools removed."""
    made: list[Operator] = []

    def make(name: str) -> Operator:
        made.append(Operator(cluster, namespace, tmp_path, name))
        return made[-1]

    yield make
    statuses = {operator.name: operator.stop() for operator in made if operator.running}
    cluster.kubectl("delete", "gpunodepools", "--all", "--wait=false")
    assert set(statuses.values()) <= {0}, f"an operator didn't end in peace: {statuses}"


@pytest.fixture
def operator(operators: Callable[[str], Operator]) -> Operator:
    """One operator that leads."""
    return operators("operator").start()
