from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattkeeper.api.errors import SpecErrors
from wattkeeper.core.fleet import Taint
from wattkeeper.kube.nodes import ManifestError, bound_replicas, fleet_of, gpu_node, gpus_held, gpus_requested

Manifest = dict[str, Any]


def node(name: str = "n1", *, labels: Manifest | None = None, gpus: Any = "4", **changes: Any) -> Manifest:
    """A Node as `kubectl get nodes -o yaml` prints it, with what matters here."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "nvidia.com/gpu.product": "NVIDIA-L4",
                "nvidia.com/gpu.memory": "23034",
                **(labels or {}),
            },
        },
        "spec": changes.pop("spec", {}),
        "status": {
            "capacity": {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": gpus},
            "allocatable": {"cpu": "31500m", "memory": "120Gi", "nvidia.com/gpu": gpus},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
            **changes,
        },
    }


def container(gpus: Any = None, **more: Any) -> Manifest:
    return {"name": "c", **({"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}), **more}


def pod(*containers: Manifest, node_name: str | None = "n1", phase: str = "Running", **spec: Any) -> Manifest:
    labels = {"wattkeeper.dev/llmdeployment": spec.pop("owner")} if "owner" in spec else {}
    bound = {"nodeName": node_name} if node_name else {}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": spec.pop("namespace", "default"), "labels": labels},
        "spec": {"containers": list(containers), **bound, **spec},
        "status": {"phase": phase},
    }


def test_a_node_with_gpus() -> None:
    found = gpu_node(node(), gpus_held=1)
    assert found is not None
    assert (found.name, found.gpu.label, found.gpu.memory_bytes) == ("n1", "NVIDIA-L4", 23034 * 1024**2)
    assert (found.gpus_allocatable, found.gpus_held, found.gpus_free) == (4, 1, 3)
    assert found.schedulable
    assert found.problem is None


def test_nodes_without_gpus_are_left_out() -> None:
    plain = node(gpus="0")
    plain["metadata"]["labels"] = {"node.kubernetes.io/instance-type": "m5.large"}
    assert gpu_node(plain) is None


def test_unhealthy_gpus_are_not_offered_and_are_no_second_model() -> None:
    found = gpu_node(
        node(
            labels={"nvidia.com/gpu.count": "4"},
            capacity={"nvidia.com/gpu": "4"},
            allocatable={"nvidia.com/gpu": "3"},
        )
    )
    assert found is not None
    assert (found.gpus_allocatable, found.problem) == (3, None)


@pytest.mark.parametrize(
    ("changes", "schedulable"),
    [
        ({}, True),
        ({"spec": {"unschedulable": True}}, False),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, False),
        ({"conditions": [{"type": "Ready", "status": "Unknown"}]}, False),
        ({"conditions": []}, False),
        ({"conditions": None}, False),
        ({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}}, False),
        ({"spec": {"taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]}}, True),
    ],
)
def test_schedulable_means_ready_and_not_cordoned(changes: Manifest, schedulable: bool) -> None:
    found = gpu_node(node(**changes))
    assert found is not None
    assert found.schedulable is schedulable


def test_no_gpu_is_offered_that_isnt_allocatable() -> None:
    found = gpu_node(node(allocatable={"cpu": "4"}))
    assert found is not None
    assert found.gpus_allocatable == 0


def test_a_node_that_is_being_deleted_takes_nothing() -> None:
    going = node()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = gpu_node(going)
    assert found is not None
    assert found.gpus_free == 0


def test_a_node_in_a_file_needs_no_conditions() -> None:
    written = {
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
        "status": {"capacity": {"nvidia.com/gpu": 2}},
    }
    found = gpu_node(written, assume_ready=True)
    assert found is not None
    assert (found.schedulable, found.gpus_allocatable) == (True, 2)
    cordoned = gpu_node({**written, "spec": {"unschedulable": True}}, assume_ready=True)
    assert cordoned is not None
    assert not cordoned.schedulable
    down = {**written, "status": {**node()["status"], "conditions": [{"type": "Ready", "status": "False"}]}}
    not_ready = gpu_node(down, assume_ready=True)
    assert not_ready is not None
    assert not not_ready.schedulable


def test_taints_without_those_that_repeat_the_nodes_state() -> None:
    taints = [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ]
    found = gpu_node(node(spec={"taints": taints}))
    assert found is not None
    assert found.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    assert not found.schedulable


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ({"metadata": {}}, "metadata.name"),
        (node(labels={"nvidia.com/gpu.count": 8}), "metadata.labels[nvidia.com/gpu.count]"),
        (node(labels={"spot": True}), "metadata.labels[spot]"),
        (node(gpus="many"), "status.capacity[nvidia.com/gpu]"),
        (node(gpus="-1"), "status.capacity[nvidia.com/gpu]"),
        (node(gpus="500m"), "status.capacity[nvidia.com/gpu]"),
        (node(gpus="1e30"), "status.capacity[nvidia.com/gpu]"),
        (node(gpus=float("nan")), "status.capacity[nvidia.com/gpu]"),
        (node(capacity=["nvidia.com/gpu"]), "status.capacity"),
        (node(conditions="Ready"), "status.conditions"),
        (node(conditions=["Ready"]), "status.conditions[0]"),
        (node(conditions=[{"type": "Ready", "status": True}]), "status.conditions[0].status"),
        (node(conditions=[{"type": "Ready"}]), "status.conditions[0].status"),
        (node(spec={"unschedulable": "false"}), "spec.unschedulable"),
        (node(spec={"taints": ["spot"]}), "spec.taints[0]"),
        (node(spec={"taints": [{"key": "spot", "value": True}]}), "spec.taints[0].value"),
    ],
)
def test_what_cannot_be_read_names_the_field(broken: Manifest, field: str) -> None:
    with pytest.raises(ManifestError) as caught:
        gpu_node(broken)
    assert caught.value.field == field
    assert "must be" in str(caught.value) or "write" in str(caught.value)


# ---- pods ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        (pod(container()), 0),
        (pod(container("1"), container("2")), 3),
        (pod({"name": "c", "resources": {"requests": {"nvidia.com/gpu": 2}}}), 2),
        (pod(container("1"), initContainers=[container("4"), container("2")]), 4),
        (pod(container("3"), initContainers=[container("2")]), 3),
        (pod(container("1"), initContainers=[container("1", restartPolicy="Always")]), 2),
        (pod(container("1"), initContainers=[container("1", restartPolicy="Always"), container("4")]), 5),
        (pod(container("1"), initContainers=[container("4"), container("1", restartPolicy="Always")]), 4),
        ({}, 0),
    ],
)
def test_gpus_of_a_pod_as_kube_scheduler_counts_them(spec: Manifest, gpus: int) -> None:
    assert gpus_requested(spec) == gpus


def test_pods_hold_gpus_from_binding_to_their_end() -> None:
    terminating = pod(container("2"))
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pods = [
        pod(container("1")),
        terminating,
        pod(container("4"), node_name=None, phase="Pending"),
        pod(container("4"), phase="Succeeded"),
        pod(container("4"), phase="Failed"),
        pod(container("1"), phase="Pending", node_name="n2"),
        pod(container(), node_name="n3"),
    ]
    assert gpus_held(pods) == {"n1": 3, "n2": 1, "n3": 0}


def test_bound_replicas_by_llmdeployment() -> None:
    pods = [
        pod(container("1"), owner="llama"),
        pod(container("1"), owner="llama", node_name="n2"),
        pod(container("1"), owner="llama", node_name=None, phase="Pending"),
        pod(container("1"), owner="llama", phase="Failed"),
        pod(container("1"), owner="llama", namespace="other"),
        pod(container("1")),
    ]
    assert bound_replicas(pods) == {("default", "llama"): 2, ("other", "llama"): 1}


# ---- the fleet ----------------------------------------------------------------------------------


def gpu_node_pool(name: str, selector: Any, **metadata: Any) -> Manifest:
    return {
        "apiVersion": "wattkeeper.dev/v1alpha1",
        "kind": "GPUNodePool",
        "metadata": {"name": name, **metadata},
        "spec": {"nodeSelector": selector, "powerBudgetWatts": 700},
    }


def test_the_fleet_of_manifests() -> None:
    nodes = [node("a"), node("b", labels={"team": "ml"}), node("c", labels={"team": "ml"})]
    pools = [
        gpu_node_pool("lab", {"team": "ml"}, labels={"tier": "cheap"}),
        gpu_node_pool("l4", {"old": "one"}, labels={"wattkeeper.dev/discovered": "true", "tier": "dear"}),
    ]
    fleet = fleet_of(nodes, [pod(container("3"), node_name="a")], pools)
    assert {pool.name: [each.name for each in pool.nodes] for pool in fleet.pools} == {
        "l4": ["a"],
        "lab": ["b", "c"],
    }
    discovered, written = fleet.pools
    assert (discovered.labels["tier"], discovered.power_budget_watts, discovered.written) == (
        "dear",
        700,
        False,
    )
    assert (written.labels, written.written) == ({"tier": "cheap"}, True)
    assert discovered.nodes[0].gpus_free == 1
    assert fleet.reservations == ()


def test_the_older_of_two_overlapping_pools_keeps_the_node() -> None:
    pools = [
        gpu_node_pool("a", {"team": "ml"}, creationTimestamp="2026-02-01T00:00:00Z"),
        gpu_node_pool("b", {"team": "ml"}, creationTimestamp="2026-01-01T00:00:00Z"),
    ]
    fleet = fleet_of([node("n", labels={"team": "ml"})], pools=pools)
    assert {pool.name: len(pool.nodes) for pool in fleet.pools} == {"a": 0, "b": 1}


def test_a_pool_that_cannot_be_read_says_every_error() -> None:
    with pytest.raises(SpecErrors, match=r"spec\.nodeSelector"):
        fleet_of([node()], pools=[gpu_node_pool("lab", {})])


# ---- anything at all ----------------------------------------------------------------------------

_WORDS = """
    name labels taints key value effect conditions type status capacity allocatable nvidia.com/gpu
    nvidia.com/gpu.product nvidia.com/gpu.count unschedulable nodeName containers initContainers resources
    limits requests phase restartPolicy wattkeeper.dev/llmdeployment
"""
KEYS = st.sampled_from(_WORDS.split())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["n", "Ready", "True", "NVIDIA-L4", "8", "1e30", "", "٣", "-1"]),
    st.dates(),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
ANYTHING = st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), JSON)


@settings(deadline=None)
@given(ANYTHING, ANYTHING)
def test_whatever_stands_in_a_manifest_is_read_or_refused_by_field(a_node: Manifest, a_pod: Manifest) -> None:
    with contextlib.suppress(ManifestError):
        found = gpu_node(a_node, assume_ready=True)
        assert found is None or 0 <= found.gpus_free <= 1024
    with contextlib.suppress(ManifestError):
        assert gpus_requested(a_pod) >= 0
        assert all(count >= 0 for count in gpus_held([a_pod]).values())
        assert all(count == 1 for count in bound_replicas([a_pod]).values())
