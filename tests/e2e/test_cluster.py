"""The local cluster itself: the real scheduler and controllers, with kwok in the place of kubelets."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import control_plane, nodes, processes, state
from tests.cluster import fleet as fleets
from tests.cluster.access import Cluster
from tests.cluster.binaries import Binaries
from tests.cluster.certificates import Pair, kubeconfig
from tests.cluster.components import Options
from tests.cluster.errors import ClusterError, StartError
from tests.cluster.external import VARIABLE, external_cluster
from tests.cluster.fixtures import ClusterFactory, FleetFactory
from tests.cluster.paths import REPOSITORY, state_directory

pytestmark = pytest.mark.e2e


def deployment(name: str, replicas: int, gpus: int, node_selector: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "server",
        "image": "example.test/server:1",
        "resources": {"limits": {nodes.GPU_RESOURCE: str(gpus)}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"nodeSelector": node_selector, "containers": [container]},
            },
        },
    }


def pods(cluster: Cluster, namespace: str) -> list[Any]:
    found: list[Any] = cluster.core.list_namespaced_pod(namespace).items
    return found


def is_ready(pod: Any) -> bool:
    conditions = {condition.type: condition.status for condition in pod.status.conditions or ()}
    return pod.status.phase == "Running" and conditions.get("Ready") == "True"


def test_gpu_deployment_runs_on_a_fake_node_and_goes_away(
    cluster: Cluster, namespace: str, fleet: FleetFactory
) -> None:
    added = fleet([nodes.gpu_node("e2e-l4", "L4", 4), nodes.cpu_node("e2e-cpu")])
    cluster.apps.create_namespaced_deployment(namespace, deployment("llm", 2, 2, added.selector))

    running = cluster.wait(
        "two pods are ready",
        lambda: (
            [pod for pod in pods(cluster, namespace) if is_ready(pod)]
            if sum(map(is_ready, pods(cluster, namespace))) == 2
            else None
        ),
    )
    assert {pod.spec.node_name for pod in running} == {"e2e-l4"}
    assert all(pod.status.pod_ip for pod in running)

    cluster.apps.patch_namespaced_deployment_scale("llm", namespace, {"spec": {"replicas": 0}})
    cluster.wait("the pods are gone", lambda: not pods(cluster, namespace))


def test_scheduler_counts_gpus(cluster: Cluster, namespace: str, fleet: FleetFactory) -> None:
    added = fleet([nodes.gpu_node("e2e-a30", "A30", 2, unhealthy=1)])
    cluster.apps.create_namespaced_deployment(namespace, deployment("llm", 2, 1, added.selector))

    def one_left_over() -> bool:
        found = pods(cluster, namespace)
        waiting = [pod for pod in found if pod.status.phase == "Pending" and pod.status.conditions]
        return sum(map(is_ready, found)) == 1 and len(waiting) == 1

    cluster.wait("one pod runs, one waits", one_left_over)
    (waiting,) = [pod for pod in pods(cluster, namespace) if pod.status.phase == "Pending"]
    assert waiting.status.conditions[0].reason == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in waiting.status.conditions[0].message


def test_taint_keeps_pods_away(cluster: Cluster, namespace: str, fleet: FleetFactory) -> None:
    added = fleet([nodes.gpu_node("e2e-tainted", "L4", 1, taints=[nodes.GPU_TAINT])])
    cluster.apps.create_namespaced_deployment(namespace, deployment("llm", 1, 1, added.selector))

    def refused() -> bool:
        return any("untolerated taint" in str(pod.status.conditions) for pod in pods(cluster, namespace))

    cluster.wait("the scheduler names the taint", refused)


def test_removed_fleet_leaves_nothing(cluster: Cluster, namespace: str, fleet: FleetFactory) -> None:
    added = fleet()
    cluster.apps.create_namespaced_deployment(namespace, deployment("llm", 1, 1, added.selector))
    cluster.wait("the pod is ready", lambda: any(map(is_ready, pods(cluster, namespace))))
    added.remove()
    assert not {node.metadata.name for node in cluster.core.list_node().items} & set(added.node_names)
    assert not any(pod.spec.node_name for pod in pods(cluster, namespace))


def test_service_account_has_its_own_rights(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """The chart's rights are tested with such a kubeconfig, so it must not be the administrator's."""
    path = cluster.service_account_kubeconfig(namespace, "default", tmp_path / "kubeconfig")
    account = Cluster(path, cluster.binaries)
    identity = json.loads(account.kubectl("auth", "whoami", "--output=json"))
    assert identity["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"
    with pytest.raises(ClusterError, match="Forbidden"):
        account.kubectl("get", "nodes")


def test_helm_reaches_the_cluster(cluster: Cluster, namespace: str) -> None:
    assert cluster.helm("list", "--namespace", namespace, "--output", "json").strip() == "[]"


def test_error_says_what_kubectl_said(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=r'kubectl get no-such-kind .*\n.*"no-such-kind"'):
        cluster.kubectl("get", "no-such-kind", "--request-timeout=10s")


def test_two_clusters_side_by_side(cluster_factory: ClusterFactory) -> None:
    first, second = cluster_factory(), cluster_factory()
    first.core.create_namespace({"metadata": {"name": "only-in-first"}})
    names = {item.metadata.name for item in second.core.list_namespace().items}
    assert "default" in names and "only-in-first" not in names
    assert first.state is not None and second.state is not None
    assert not set(vars(first.state.ports).values()) & set(vars(second.state.ports).values())


def test_scheduler_configuration_is_used(cluster_factory: ClusterFactory) -> None:
    profiles = {"profiles": [{"schedulerName": "watts"}]}
    own = cluster_factory(Options(scheduler=profiles))
    fleets.apply(own, [nodes.gpu_node("only", "L4", 1)])
    for name, scheduler in (("mine", "watts"), ("stranger", "default-scheduler")):
        container = {"name": "server", "image": "example.test/server:1"}
        own.core.create_namespaced_pod(
            "default",
            {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]}},
        )
    own.wait(
        "the pod of our profile is ready",
        lambda: is_ready(own.core.read_namespaced_pod("mine", "default")),
    )
    assert own.core.read_namespaced_pod("stranger", "default").spec.node_name is None


def test_general_pod_stages_take_their_time(cluster_factory: ClusterFactory) -> None:
    """An annotation of the pod says how long loading takes: forever, for this test, then no time at all."""
    own = cluster_factory(Options(pod_stages="general"))
    fleets.apply(own, [nodes.gpu_node("only", "L4", 1)])
    stages = "stage.kwok.x-k8s.io"
    quick = {f"pod-create.{stages}/delay": "1ms", f"pod-create.{stages}/jitter-delay": "1ms"}
    for name, delay in (("slow", "1h"), ("quick", "1ms")):
        load = {f"pod-ready.{stages}/delay": delay, f"pod-ready.{stages}/jitter-delay": delay}
        container = {"name": "server", "image": "example.test/server:1"}
        own.core.create_namespaced_pod(
            "default",
            {"metadata": {"name": name, "annotations": quick | load}, "spec": {"containers": [container]}},
        )

    def pod(name: str) -> Any:
        return own.core.read_namespaced_pod(name, "default")

    own.wait("the slow pod has an address", lambda: pod("slow").status.pod_ip)
    own.wait("the quick pod is ready", lambda: is_ready(pod("quick")))
    assert not is_ready(pod("slow"))


def test_apply_creates_and_changes(cluster: Cluster, namespace: str) -> None:
    for value in ("one", "two"):
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "sample", "namespace": namespace},
                "data": {"key": value},
            }
        )
        assert cluster.core.read_namespaced_config_map("sample", namespace).data == {"key": value}


@pytest.fixture
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A state directory of the test's own: other test runs of this user come and go in the usual one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return state_directory()


def test_kubeconfig_variable_uses_that_cluster(cluster: Cluster, own_state: Path) -> None:
    """A whole run of another test, in a process that must not start a control plane of its own."""
    test = f"{__file__}::test_gpu_deployment_runs_on_a_fake_node_and_goes_away"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", test],
        env={**os.environ, VARIABLE: str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout
    # Logs outlive a cluster, so their absence shows that none was started.
    assert not list(own_state.glob("*/logs"))


def test_kwok_is_started_for_a_cluster_without() -> None:
    binaries, owner, name = Binaries(), processes.current(), f"test-{secrets.token_hex(4)}"
    known = control_plane.start(name, binaries, owner=owner)
    try:
        processes.stop([component for component in known.components if component.name == "kwok"])
        messages: list[str] = []
        with external_cluster(known.layout.kubeconfig, binaries, messages.append) as found:
            assert "No kwok answers" in messages[0]
            fleets.apply(found, [nodes.gpu_node("looked-after", "L4", 1)])
        with pytest.raises(StartError, match="kwok of cluster"):
            control_plane.check(known)
    finally:
        control_plane.release(known, owner)
    assert state.load(name) is None
    assert not any(component.alive() for component in known.components)


def test_unreachable_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig("gone", "https://127.0.0.1:1", b"", "admin", Pair(b"", b"")))
    with (
        pytest.raises(ClusterError, match=f"{VARIABLE}={path}: the cluster cannot be used"),
        external_cluster(path, Binaries(), print),
    ):
        pass


def test_failed_start_shows_the_log_and_leaves_nothing(
    cluster_factory: ClusterFactory, own_state: Path
) -> None:
    wrong = Options(scheduler={"profiles": [{"schedulerName": "twice"}, {"schedulerName": "twice"}]})
    with pytest.raises(StartError, match=r"kube-scheduler ended while starting(?s:.*)Duplicate value"):
        cluster_factory(wrong)
    assert not list(state.all_states())
    (log,) = own_state.glob("*/logs/kube-scheduler.log")
    assert "Duplicate value" in log.read_text()


def test_cluster_of_a_killed_test_run_is_swept(cluster_factory: ClusterFactory, own_state: Path) -> None:
    start = (
        "from tests.cluster import binaries, control_plane, processes\n"
        "control_plane.start('test-killed', binaries.Binaries(), owner=processes.current())"
    )
    subprocess.run([sys.executable, "-c", start], check=True, cwd=REPOSITORY)
    left = state.load("test-killed")
    assert left is not None and not left.ended()
    cluster_factory()
    assert state.load("test-killed") is None
    assert not any(component.alive() for component in left.components)
