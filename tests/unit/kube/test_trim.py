"""What is kept of each object."""

from typing import Any

import pytest

from tests.unit.kube.objects import llmd, meta, node, pod, pool
from wattkeeper.kube.manifests.record import ANNOTATION, Placed
from wattkeeper.kube.trim import (
    Key,
    child_value,
    claim_of,
    node_value,
    pod_value,
    pool_value,
    service_value,
)


def test_nodes_without_gpus_are_left_out_and_broken_ones_named(caplog: pytest.LogCaptureFixture) -> None:
    assert node_value(node("n", 2)) is not None
    plain = node("cpu")
    plain["status"]["allocatable"] = plain["status"]["capacity"] = {"cpu": "4"}
    plain["metadata"]["labels"] = {}
    assert node_value(plain) is None
    broken = node("odd")
    broken["status"]["allocatable"]["nvidia.com/gpu"] = "many"
    assert node_value(broken) is None
    assert "node odd isn't used" in caplog.text


def test_a_heartbeat_is_no_change_of_a_node() -> None:
    before, after = node("n"), node("n")
    after["metadata"]["resourceVersion"] = "999"
    after["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:10Z"
    assert node_value(before) == node_value(after)


@pytest.mark.parametrize(
    ("thing", "kept"),
    [
        (pod("p", "n"), True),
        (pod("p"), True),
        (pod("p", "n", gpus=0), False),
        (pod("p", "n", gpus=0, model="llama"), True),
        (pod("p", "n", phase="Succeeded"), False),
        (pod("p", "n", phase="Failed", model="llama"), False),
    ],
)
def test_pods_matter_that_hold_gpus_or_serve_a_model(thing: dict[str, Any], kept: bool) -> None:
    assert (pod_value(thing) is not None) is kept


@pytest.mark.parametrize(
    ("waiting", "trouble"),
    [
        ({"reason": "ContainerCreating"}, ""),
        ({"reason": "PodInitializing"}, ""),
        ({"reason": "CrashLoopBackOff"}, "container server: CrashLoopBackOff"),
        (
            {"reason": "ImagePullBackOff", "message": "no such\n image"},
            "container server: ImagePullBackOff: no such image",
        ),
    ],
)
def test_a_models_pod_says_why_it_cannot_run(waiting: dict[str, str], trouble: str) -> None:
    statuses = [{"name": "server", "state": {"waiting": waiting}}]
    record = pod_value(pod("p", "n", model="llama", containerStatuses=statuses))
    assert record is not None
    assert record.trouble == trouble
    others = pod_value(pod("p", "n", containerStatuses=statuses))
    assert others is not None
    assert others.trouble == ""


def test_a_claim_holds_what_others_must_know() -> None:
    template = {"spec": {"tolerations": [{"key": "spot", "operator": "Exists"}], "nodeSelector": {"z": "a"}}}
    claim = claim_of(
        llmd(
            "llama",
            {"pool": "l4", "gpusPerReplica": 2, "phase": "Ready", "observedGeneration": 1},
            server={"template": template},
            replicas=3,
        )
    )
    assert (claim.key, claim.pool, claim.gpus_per_replica, claim.replicas) == (
        Key("team-a", "llama"),
        "l4",
        2,
        3,
    )
    assert [each.key for each in claim.tolerations] == ["spot"]
    assert dict(claim.node_selector) == {"z": "a"}
    assert not claim.refused
    assert not claim.deleting


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"replicas": "three", "server": {"template": {"spec": {"tolerations": "all"}}}, "model": None},
        {"server": {"template": "none"}},
    ],
)
def test_an_invalid_spec_keeps_the_gpus_it_was_promised(spec: dict[str, Any]) -> None:
    broken = llmd("llama", {"pool": "l4", "gpusPerReplica": 1})
    broken["spec"] = spec
    claim = claim_of(broken)
    assert (claim.pool, claim.replicas) == ("l4", 1)


def test_refused_and_deleting_are_told() -> None:
    refused = {"conditions": [{"type": "Accepted", "status": "False"}]}
    gone = llmd("llama", refused)
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert claim_of(gone).refused
    assert claim_of(gone).deleting


def deployment(**spec: Any) -> dict[str, Any]:
    owner = {"uid": "uid-llama", "controller": True}
    record = Placed("l4", 1, (), 16, None, "f")
    return {
        "metadata": meta("llama", annotations={ANNOTATION: record.to_annotation()}, ownerReferences=[owner]),
        "spec": {"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 1}}, **spec},
        "status": {"observedGeneration": 1, "replicas": 2, "readyReplicas": 1, "updatedReplicas": 2},
    }


def test_a_child_is_kept_with_its_record_owner_and_counts() -> None:
    child = child_value(deployment())
    assert (child.owner_uid, child.placed and child.placed.pool, child.surge) == ("uid-llama", "l4", True)
    assert (child.facts.wanted, child.facts.replicas, child.facts.ready) == (2, 2, 1)
    assert not child.facts.rolling
    assert not child_value(deployment(strategy={"rollingUpdate": {"maxSurge": 0}})).surge


def test_a_fresh_child_has_no_status_yet() -> None:
    fresh = deployment(paused=True)
    del fresh["status"]
    child = child_value(fresh)
    assert (child.facts.paused, child.facts.observed, child.facts.replicas) == (True, False, 0)


def test_what_keeps_a_deployment_from_its_pods_is_told() -> None:
    failing = deployment()
    failing["status"]["conditions"] = [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    ]
    assert child_value(failing).facts.failure == "FailedCreate: exceeded quota"


def test_services_are_kept_by_version_and_owner() -> None:
    record = service_value({"metadata": meta("llama", ownerReferences=[{"uid": "u", "controller": False}])})
    assert (record.key, record.owner_uid) == (Key("team-a", "llama"), "")


def test_pools_are_parsed_or_kept_with_what_is_wrong() -> None:
    fine = pool_value(pool("mine", {"a": "b"}, tier="gold"))
    assert fine.parsed is not None
    assert not fine.parsed.discovered
    broken = pool_value({**pool("odd", {}), "spec": {}})
    assert broken.parsed is None
    assert "spec.nodeSelector" in broken.errors


@pytest.mark.parametrize(
    ("manager", "field", "foreign"),
    [
        ("kubectl-label", "f:labels", True),
        ("kubectl-label", "f:annotations", True),
        ("wattkeeper-operator", "f:labels", False),
        ("kubectl-label", "f:finalizers", False),
    ],
)
def test_what_users_added_to_a_pool_is_told(manager: str, field: str, foreign: bool) -> None:
    found = pool("l4", {"a": "b"})
    found["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": {"f:metadata": {field: {}}}}]
    assert pool_value(found).foreign_labels is foreign
