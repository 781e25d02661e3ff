"""The rights of the chart's ServiceAccount: enough for each request of the operator, and no more.

Real requests with its token; test_chart_operator.py has the operator itself make them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.access import Cluster
from tests.cluster.fixtures import ClusterFactory
from tests.e2e.chart import (
    OPERATOR,
    SYSTEM,
    TEAM,
    Request,
    Requests,
    as_operator,
    deployment,
    event,
    install,
    pod,
    pool,
    prepared,
    said,
    service,
)

pytestmark = pytest.mark.e2e

TEAM_PATH = {
    "v1": f"/api/v1/namespaces/{TEAM}",
    "apps/v1": f"/apis/apps/v1/namespaces/{TEAM}",
    "wattkeeper.dev/v1alpha1": f"/apis/wattkeeper.dev/v1alpha1/namespaces/{TEAM}",
}
DEPLOYMENTS, SERVICES = f"{TEAM_PATH['apps/v1']}/deployments", f"{TEAM_PATH['v1']}/services"
PODS, SECRETS, CONFIG_MAPS = (f"{TEAM_PATH['v1']}/{kind}" for kind in ("pods", "secrets", "configmaps"))
LLMS = f"{TEAM_PATH['wattkeeper.dev/v1alpha1']}/llmdeployments"
POOLS = "/apis/wattkeeper.dev/v1alpha1/gpunodepools"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
DRY = "?dryRun=All"
APPLIED = "?fieldManager=wattkeeper-operator&force=true"


def wait_for_the_policy(cluster: Cluster, operator: Requests) -> None:
    """A policy takes a moment to be in force; until then it can't be what refuses."""
    probe: Request = ("POST", f"{DEPLOYMENTS}{DRY}", deployment("probe"))
    cluster.wait("the admission policy is in force", lambda: "denied request" in operator.refusal(probe))


