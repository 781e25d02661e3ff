"""Tests on a cluster that is not ours: any that a kubeconfig file names, kind among them."""

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from tests.cluster import components, fleet, nodes, processes, readiness
from tests.cluster.access import Cluster
from tests.cluster.binaries import Binaries
from tests.cluster.components import LOOPBACK
from tests.cluster.errors import ClusterError
from tests.cluster.ports import reserve

VARIABLE = "WATTKEEPER_TEST_KUBECONFIG"
KWOK_ANSWER_SECONDS = 5.0


@contextmanager
def external_cluster(kubeconfig: Path, binaries: Binaries, say: Callable[[str], None]) -> Iterator[Cluster]:
    """The cluster of a kubeconfig file, with kwok looking after fake nodes while the block runs.

    Where the cluster runs kwok itself, that one is used. Raises ClusterError when the cluster cannot be
    used.
    """
    cluster = Cluster(kubeconfig, binaries)
    _require_reachable(cluster)
    if _kwok_answers(cluster):
        yield cluster
        return
    say(f"No kwok answers in the cluster of {kubeconfig}: starting one here")
    with _kwok(cluster):
        yield cluster


def _require_reachable(cluster: Cluster) -> None:
    if not cluster.kubeconfig.is_file():
        raise ClusterError(
            f"{VARIABLE}: there is no file {cluster.kubeconfig}; give the path of a kubeconfig"
        )
    try:
        cluster.core.list_node(limit=1, _request_timeout=10)
    except (ApiException, ConfigException, HTTPError) as error:
        raise ClusterError(
            f"{VARIABLE}={cluster.kubeconfig}: the cluster cannot be used: {error}\n"
            f"Check with: kubectl --kubeconfig {cluster.kubeconfig} get nodes"
        ) from error


def _kwok_answers(cluster: Cluster) -> bool:
    """Whether a fake node becomes ready: the one thing that every way of installing kwok has in common."""
    name = f"wattkeeper-probe-{secrets.token_hex(4)}"
    probe = nodes.cpu_node(name, taints=[{"key": "wattkeeper.dev/probe", "effect": "NoSchedule"}])
    fleet.apply(cluster, [probe], wait=False)
    try:
        deadline = time.monotonic() + KWOK_ANSWER_SECONDS
        while time.monotonic() < deadline:
            if name in fleet.ready(cluster):
                return True
            time.sleep(0.1)
        return False
    finally:
        fleet.remove(cluster, [name])


@contextmanager
def _kwok(cluster: Cluster) -> Iterator[None]:
    program, stages = cluster.binaries.path("kwok"), cluster.binaries.kwok_stages
    (port,) = reserve(1)
    command = components.kwok(
        program, cluster.kubeconfig, port, components.kwok_stages(stages, pod_stages="fast")
    )
    with tempfile.TemporaryDirectory(prefix="wattkeeper-kwok-") as home:
        log = Path(home) / "kwok.log"
        # The user's environment, as a kubeconfig may call a program of theirs for credentials.
        process = processes.start("kwok", command, log, {**os.environ, "KWOK_WORKDIR": home})
        try:
            readiness.wait(process, log, readiness.http_ok(f"http://{LOOPBACK}:{port}/healthz"))
            yield
        finally:
            processes.stop([process])
