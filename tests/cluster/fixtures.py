"""pytest fixtures over a running cluster; `tests/conftest.py` loads them.

    cluster          session: the control plane, shared by every test (and by every xdist worker)
    cluster_factory  more control planes, for tests that need one of their own
    namespace        a fresh namespace
    fleet            puts fake nodes into the cluster for one test

``WATTKEEPER_TEST_KUBECONFIG=FILE`` uses that cluster instead of starting one. A cluster kept by
``python -m tests.cluster up`` is used again with
``WATTKEEPER_TEST_KUBECONFIG=$(python -m tests.cluster kubeconfig)``.
"""

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.cluster import control_plane, processes
from tests.cluster import fleet as fleets
from tests.cluster.access import Cluster
from tests.cluster.binaries import DEFAULT, Binaries
from tests.cluster.components import Options
from tests.cluster.errors import ClusterError
from tests.cluster.external import VARIABLE, external_cluster
from tests.cluster.fleet import Fleet
from tests.cluster.nodes import Node, mixed_fleet


class FleetFactory(Protocol):
    """Puts nodes (default: the mixed fleet under names of its own) into the cluster; returns when ready."""

    def __call__(self, nodes: Sequence[Node] | None = None) -> Fleet: ...


class ClusterFactory(Protocol):
    """Starts one more cluster, with its own options; stopped after the test."""

    def __call__(self, options: Options | None = None) -> Cluster: ...


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what the collected tests need, with progress shown, before any test's time limit runs."""
    if session.config.option.collectonly:
        return
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    needed = _needed(fixtures)
    capture = session.config.pluginmanager.getplugin("capturemanager")
    if needed and Binaries().missing(needed):
        with capture.global_and_fixture_disabled():
            try:
                Binaries(say=_say).ensure(needed)
            except ClusterError as error:
                pytest.exit(f"the local cluster cannot be built: {error}", returncode=1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster that the tests share: kubeconfig, clients, kubectl and helm."""
    path = os.environ.get(VARIABLE)
    binaries = Binaries(say=_say)
    if path:
        with external_cluster(Path(path).expanduser().resolve(), binaries, _say) as found:
            yield found
    else:
        # All workers of one run have the same id, so they share one control plane.
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(4)
        with _own_cluster(f"test-{run[:8]}", binaries, None) as started:
            yield started


@pytest.fixture
def cluster_factory() -> Iterator[ClusterFactory]:
    """Starts control planes of the test's own, beside the shared one and never instead of it."""
    with ExitStack() as stack:

        def start(options: Options | None = None) -> Cluster:
            name = f"test-{secrets.token_hex(4)}"
            return stack.enter_context(_own_cluster(name, Binaries(say=_say), options))

        yield start


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace named after the test; deleted afterwards, without waiting for the deletion."""
    cluster.check()
    name = f"{_slug(request.node.name)}-{secrets.token_hex(3)}"
    cluster.core.create_namespace({"metadata": {"name": name, "labels": {"wattkeeper.dev/test": "true"}}})
    cluster.wait(
        f"namespace {name} has its service account",
        lambda: cluster.core.list_namespaced_service_account(name).items,
    )
    yield name
    cluster.core.delete_namespace(name)


@pytest.fixture
def fleet(cluster: Cluster) -> Iterator[FleetFactory]:
    """Fake nodes for one test; each call adds some, all are removed afterwards with what is bound to them."""
    with ExitStack() as stack:

        def add(nodes: Sequence[Node] | None = None) -> Fleet:
            name = f"fleet-{secrets.token_hex(3)}"
            chosen = fleets.labelled(mixed_fleet(f"{name}-") if nodes is None else nodes, name)
            added = Fleet(cluster, name, chosen)
            stack.callback(added.remove)
            fleets.apply(cluster, chosen)
            return added

        yield add


@contextmanager
def _own_cluster(name: str, binaries: Binaries, options: Options | None) -> Iterator[Cluster]:
    owner = processes.current()
    known = control_plane.start(name, binaries, options, owner, _say)
    try:
        yield Cluster(known.layout.kubeconfig, binaries, known)
        control_plane.check(known)  # a component that died must not pass as a success
    finally:
        control_plane.release(known, owner, _say)


def _needed(fixtures: set[str]) -> tuple[str, ...]:
    if "cluster_factory" in fixtures or ("cluster" in fixtures and not os.environ.get(VARIABLE)):
        return DEFAULT
    return ("kwok", "kubectl", "helm") if "cluster" in fixtures else ()


def _slug(name: str) -> str:
    """A test's name as the beginning of a namespace's (at most 63 characters with what follows)."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].rstrip("-")


def _say(message: str) -> None:
    print(message, flush=True)