def test_the_operators_rights_suffice_for_its_work(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    cluster = cluster_factory()
    install(cluster)
    owner = prepared(cluster)
    orphan = deployment("orphan")  # a child whose LLMDeployment was deleted without its children
    orphan["metadata"]["labels"] = {
        "app.kubernetes.io/managed-by": "wattkeeper",
        "wattkeeper.dev/llmdeployment": "orphan",
    }
    cluster.apply(orphan)
    operator = Requests(as_operator(cluster, tmp_path))
    wait_for_the_policy(cluster, operator)

    own = deployment("llama", owner)
    own_service = {**service("llama"), "metadata": own["metadata"]}
    lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lease |= {"metadata": {"name": OPERATOR}, "spec": {"holderIdentity": "me"}}
    work: list[Request] = [
        *(
            ("GET", path, None)
            for path in ("/api/v1/nodes", "/api/v1/pods", POOLS, LLMS, DEPLOYMENTS, SERVICES)
        ),
        ("GET", "/api/v1/pods?watch=true&timeoutSeconds=1", None),
        ("GET", f"{LLMS}/llama", None),
        ("GET", f"{DEPLOYMENTS}/theirs", None),
        ("GET", f"{CONFIG_MAPS}/model", None),
        ("APPLY", f"{DEPLOYMENTS}/llama{APPLIED}&dryRun=All", own),
        ("POST", f"{PODS}{DRY}", pod("dry")),
        ("APPLY", f"{DEPLOYMENTS}/llama{APPLIED}", own),
        ("APPLY", f"{DEPLOYMENTS}/llama{APPLIED}", own | {"spec": own["spec"] | {"revisionHistoryLimit": 2}}),
        ("PATCH", f"{DEPLOYMENTS}/llama/scale", {"spec": {"replicas": 1}}),
        ("APPLY", f"{DEPLOYMENTS}/orphan{APPLIED}", deployment("orphan", owner)),
        ("APPLY", f"{SERVICES}/llama{APPLIED}", own_service),
        ("PATCH", f"{LLMS}/llama/status", {"status": {"phase": "Placed"}}),
        ("PATCH", f"{LLMS}/llama", {"metadata": {"annotations": {"wattkeeper.dev/handled": "1"}}}),
        ("APPLY", f"{POOLS}/found{APPLIED}", pool("found", discovered=True)),
        ("PATCH", f"{POOLS}/found/status", {"status": {"nodes": 0}}),
        ("PATCH", f"{POOLS}/written/status", {"status": {"nodes": 0}}),
        ("DELETE", f"{POOLS}/found", None),
        ("POST", f"/apis/events.k8s.io/v1/namespaces/{TEAM}/events", event(owner)),
        ("POST", LEASES, lease),
        ("GET", f"{LEASES}/{OPERATOR}", None),
    ]
    assert [(request, words) for request in work if (words := operator.refusal(request))] == []

    get = ("get", "lease", OPERATOR, f"--namespace={SYSTEM}", "--output=json")
    renewed = json.loads(cluster.kubectl(*get)) | {"spec": {"holderIdentity": "you"}}
    assert operator.refusal(("PUT", f"{LEASES}/{OPERATOR}", renewed)) == ""


def test_the_operator_may_touch_nothing_else(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Real requests with the ServiceAccount's token; each is refused, by RBAC or by the admission policy."""
    cluster = cluster_factory()
    install(cluster)
    owner = prepared(cluster)
    operator = Requests(as_operator(cluster, tmp_path))
    wait_for_the_policy(cluster, operator)

    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "up"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": SYSTEM}],
    }
    note = {"metadata": {"annotations": {"a": "b"}}}
    mark = {"metadata": {"labels": {"wattkeeper.dev/discovered": "true"}}}
    not_owned = "writes only Deployments and Services that an LLMDeployment owns"
    not_found = "writes and deletes only GPUNodePools that it found itself"
    off_limits: list[tuple[Request, str]] = [
        (("GET", f"{SECRETS}/token", None), 'cannot get resource "secrets"'),
        (("GET", "/api/v1/secrets", None), 'cannot list resource "secrets"'),
        (("GET", CONFIG_MAPS, None), 'cannot list resource "configmaps"'),
        (("DELETE", f"{DEPLOYMENTS}/theirs", None), 'cannot delete resource "deployments"'),
        (("DELETE", f"{SERVICES}/theirs", None), 'cannot delete resource "services"'),
        (("DELETE", f"{LLMS}/llama", None), 'cannot delete resource "llmdeployments"'),
        (("DELETE", f"/api/v1/namespaces/{TEAM}", None), 'cannot delete resource "namespaces"'),
        (("DELETE", f"{PODS}/theirs", None), 'cannot delete resource "pods"'),
        (("PATCH", f"{PODS}/theirs", note), 'cannot patch resource "pods"'),
        (("POST", f"{PODS}/theirs/exec?command=true", None), 'cannot create resource "pods/exec"'),
        (("PATCH", "/api/v1/nodes/theirs", note), 'cannot patch resource "nodes"'),
        (
            ("POST", f"/api/v1/namespaces/{TEAM}/serviceaccounts/default/token", {}),
            'cannot create resource "serviceaccounts/token"',
        ),
        (("GET", f"{LEASES}/other", None), 'cannot get resource "leases"'),
        (
            ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
            'cannot create resource "clusterrolebindings"',
        ),
        # What RBAC allows by kind, and the policy refuses by owner.
        (("PATCH", f"{DEPLOYMENTS}/theirs", note), not_owned),
        (("PATCH", f"{SERVICES}/theirs", note), not_owned),
        (("APPLY", f"{DEPLOYMENTS}/theirs{APPLIED}", deployment("theirs", owner)), not_owned),
        (("APPLY", f"{DEPLOYMENTS}/new{APPLIED}", deployment("new")), not_owned),
        (("POST", SERVICES, service("new")), not_owned),
        (("POST", PODS, pod("real")), "creates pods in dry runs only"),
        (("PATCH", f"{LLMS}/llama", {"spec": {"replicas": 3}}), "belongs to its users"),
        (("DELETE", f"{POOLS}/written", None), not_found),
        (("PATCH", f"{POOLS}/written", mark), not_found),
        (("POST", POOLS, pool("invented", discovered=False)), not_found),
    ]
    answers = [(request, words, operator.refusal(request)) for request, words in off_limits]
    assert [answer for answer in answers if answer[1] not in answer[2]] == []


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
