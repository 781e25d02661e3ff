"""What the real helm makes of the chart, without a cluster. Installed it is in test_chart_installed.py."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.binaries import Binaries
from tests.cluster.paths import REPOSITORY

pytestmark = pytest.mark.e2e

CHART = REPOSITORY / "charts" / "wattkeeper"
GOLDEN = REPOSITORY / "tests" / "golden" / "chart"
UPDATE = "WATTKEEPER_UPDATE_GOLDEN"


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([Binaries().helm, *arguments], capture_output=True, text=True, check=False)
    assert not check or result.returncode == 0, result.stderr
    return result


def render(*arguments: str) -> str:
    command = (
        "template",
        "wattkeeper",
        str(CHART),
        "--namespace=wattkeeper-system",
        "--kube-version=v1.36.0",
    )
    return helm(*command, *arguments).stdout


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def test_lint_finds_nothing() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART)).stdout


@pytest.mark.parametrize("case", sorted(path.name.split(".")[0] for path in GOLDEN.glob("*.values.yaml")))
def test_golden(case: str) -> None:
    """The objects but for the CRDs; WATTKEEPER_UPDATE_GOLDEN=1 writes them anew."""
    rendered = render("--set=crds.install=false", f"--values={GOLDEN / case}.values.yaml")
    golden = GOLDEN / f"{case}.yaml"
    if os.environ.get(UPDATE):
        golden.write_text(rendered)
    assert rendered == golden.read_text(), (
        f"set {UPDATE}=1 to write {golden.name} anew, and read the difference"
    )


def test_the_crds_are_the_generated_ones_and_outlive_the_release() -> None:
    generated = {crd["metadata"]["name"]: crd for crd in map(_load, (REPOSITORY / "crds").glob("*.yaml"))}
    rendered = {
        document["metadata"]["name"]: document
        for document in documents(render())
        if document["kind"] == "CustomResourceDefinition"
    }
    assert rendered == generated
    assert {crd["metadata"]["annotations"]["helm.sh/resource-policy"] for crd in rendered.values()} == {
        "keep"
    }


def test_no_rule_of_the_operator_reaches_secrets_or_everything() -> None:
    roles = [
        document
        for case in ("default", "namespaces", "everything")
        for document in documents((GOLDEN / f"{case}.yaml").read_text())
        if document["kind"] in ("Role", "ClusterRole")
    ]
    assert roles
    for rule in (rule for role in roles for rule in role["rules"]):
        resources = {resource.split("/")[0] for resource in rule["resources"]}
        assert not resources & {"secrets", "serviceaccounts", "roles", "rolebindings", "clusterroles", "*"}, (
            rule
        )
        assert "*" not in [*rule["verbs"], *rule["apiGroups"]], rule


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replicas=2", "additional properties 'replicas' not allowed"),
        ("operator.setings.workers=8", "additional properties 'setings' not allowed"),
        ("operator.settings.worker=8", "additional properties 'worker' not allowed"),
        ("operator.settings.workers=0", "'/operator/settings/workers': minimum: got 0, want 1"),
        ("operator.settings.sweepIntervalSeconds=1e30", "'/operator/settings/sweepIntervalSeconds'"),
        ("operator.settings.leaseDurationSeconds=NaN", "'/operator/settings/leaseDurationSeconds'"),
        ("operator.settings.logLevel=loud", "value must be one of 'debug', 'info', 'warning', 'error'"),
        ("operator.replicas=-1", "'/operator/replicas': minimum: got -1, want 0"),
        ("image.digest=sha256:12", "'/image/digest'"),
        ("watchNamespaces={Team_A}", "'/watchNamespaces/0'"),
        ("crds.install=maybe", "'/crds/install': got string, want boolean"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(value: str, said: str) -> None:
    refused = helm("template", "wattkeeper", str(CHART), f"--set={value}", check=False)
    assert refused.returncode != 0
    assert said in refused.stderr


def test_an_older_kubernetes_is_refused() -> None:
    refused = helm("template", "wattkeeper", str(CHART), "--kube-version=v1.28.15", check=False)
    assert refused.returncode != 0
    assert "requires kubeVersion: >=1.29.0-0" in refused.stderr
    assert helm("template", "wattkeeper", str(CHART), "--kube-version=v1.29.1-gke.100").returncode == 0


@pytest.mark.parametrize(("replicas", "budgets"), [(0, 0), (1, 0), (2, 1)])
def test_a_disruption_budget_only_where_it_cannot_block_a_drain(replicas: int, budgets: int) -> None:
    kinds = [document["kind"] for document in documents(render(f"--set=operator.replicas={replicas}"))]
    assert kinds.count("PodDisruptionBudget") == budgets


def test_as_a_subchart_it_takes_its_parents_globals() -> None:
    assert documents(render("--set=global.region=eu"))


def _load(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))
