"""The chart in a cluster: what installs, what its rights allow and refuse, what an uninstall leaves.

Each test has a control plane of its own, because a release owns things of the whole cluster. The fake nodes
run no containers, so the operator is scaled to 0 and, where a test needs it, runs as a process with the
ServiceAccount's token.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.access import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.fixtures import ClusterFactory
from tests.cluster.nodes import cpu_node
from tests.cluster.paths import REPOSITORY

pytestmark = pytest.mark.e2e

CHART = str(REPOSITORY / "charts" / "wattkeeper")
SYSTEM = "wattkeeper-system"
OPERATOR = "wattkeeper-operator"
TEAM = "team-a"

POD_TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "server", "image": "example.test/server:1"}]},
}


def install(cluster: Cluster, *options: str, command: str = "install") -> str:
    given = ("--set=operator.replicas=0", "--wait", *options)
    return cluster.helm(command, "wattkeeper", CHART, f"--namespace={SYSTEM}", "--create-namespace", *given)


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


APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager=wattkeeper-operator", "--filename=-")
CREATE = ("create", "--filename=-")
IN_TEAM = f"--namespace={TEAM}"


def test_the_operators_rights_suffice_for_its_work(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    cluster = cluster_factory()
    install(cluster)
    owner = prepared(cluster)
    operator = as_operator(cluster, tmp_path)

    own = deployment("llama", owner)
    orphan = deployment("orphan")  # a child whose LLMDeployment was deleted without its children
    orphan["metadata"]["labels"] = {
        "app.kubernetes.io/managed-by": "wattkeeper",
        "wattkeeper.dev/llmdeployment": "orphan",
    }
    cluster.apply(orphan)
    lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lease |= {"metadata": {"name": OPERATOR, "namespace": SYSTEM}, "spec": {"holderIdentity": "me"}}
    work: list[tuple[tuple[str, ...], dict[str, Any] | None]] = [
        (("get", "nodes,gpunodepools,pods,llmdeployments,deployments,services", "--all-namespaces"), None),
        (("get", "configmap", "model", IN_TEAM), None),
        (APPLY, own),
        (APPLY, own | {"spec": own["spec"] | {"revisionHistoryLimit": 2}}),
        (("scale", "deployment", "llama", "--replicas=1", IN_TEAM), None),
        (APPLY, {**service("llama"), "metadata": {**own["metadata"]}}),
        ((*CREATE, "--dry-run=server"), pod("dry")),
        (APPLY, pool("found", discovered=True)),
        (("delete", "gpunodepool", "found"), None),
        (
            (
                "patch",
                "llmd",
                "llama",
                IN_TEAM,
                "--subresource=status",
                "--type=merge",
                "--patch",
                '{"status":{}}',
            ),
            None,
        ),
        (("annotate", "llmd", "llama", "wattkeeper.dev/progress=1", IN_TEAM), None),
        (
            ("patch", "gnp", "written", "--subresource=status", "--type=merge", "--patch", '{"status":{}}'),
            None,
        ),
        (CREATE, lease),
        (("replace", "--filename=-"), lease | {"spec": {"holderIdentity": "you"}}),
        (APPLY, deployment("orphan", owner)),
    ]
    refused = [
        (command, answer)
        for command, stdin in work
        if "ended with" in (answer := said(operator, command, stdin))
    ]
    assert refused == []


def test_the_operator_may_touch_nothing_else(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Real requests with the ServiceAccount's token; each is refused, by RBAC or by the admission policy."""
    cluster = cluster_factory()
    install(cluster)
    owner = prepared(cluster)
    operator = as_operator(cluster, tmp_path)
    # A policy takes a moment to be in force; until then it can't be what refuses.
    cluster.wait(
        "the admission policy is in force",
        lambda: "denied request" in said(operator, (*CREATE, "--dry-run=server"), deployment("probe")),
    )

    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "up"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": SYSTEM}],
    }
    adopted = deployment("theirs", owner)
    off_limits: list[tuple[tuple[str, ...], dict[str, Any] | None, str]] = [
        (("get", "secret", "token", IN_TEAM), None, 'cannot get resource "secrets"'),
        (("get", "secrets", "--all-namespaces"), None, 'cannot list resource "secrets"'),
        (("get", "configmaps", IN_TEAM), None, 'cannot list resource "configmaps"'),
        (("delete", "deployment", "theirs", IN_TEAM), None, 'cannot delete resource "deployments"'),
        (("delete", "service", "theirs", IN_TEAM), None, 'cannot delete resource "services"'),
        (("delete", "llmd", "llama", IN_TEAM), None, 'cannot delete resource "llmdeployments"'),
        (("delete", "namespace", TEAM), None, 'cannot delete resource "namespaces"'),
        (("delete", "pod", "theirs", IN_TEAM), None, 'cannot delete resource "pods"'),
        (("exec", "theirs", IN_TEAM, "--", "true"), None, 'cannot create resource "pods/exec"'),
        (("label", "node", "theirs", "a=b"), None, 'cannot patch resource "nodes"'),
        (("create", "token", "default", IN_TEAM), None, 'cannot create resource "serviceaccounts/token"'),
        (("get", "lease", "other", f"--namespace={SYSTEM}"), None, 'cannot get resource "leases"'),
        (CREATE, binding, 'cannot create resource "clusterrolebindings"'),
        # What RBAC allows by kind, and the policy refuses by owner.
        (("annotate", "deployment", "theirs", "a=b", IN_TEAM), None, "writes only Deployments and Services"),
        (("annotate", "service", "theirs", "a=b", IN_TEAM), None, "writes only Deployments and Services"),
        (APPLY, adopted, "writes only Deployments and Services"),
        (CREATE, deployment("new"), "writes only Deployments and Services"),
        (CREATE, service("new"), "writes only Deployments and Services"),
        (CREATE, pod("real"), "creates pods in dry runs only"),
        (
            ("patch", "llmd", "llama", IN_TEAM, "--type=merge", "--patch", '{"spec":{"replicas":3}}'),
            None,
            "belongs to",
        ),
        (("delete", "gnp", "written"), None, "GPUNodePools that it found itself"),
        (
            ("label", "gnp", "written", "wattkeeper.dev/discovered=true"),
            None,
            "GPUNodePools that it found itself",
        ),
        (CREATE, pool("invented", discovered=False), "GPUNodePools that it found itself"),
    ]
    wrong = [
        (command, answer)
        for command, stdin, words in off_limits
        if "ended with" not in (answer := said(operator, command, stdin)) or words not in answer
    ]
    assert wrong == []


def test_where_namespaces_are_named_the_rights_end_with_them(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    cluster = cluster_factory()
    prepared_namespaces = ("team-b", "team-c")
    for name in prepared_namespaces:
        cluster.core.create_namespace({"metadata": {"name": name}})
    cluster.core.create_namespace({"metadata": {"name": TEAM}})
    install(cluster, f"--set=watchNamespaces={{{TEAM},team-b}}")
    operator = as_operator(cluster, tmp_path)

    def may(verb: str, resource: str, namespace: str) -> bool:
        return said(operator, ("auth", "can-i", verb, resource, f"--namespace={namespace}")).strip() == "yes"

    for resource in ("llmdeployments.wattkeeper.dev/status", "deployments.apps", "services"):
        allowed = [name for name in (TEAM, *prepared_namespaces, SYSTEM) if may("patch", resource, name)]
        assert allowed == [TEAM, "team-b"], resource
    assert may("list", "pods", "team-c"), "a GPU that a pod holds anywhere isn't free"
    assert may("watch", "gpunodepools.wattkeeper.dev", "default")


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
