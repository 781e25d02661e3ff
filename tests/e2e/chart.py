"""The chart in a cluster: installing it, asking with its token, and what users have beside it."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.access import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.nodes import cpu_node
from tests.cluster.paths import REPOSITORY

CHART = str(REPOSITORY / "charts" / "wattkeeper")
SYSTEM = "wattkeeper-system"
OPERATOR = "wattkeeper-operator"
TEAM = "team-a"
IN_TEAM = f"--namespace={TEAM}"

POD_TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "server", "image": "example.test/server:1"}]},
}


def install(cluster: Cluster, *options: str, command: str = "install") -> str:
    given = ("--set=operator.replicas=0", "--wait", *options)
    return cluster.helm(command, "wattkeeper", CHART, f"--namespace={SYSTEM}", "--create-namespace", *given)


def operator_container(cluster: Cluster) -> tuple[list[str], dict[str, str], str]:
    """What the installed Deployment runs: its arguments, its environment, the name of its ServiceAccount."""
    pod_spec = cluster.apps.read_namespaced_deployment(OPERATOR, SYSTEM).spec.template.spec
    (container,) = pod_spec.containers
    by_field = {
        entry.name: entry.value_from.field_ref.field_path for entry in container.env if entry.value is None
    }
    assert by_field == {"WATTKEEPER_LEASE_NAMESPACE": "metadata.namespace"}
    environment = {entry.name: entry.value for entry in container.env if entry.value is not None}
    return (
        container.args,
        {**environment, "WATTKEEPER_LEASE_NAMESPACE": SYSTEM},
        pod_spec.service_account_name,
    )


def as_operator(cluster: Cluster, folder: Path) -> Cluster:
    """The same cluster with the rights of the chart's ServiceAccount, and no others."""
    kubeconfig = cluster.service_account_kubeconfig(SYSTEM, OPERATOR, folder / "operator.kubeconfig")
    return Cluster(kubeconfig, cluster.binaries)


def said(cluster: Cluster, arguments: Sequence[str], manifest: dict[str, Any] | None = None) -> str:
    """What kubectl answered, or how it was refused."""
    try:
        return cluster.kubectl(*arguments, stdin=None if manifest is None else json.dumps(manifest))
    except ClusterError as error:
        return str(error)


Request = tuple[str, str, dict[str, Any] | None]  # method (APPLY: a server-side apply), path, body
CONTENT_TYPES = {"APPLY": "application/apply-patch+yaml", "PATCH": "application/merge-patch+json"}


class Requests:
    """Plain requests to the API server with a kubeconfig's token: exactly the verbs that they name."""

    def __init__(self, cluster: Cluster) -> None:
        configuration = json.loads(cluster.kubeconfig.read_text())
        self._server = configuration["clusters"][0]["cluster"]["server"]
        authority = configuration["clusters"][0]["cluster"]["certificate-authority-data"]
        self._tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        self._token = configuration["users"][0]["user"]["token"]

    def refusal(self, request: Request) -> str:
        """What the API server said against it; empty when it was done."""
        method, path, body = request
        sent = urllib.request.Request(
            self._server + path,
            method="PATCH" if method == "APPLY" else method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": CONTENT_TYPES.get(method, "application/json"),
            },
        )
        try:
            with urllib.request.urlopen(sent, context=self._tls, timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            return str(json.loads(error.read())["message"])


def llm_deployment(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "wattkeeper.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "workload": {"scenario": "Server", "requestsPerSecond": "330m"},
            "sla": {"interTokenLatency": "70ms"},
        },
    }


def deployment(name: str, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": TEAM}
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": POD_TEMPLATE}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def pod(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": TEAM}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD_TEMPLATE["spec"]}


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]},
    }


def event(about: dict[str, Any]) -> dict[str, Any]:
    regarding = {key: about["metadata"][key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "llama.1", "namespace": TEAM},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "wattkeeper.dev/operator",
        "reportingInstance": "me",
        "type": "Normal",
        "reason": "Placed",
        "action": "Place",
        "note": "placed",
        "regarding": {"apiVersion": about["apiVersion"], "kind": about["kind"], **regarding},
    }


def pool(name: str, *, discovered: bool) -> dict[str, Any]:
    labels = {"wattkeeper.dev/discovered": "true"} if discovered else {}
    return {
        "apiVersion": "wattkeeper.dev/v1alpha1",
        "kind": "GPUNodePool",
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeSelector": {"example.com/pool": name}, "gpu": "NVIDIA-L4"},
    }


def prepared(cluster: Cluster) -> dict[str, Any]:
    """A namespace with what users made; returns their LLMDeployment."""
    cluster.core.create_namespace({"metadata": {"name": TEAM}})
    cluster.apply(
        llm_deployment("llama"),
        deployment("theirs"),
        service("theirs"),
        pod("theirs"),
        pool("written", discovered=False),
        cpu_node("theirs"),
    )
    secret = {"metadata": {"name": "token"}, "stringData": {"token": "s3cret"}}
    cluster.core.create_namespaced_secret(TEAM, secret)
    cluster.core.create_namespaced_config_map(
        TEAM, {"metadata": {"name": "model"}, "data": {"config.json": "{}"}}
    )
    return dict(json.loads(cluster.kubectl("get", "llmd", "llama", f"--namespace={TEAM}", "--output=json")))
