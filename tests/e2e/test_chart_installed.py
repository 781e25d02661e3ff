"""The chart in a cluster: what it gives to users, what an upgrade brings, what an uninstall leaves.

Each test has a control plane of its own, because a release owns things of the whole cluster. The fake nodes
run no containers, so the operator is scaled to 0.
"""

import json
from typing import Any

import pytest

from tests.cluster.access import Cluster
from tests.cluster.fixtures import ClusterFactory
from tests.e2e.chart import IN_TEAM, OPERATOR, SYSTEM, TEAM, install, prepared, said

pytestmark = pytest.mark.e2e


def test_users_of_a_namespace_may_use_llm_deployments_there(cluster_factory: ClusterFactory) -> None:
    cluster = cluster_factory()
    install(cluster)
    cluster.core.create_namespace({"metadata": {"name": TEAM}})
    for role, user in (("edit", "ed"), ("view", "vi")):
        cluster.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}", IN_TEAM)

    def may(user: str, verb: str, namespace: str = TEAM) -> bool:
        question = (
            "auth",
            "can-i",
            verb,
            "llmdeployments.wattkeeper.dev",
            f"--as={user}",
            f"--namespace={namespace}",
        )
        return said(cluster, question).strip() == "yes"

    cluster.wait("the roles are aggregated", lambda: may("ed", "create") and may("vi", "list"))
    assert may("ed", "delete")
    assert not may("ed", "create", "default")
    assert not may("vi", "create")
    assert not may("nobody", "list")


def test_upgrade_and_uninstall_keep_what_users_wrote(cluster_factory: ClusterFactory) -> None:
    cluster = cluster_factory()
    install(cluster)
    written = prepared(cluster)
    status = {"status": {"phase": "Ready", "pool": "written"}}
    patch = ("--subresource=status", "--type=merge", f"--patch={json.dumps(status)}")
    cluster.kubectl("patch", "llmd", "llama", IN_TEAM, *patch)
    # As if an older chart had brought the CRD: a Helm upgrade has to bring today's.
    older = '[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns"}]'
    cluster.kubectl("patch", "crd", "llmdeployments.wattkeeper.dev", "--type=json", f"--patch={older}")

    install(cluster, "--set=operator.settings.logLevel=debug", command="upgrade")
    columns = "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}"
    assert "Pool" in cluster.kubectl("get", "crd", "llmdeployments.wattkeeper.dev", f"--output={columns}")
    container = cluster.apps.read_namespaced_deployment(OPERATOR, SYSTEM).spec.template.spec.containers[0]
    assert {entry.name: entry.value for entry in container.env}["WATTKEEPER_LOG_LEVEL"] == "debug"
    _assert_kept(cluster, written)

    said_last = cluster.helm("uninstall", "wattkeeper", f"--namespace={SYSTEM}", "--wait")
    assert "llmdeployments.wattkeeper.dev" in said_last  # Helm names what it kept
    _assert_kept(cluster, written)
    assert (
        said(cluster, ("get", "deployment", "theirs", IN_TEAM, "--output=name")) == "deployment.apps/theirs\n"
    )
    kinds = (
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"
        "deployments,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
    )
    ours = ("--selector=app.kubernetes.io/part-of=wattkeeper", "--all-namespaces", "--output=name")
    assert cluster.kubectl("get", kinds, *ours) == ""

    install(cluster)  # takes over the CRDs that were kept
    _assert_kept(cluster, written)


def _assert_kept(cluster: Cluster, written: dict[str, Any]) -> None:
    found = json.loads(cluster.kubectl("get", "llmd", "llama", IN_TEAM, "--output=json"))
    assert found["metadata"]["uid"] == written["metadata"]["uid"]
    assert found["spec"] == written["spec"]
    assert found["status"]["pool"] == "written"
