"""The operator at work with the chart's ServiceAccount, environment and rights, and with no others.

The fake nodes run no containers: the chart's Deployment is scaled to 0, and its command runs as a process.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import fleet
from tests.cluster.access import Cluster
from tests.cluster.fixtures import ClusterFactory
from tests.cluster.nodes import mixed_fleet
from tests.cluster.paths import REPOSITORY
from tests.cluster.ports import reserve
from tests.e2e.chart import OPERATOR, SYSTEM, install, operator_container

pytestmark = pytest.mark.e2e

EXAMPLES = REPOSITORY / "examples" / "llmdeployments.yaml"


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator's process and what it tells."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            return self.get("/readyz") == "ok\n" and "wattkeeper_leader 1.0" in self.get("/metrics")
        except OSError:
            return False

    def refused_requests(self) -> list[str]:
        """What the API server forbade it: a right that the chart lacks, or a request not to be made."""
        return re.findall(
            r'^wattkeeper_api_request_seconds_count\{.*status="403".*$', self.get("/metrics"), re.M
        )


@contextmanager
def running_operator(cluster: Cluster, folder: Path) -> Iterator[Operator]:
    """What the installed Deployment says, run here: its arguments, its environment, its ServiceAccount."""
    arguments, environment, account = operator_container(cluster)
    (port,) = reserve(1)
    log = folder / "operator.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "wattkeeper", *arguments],
            env={
                **os.environ,
                **environment,
                "KUBECONFIG": str(cluster.service_account_kubeconfig(SYSTEM, account, folder / "kubeconfig")),
                "WATTKEEPER_LISTEN_HOST": "127.0.0.1",
                "WATTKEEPER_LISTEN_PORT": str(port),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        operator = Operator(process, port, log)
        cluster.wait(lambda: f"the operator leads; it said:\n{log.read_text()[-3000:]}", operator.is_ready)
        yield operator
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def statuses(cluster: Cluster, namespace: str) -> dict[str, dict[str, Any]]:
    listing = json.loads(cluster.kubectl("get", "llmd", f"--namespace={namespace}", "--output=json"))
    return {item["metadata"]["name"]: item.get("status", {}) for item in listing["items"]}


def await_all_ready(cluster: Cluster, operator: Operator, namespace: str, count: int) -> None:
    def missing() -> str:
        phases = {name: status.get("phase") for name, status in statuses(cluster, namespace).items()}
        return f"{count} Ready of {phases}; the operator said:\n{operator.log.read_text()[-3000:]}"

    def all_ready() -> bool:
        phases = [status.get("phase") for status in statuses(cluster, namespace).values()]
        return phases == ["Ready"] * count

    cluster.wait(missing, all_ready, 90)


def test_the_operator_works_with_the_rights_of_the_chart(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    cluster = cluster_factory()
    fleet.apply(cluster, mixed_fleet())
    install(cluster)

    with running_operator(cluster, tmp_path) as operator:
        cluster.kubectl("apply", f"--filename={EXAMPLES}")
        await_all_ready(cluster, operator, "default", 3)
        names = set(statuses(cluster, "default"))
        assert {
            item.metadata.name for item in cluster.apps.list_namespaced_deployment("default").items
        } == names
        pools = json.loads(cluster.kubectl("get", "gnp", "--output=json"))["items"]
        assert {pool["status"]["gpus"] > 0 for pool in pools} == {True}
        lease = cluster.kubectl(
            "get", "lease", OPERATOR, f"--namespace={SYSTEM}", "--output=jsonpath={.spec.holderIdentity}"
        )
        assert lease
        cluster.wait(
            "an Event says where each went",
            lambda: (
                names
                <= set(
                    cluster.kubectl(
                        "get", "events", "--output=jsonpath={..regarding.name}{..involvedObject.name}"
                    ).split()
                )
            ),
        )

        # Repair, scaling and deletion.
        cluster.kubectl("delete", "service", "chat")
        cluster.wait(
            "the Service is back", lambda: "chat" in cluster.kubectl("get", "services", "--output=name")
        )
        cluster.kubectl("scale", "llmd", "summarizer", "--replicas=2")
        cluster.wait(
            "the child follows the scale",
            lambda: cluster.apps.read_namespaced_deployment("summarizer", "default").spec.replicas == 2,
        )
        cluster.kubectl("delete", "llmd", "agent")
        cluster.wait(
            "its children go with it",
            lambda: "agent" not in cluster.kubectl("get", "deployments,services", "--output=name"),
        )
        assert operator.refused_requests() == []

        # The release goes; what it runs doesn't.
        operator.process.send_signal(signal.SIGTERM)
        assert operator.process.wait(30) == 0, operator.log.read_text()[-3000:]
    holder = cluster.kubectl(
        "get", "lease", OPERATOR, f"--namespace={SYSTEM}", "--output=jsonpath={.spec.holderIdentity}"
    )
    assert holder == ""
    cluster.helm("uninstall", "wattkeeper", f"--namespace={SYSTEM}", "--wait")
    ready = {
        item.metadata.name: item.status.ready_replicas
        for item in cluster.apps.list_namespaced_deployment("default").items
    }
    assert ready == {"chat": 1, "summarizer": 2}


def test_in_named_namespaces_it_works_without_rights_elsewhere(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    cluster = cluster_factory()
    fleet.apply(cluster, mixed_fleet())
    for name in ("team-a", "team-b"):
        cluster.core.create_namespace({"metadata": {"name": name}})
    install(cluster, "--set=watchNamespaces={team-a}")
    with running_operator(cluster, tmp_path) as operator:
        for namespace in ("team-b", "team-a"):
            for document in yaml.safe_load_all(EXAMPLES.read_text()):
                document["metadata"]["namespace"] = namespace
                cluster.apply(document)
        await_all_ready(cluster, operator, "team-a", 3)
        assert set(map(len, statuses(cluster, "team-b").values())) == {0}
        assert operator.refused_requests() == []
