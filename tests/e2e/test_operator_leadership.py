"""One operator acts at a time: restarts, crashes, stopped processes, and what they leave."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.access import Cluster
from tests.cluster.fixtures import ClusterFactory, FleetFactory
from tests.cluster.fleet import apply as put_nodes
from tests.cluster.nodes import gpu_node
from tests.cluster.paths import REPOSITORY
from tests.e2e.operators import LEASE, Models, Operator

pytestmark = pytest.mark.e2e

EXIT_LEADERSHIP_LOST = 75
EXIT_CONFIGURATION = 78
Operators = Callable[[str], Operator]


def holder(models: Models) -> str:
    """Who holds the Lease; empty: nobody."""
    path = f"--namespace={models.namespace}"
    lease = json.loads(models.cluster.kubectl("get", "lease", LEASE, path, "--output=json"))
    return str(lease["spec"].get("holderIdentity") or "")


def fingerprint(models: Models, name: str) -> tuple[object, ...]:
    """Everything that a restart must leave as it is."""
    deployment, found = models.deployment(name), models.get(name)
    return (
        found["metadata"]["generation"],
        found["status"],
        deployment.metadata.uid,
        deployment.metadata.generation,
        deployment.metadata.annotations["deployment.kubernetes.io/revision"],
        models.service(name).metadata.resource_version,
        sorted(pod.metadata.uid for pod in models.pods(name)),
    )


def test_a_restart_changes_nothing(models: Models, fleet: FleetFactory, operators: Operators) -> None:
    fleet([gpu_node("re-l4", "L4", 4), gpu_node("re-a30", "A30", 2)])
    operator = operators("operator").start()
    models.create("one", replicas=2)
    models.create("two", "50ms")
    models.create("never", "1ms")
    for name in ("one", "two"):
        models.wait_phase(name, "Ready")
    models.wait_phase("never", "Unschedulable")
    before = {name: fingerprint(models, name) for name in ("one", "two")}
    assert operator.stop() == 0
    assert holder(models) == ""

    # A better pool for "one" would have come, were it placed today.
    fleet([gpu_node("re-l4-new", "L4", 4)])
    operator.start()
    sweeps = operator.metric("wattkeeper_sweep_seconds_count")
    models.cluster.wait(
        "two sweeps have passed", lambda: operator.metric("wattkeeper_sweep_seconds_count") >= sweeps + 2
    )
    assert {name: fingerprint(models, name) for name in before} == before
    assert operator.metric("wattkeeper_drift_repairs_total") == 0


def test_a_crash_between_placement_and_children_is_made_good(
    models: Models, fleet: FleetFactory, operators: Operators
) -> None:
    """status.pool is what a successor goes by: the promise stands though nothing was created."""
    fleet([gpu_node("crash-l4", "L4"), gpu_node("crash-a30", "A30")])
    models.create("older")
    status = {
        "status": {"pool": "l4", "gpu": "L4", "gpusPerReplica": 1, "observedGeneration": 1, "phase": "Placed"}
    }
    patch = ("--subresource=status", "--type=merge", f"--patch={json.dumps(status)}")
    models.cluster.kubectl("patch", "llmd", "older", f"--namespace={models.namespace}", *patch)
    models.create("younger")
    operators("operator").start()
    assert models.wait_phase("older", "Ready")["pool"] == "l4"
    assert models.wait_phase("younger", "Ready")["pool"] == "a30"


def test_a_crash_before_the_replicas_were_written_is_made_good(
    models: Models, fleet: FleetFactory, operators: Operators
) -> None:
    """A Deployment that was left paused goes on."""
    fleet([gpu_node("paused-l4", "L4", 2)])
    operator = operators("operator").start()
    models.create("llama", replicas=2)
    models.wait_phase("llama", "Ready")
    operator.signal(signal.SIGKILL)
    operator.wait()
    models.cluster.kubectl("rollout", "pause", "deployment/llama", f"--namespace={models.namespace}")
    models.cluster.kubectl("scale", "deployment/llama", "--replicas=1", f"--namespace={models.namespace}")
    operator.start()

    def goes_on() -> bool:
        spec = models.deployment("llama").spec
        return spec.replicas == 2 and not spec.paused

    models.cluster.wait("it goes on with two replicas", goes_on)
    models.wait_phase("llama", "Ready")


def test_a_follower_takes_over_when_the_leader_is_killed(
    models: Models, fleet: FleetFactory, operators: Operators
) -> None:
    fleet([gpu_node("kill-l4", "L4", 2)])
    first = operators("first").start()
    second = operators("second").start(leading=False)
    assert not second.leads()
    models.create("before")
    models.wait_phase("before", "Ready")
    unmoved = fingerprint(models, "before")

    first.signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    models.cluster.wait("the second leads", second.leads)
    assert holder(models) == "second"
    models.create("after")
    models.wait_phase("after", "Ready")
    assert fingerprint(models, "before") == unmoved


def test_a_stopped_leader_loses_ends_and_writes_nothing(
    models: Models, fleet: FleetFactory, operators: Operators
) -> None:
    """SIGSTOP, as a frozen machine: when it wakes, another one leads."""
    fleet([gpu_node("stop-l4", "L4", 2)])
    first = operators("first").start()
    second = operators("second").start(leading=False)
    first.signal(signal.SIGSTOP)
    # What happens now piles up in its sockets.
    models.create("meanwhile")
    models.cluster.wait("the second leads", second.leads)
    models.wait_phase("meanwhile", "Ready")
    unmoved = fingerprint(models, "meanwhile")

    first.signal(signal.SIGCONT)
    assert first.wait(15) == EXIT_LEADERSHIP_LOST
    assert "leadership lost" in first.log()
    assert "placed" not in first.log().split("leadership lost")[-1]
    time.sleep(1)
    assert fingerprint(models, "meanwhile") == unmoved
    assert holder(models) == "second"
    assert second.running


def test_a_leader_without_an_api_server_ends_too(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """The Lease can't be renewed: whether another one leads can't be known, so nothing may be done."""
    cluster = with_crds(cluster_factory(), "alone")
    operator = Operator(cluster, "alone", tmp_path, "alone").start()
    assert cluster.state is not None
    api_server = next(each for each in cluster.state.components if each.name == "kube-apiserver")
    os.kill(api_server.pid, signal.SIGSTOP)
    try:
        assert operator.wait(30) == EXIT_LEADERSHIP_LOST
    finally:
        os.kill(api_server.pid, signal.SIGCONT)


def test_the_lease_is_given_back_at_once(models: Models, operators: Operators) -> None:
    first = operators("first").start({"WATTKEEPER_LEASE_DURATION_SECONDS": "60"})
    second = operators("second").start({"WATTKEEPER_LEASE_DURATION_SECONDS": "60"}, leading=False)
    started = time.monotonic()
    assert first.stop() == 0
    models.cluster.wait("the second leads", second.leads)
    assert time.monotonic() - started < 20


def test_a_follower_ends_in_peace(operators: Operators) -> None:
    operators("first").start()
    second = operators("second").start(leading=False)
    assert second.stop() == 0


def test_wrong_settings_end_with_all_of_them_named(operators: Operators) -> None:
    operator = operators("wrong")
    wrong = {"WATTKEEPER_WORKERS": "many", "WATTKEEPER_SETTLE_SECONDS": "NaN"}
    with pytest.raises(AssertionError, match=f"ended with {EXIT_CONFIGURATION}"):
        operator.start(wrong)
    assert "WATTKEEPER_WORKERS: write a whole number" in operator.log()
    assert "WATTKEEPER_SETTLE_SECONDS: write seconds" in operator.log()


def test_it_waits_for_crds_that_come_later(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    cluster = cluster_factory()
    cluster.core.create_namespace({"metadata": {"name": "early"}})
    operator = Operator(cluster, "early", tmp_path, "early")
    operator.start(until=lambda: "waiting for the CRDs" in operator.log())
    assert not operator.answers(), "it isn't ready before it knows the cluster"
    put_nodes(cluster, [gpu_node("early-l4", "L4")])
    cluster.kubectl("apply", "--server-side", "--filename", str(REPOSITORY / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    cluster.wait("it leads", operator.leads)
    models = Models(cluster, "early")
    models.create("llama")
    models.wait_phase("llama", "Ready")
    assert operator.stop() == 0


def with_crds(cluster: Cluster, namespace: str) -> Cluster:
    """A control plane of the test's own, with the CRDs and one namespace."""
    cluster.kubectl("apply", "--server-side", "--filename", str(REPOSITORY / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    cluster.core.create_namespace({"metadata": {"name": namespace}})
    return cluster
