"""The Job that measures, the ConfigMap that keeps what it found, and how far a Job is."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.power_samples import GpuPowerState, Moments, RestState
from wattkeeper.kube.manifests.tax_job import START_SECONDS, TaxJob, job_name, tax_job
from wattkeeper.kube.manifests.tax_result import RECORDING, STUDY, TaxResult, tax_result, tax_results
from wattkeeper.kube.tax_jobs import JobState, Progress, progress_of, stuck

UUID = "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00"
JOB = TaxJob(
    node="gpu-7",
    namespace="wattkeeper-system",
    image="example.test/wattkeeper:1",
    seconds=7350.0,
    arguments=("--bare=2100s",),
)


# ---- the Job -----------------------------------------------------------------------------------------


def test_one_try_on_one_gpu_of_the_node() -> None:
    job = tax_job(JOB)
    assert job["metadata"]["name"] == "wattkeeper-tax-gpu-7"
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["parallelism"], spec["completions"]) == (0, 1, 1)
    assert spec["activeDeadlineSeconds"] == 8085 + START_SECONDS
    assert spec["ttlSecondsAfterFinished"] > 0
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    name = {"key": "metadata.name", "operator": "In", "values": ["gpu-7"]}
    assert required == {"nodeSelectorTerms": [{"matchFields": [name]}]}
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["args"] == ["tax", "measure", "--local", "--record=-", "--bare=2100s"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_it_has_no_rights_that_it_does_not_need() -> None:
    pod = tax_job(JOB)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all("hostPath" not in volume for volume in pod["volumes"])
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod)


def test_what_a_cluster_may_need_besides() -> None:
    plain = tax_job(JOB)["spec"]["template"]["spec"]
    assert not {"runtimeClassName", "imagePullSecrets"} & set(plain)
    job = TaxJob(
        node="gpu-7",
        namespace="x",
        image="i",
        seconds=1.0,
        runtime_class="nvidia",
        pull_secrets=("registry",),
        pull_policy="Never",
    )
    pod = tax_job(job)["spec"]["template"]["spec"]
    assert pod["runtimeClassName"] == "nvidia" and pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["containers"][0]["imagePullPolicy"] == "Never"


@given(st.from_regex(r"\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"))
def test_any_node_has_a_job_name(node: str) -> None:
    name = job_name(node)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name)
    assert name == job_name(node)


def test_nodes_that_look_alike_have_names_of_their_own() -> None:
    nodes = ["a.b", "a-b", f"{'n' * 80}1", f"{'n' * 80}2"]
    assert len({job_name(node) for node in nodes}) == len(nodes)


# ---- the result --------------------------------------------------------------------------------------

STATE = GpuPowerState(
    {RestState.BARE: Moments(7, 71.78, 0.01, 345), RestState.CONTEXT: Moments(14, 121.6, 0.2)}
)
RESULT = TaxResult(uuid=UUID, node="gpu-7", state=STATE, study={"step_watts": 49.9}, recording="{}\n" * 400)


def test_a_result_is_read_as_it_was_kept() -> None:
    config_map = tax_result(RESULT, "wattkeeper-system")
    assert config_map["metadata"]["name"] == f"wattkeeper-tax-{UUID.lower()}"
    assert tax_results([config_map]) == ({UUID: STATE}, [])
    assert json.loads(config_map["data"][STUDY]) == {"step_watts": 49.9}
    recording = gzip.decompress(base64.b64decode(config_map["binaryData"][RECORDING])).decode()
    assert recording == RESULT.recording
    # Written twice, it is the same to the byte: nothing changes in the cluster.
    assert tax_result(RESULT, "wattkeeper-system") == config_map


def test_with_and_without_boost_stand_beside_each_other() -> None:
    unboosted = GpuPowerState(
        {RestState.BARE: Moments(7, 71.78, 0.01, 345), RestState.CONTEXT_UNBOOSTED: Moments(7, 90.0, 0.1)}
    )
    other = TaxResult(uuid=UUID, node="gpu-7", state=unboosted, study={}, recording="", unboosted=True)
    both = [tax_result(RESULT, "x"), tax_result(other, "x")]
    assert len({each["metadata"]["name"] for each in both}) == 2
    found, _ = tax_results(both)
    assert set(found[UUID].moments) == set(RestState)
    assert found[UUID].moments[RestState.BARE].weight == 14


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", "{}", '{"bare": [1, 2]}', '{"bare": [-1, 2, 3, 4]}', "NaN", "[" * 100_000, None, 7],
)
def test_a_result_that_cannot_be_read_is_named(text: Any) -> None:
    spoiled = tax_result(RESULT, "x")
    spoiled["data"][UUID] = text
    found, (problem,) = tax_results([spoiled, {"metadata": {}}, {"data": {"other": "x"}}])
    assert found == {}
    assert problem.startswith(f"ConfigMap x/wattkeeper-tax-{UUID.lower()}: data.{UUID} holds no figures")


@pytest.mark.parametrize("uuid", ["", "MIG-5a5a5a5a-5a5a-5a5a", "GPU-../../x", "GPU-1 2345678"])
def test_only_whole_gpus_are_kept(uuid: str) -> None:
    with pytest.raises(ValueError, match="isn't the UUID of a GPU"):
        tax_result(TaxResult(uuid=uuid, node="n", state=STATE, study={}, recording=""), "x")


def test_a_measurement_without_a_batch_is_not_kept() -> None:
    empty = TaxResult(uuid=UUID, node="n", state=GpuPowerState({}), study={}, recording="")
    with pytest.raises(ValueError, match="too short to be kept"):
        tax_result(empty, "x")


def test_a_recording_that_is_too_large_is_left_out() -> None:
    noise = "".join(f"{hash((number, 7)):x}" for number in range(150_000))
    large = TaxResult(uuid=UUID, node="n", state=STATE, study={}, recording=noise)
    assert "binaryData" not in tax_result(large, "x")


# ---- how far it is -----------------------------------------------------------------------------------


def pod(phase: str, created: str = "2026-01-01T00:00:00Z", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"pod-{created[:4]}", "creationTimestamp": created},
        "status": {"phase": phase, **status},
    }


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "measure", "state": state}]}


def job(*conditions: str) -> dict[str, Any]:
    return {
        "status": {"conditions": [{"type": each, "status": "True", "message": each} for each in conditions]}
    }


UNSCHEDULABLE = {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]
}
LAST_WORDS = '{"power_w": 1}\nbare_idle: 71.8 W\nerror: GPU GPU-1 isn\'t ours alone: busy\n'


@pytest.mark.parametrize(
    ("the_job", "pods", "progress"),
    [
        ({}, [], Progress(JobState.WAITING, "its pod isn't there yet")),
        (
            {},
            [pod("Pending", **UNSCHEDULABLE)],
            Progress(
                JobState.WAITING,
                "no GPU of the node is free for it (nvidia.com/gpu): 0/3 nodes are available",
                "pod-2026",
            ),
        ),
        (
            {},
            [pod("Pending", **container(waiting={"reason": "ImagePullBackOff", "message": "not found"}))],
            Progress(JobState.WAITING, "ImagePullBackOff: not found", "pod-2026"),
        ),
        (
            {},
            [pod("Pending", **container(waiting={"reason": "ContainerCreating"}))],
            Progress(JobState.WAITING, "ContainerCreating", "pod-2026"),
        ),
        ({}, [pod("Running", **container(running={}))], Progress(JobState.RUNNING, "", "pod-2026")),
        (
            job("SuccessCriteriaMet", "Complete"),
            [pod("Succeeded", **container(terminated={"exitCode": 0}))],
            Progress(JobState.SUCCEEDED, "", "pod-2026", 0),
        ),
        (
            job("Failed"),
            [pod("Failed", **container(terminated={"exitCode": 75, "message": LAST_WORDS}))],
            Progress(JobState.FAILED, "GPU GPU-1 isn't ours alone: busy", "pod-2026", 75),
        ),
        (
            job("Failed"),
            [pod("Failed", **container(terminated={"exitCode": 137, "reason": "OOMKilled"}))],
            Progress(JobState.FAILED, "its container ran out of memory", "pod-2026", 137),
        ),
        (
            job("Failed"),
            [pod("Failed", message="The node was low on resource: memory.")],
            Progress(JobState.FAILED, "The node was low on resource: memory.", "pod-2026"),
        ),
        (job("Failed"), [], Progress(JobState.FAILED, "Failed")),
        (
            {},
            [pod("Failed", "2025-01-01T00:00:00Z"), pod("Running", "2026-01-01T00:00:00Z")],
            Progress(JobState.RUNNING, "", "pod-2026"),
        ),
    ],
)
def test_progress(the_job: dict[str, Any], pods: list[dict[str, Any]], progress: Progress) -> None:
    assert progress_of(the_job, pods) == progress


def test_what_does_not_pass_by_waiting() -> None:
    waiting = [
        progress_of({}, [pod("Pending", **container(waiting={"reason": reason, "message": "m"}))])
        for reason in ("InvalidImageName", "CreateContainerConfigError", "ErrImagePull")
    ]
    assert [stuck(each) for each in waiting] == [True, True, False]
