"""The CRDs on a real API server: what it takes, what it refuses and in which words, what kubectl shows."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import kubernetes.client
import pytest

from tests.cluster.access import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.paths import REPOSITORY
from tests.unit.api.cases import BAD, GOOD, LLAMA, POOL, Case, plural
from wattkeeper.api.conditions import Stamp
from wattkeeper.api.convert import deployment_from
from wattkeeper.api.names import FIELD_MANAGER, GROUP, VERSION
from wattkeeper.api.pool_status import pool_status
from wattkeeper.api.status import Serving, placement_status, serving_status
from wattkeeper.core.decision import Candidate, PlacementDecision, Rejection
from wattkeeper.core.fleet import GpuNode, Pool
from wattkeeper.core.forecast import Forecast, GpuKind

pytestmark = pytest.mark.e2e

STAMP = Stamp(1, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


@pytest.fixture(scope="module")
def crds(cluster: Cluster) -> Cluster:
    """The cluster with the CRDs established; an API server that found them too costly would refuse here."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(REPOSITORY / "crds"))
    names = [f"crd/llmdeployments.{GROUP}", f"crd/gpunodepools.{GROUP}"]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    return cluster


def refusal(cluster: Cluster, resource: dict[str, Any], namespace: str = "default") -> str:
    """What the API server says against creating this (nothing is created); empty if it takes it."""
    resource = copy.deepcopy(resource)
    resource["metadata"].pop("namespace", None)
    try:
        if resource["kind"] == "GPUNodePool":
            cluster.custom.create_cluster_custom_object(
                GROUP, VERSION, plural(resource), resource, dry_run="All"
            )
        else:
            cluster.custom.create_namespaced_custom_object(
                GROUP, VERSION, namespace, plural(resource), resource, dry_run="All"
            )
    except kubernetes.client.ApiException as error:
        assert error.status == 422, error
        return str(json.loads(error.body)["message"])
    return ""


@pytest.mark.parametrize("case", GOOD, ids=str)
def test_good_input_is_taken(crds: Cluster, case: Case) -> None:
    assert refusal(crds, case.resource()) == ""


@pytest.mark.parametrize("case", BAD, ids=str)
def test_bad_input_is_refused_by_name_and_with_the_cure(crds: Cluster, case: Case) -> None:
    message = refusal(crds, case.resource())
    assert case.refused is not None
    assert case.refused in message
    assert case.words in message


def test_defaults_are_filled_in(crds: Cluster, namespace: str) -> None:
    created = create(crds, namespace, LLAMA)
    assert created["spec"] == {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "none"},
        "server": {
            "engine": "vllm",
            "image": "vllm/vllm-openai:v0.11.0",
            "port": 8000,
            "maxRequestDuration": "10m",
        },
        "replicas": 1,
        "workload": {
            "scenario": "Server",
            "requestsPerSecond": "330m",
            "promptTokens": 256,
            "outputTokens": 256,
        },
        "sla": {"interTokenLatency": "50ms", "statistic": "Mean", "predictionConfidencePercent": 90},
        "placement": {"poolSelector": {}},
        "parking": {"policy": "BreakEven", "minIdle": "60s", "dryRun": False},
    }
    # A file that was never applied means the same as what the API server made of it.
    filled, plain = deployment_from(created), deployment_from(LLAMA)
    assert filled.spec == plain.spec


def test_the_template_keeps_what_it_is_given_and_nothing_else_does(crds: Cluster, namespace: str) -> None:
    resource = copy.deepcopy(LLAMA)
    resource["spec"]["server"] = {"template": {"spec": {"anything": [{"goes": 1.5}]}}}
    resource["spec"]["surplus"] = 1
    created = create(crds, namespace, resource)
    assert created["spec"]["server"]["template"] == {"spec": {"anything": [{"goes": 1.5}]}}
    assert "surplus" not in created["spec"]


def test_kubectl_refuses_a_typo(crds: Cluster, namespace: str) -> None:
    resource = copy.deepcopy(LLAMA)
    resource["metadata"] = {"name": "llama", "namespace": namespace}
    resource["spec"]["sla"]["interTokenLatancy"] = "50ms"
    with pytest.raises(ClusterError, match=r'unknown field "spec\.sla\.interTokenLatancy"'):
        crds.kubectl("create", "-f", "-", stdin=json.dumps(resource))


def test_the_model_is_immutable_once_it_is_placed(crds: Cluster, namespace: str) -> None:
    create(crds, namespace, LLAMA)
    patch(crds, namespace, {"spec": {"model": {"id": "gpt2"}}})  # a wrong one can be mended
    write_status(crds, namespace, placed(crds, namespace))
    with pytest.raises(kubernetes.client.ApiException, match=r"spec\.model\.id is immutable once") as caught:
        patch(crds, namespace, {"spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}}})
    assert caught.value.status == 422
    patch(crds, namespace, {"spec": {"replicas": 2, "model": {"quantization": "fp8"}}})


def test_kubectl_shows_phase_pool_gpu_watts_itl_and_sla(crds: Cluster, namespace: str) -> None:
    create(crds, namespace, LLAMA)
    write_status(crds, namespace, placed(crds, namespace))
    head, row = crds.kubectl("get", "llmd", f"--namespace={namespace}").splitlines()
    assert head.split() == ["NAME", "PHASE", "POOL", "GPU", "WATTS", "ITL", "SLA", "AGE"]
    assert row.split()[:-1] == ["llama", "Placed", "a30", "A30", "139", "20.6ms", "50ms"]
    wide = crds.kubectl("get", "llmd", f"--namespace={namespace}", "--output=wide").splitlines()[0]
    assert wide.split()[8:] == ["MODEL", "REPLICAS", "READY", "GPUS", "ITL-UPPER", "REASON"]
    assert "llama" in crds.kubectl("get", "wattkeeper", f"--namespace={namespace}")


def test_a_status_is_stored_as_it_was_made(crds: Cluster, namespace: str) -> None:
    create(crds, namespace, LLAMA)
    status = placed(crds, namespace)
    write_status(crds, namespace, status)
    assert read(crds, namespace)["status"] == status
    # The next whole status of the same manager takes away what it no longer says.
    less = {key: value for key, value in status.items() if key not in {"pool", "prediction"}}
    less["candidates"] = less["candidates"][:1]
    write_status(crds, namespace, less)
    assert read(crds, namespace)["status"] == less


def test_two_managers_say_different_conditions(crds: Cluster, namespace: str) -> None:
    """Conditions are a list-map: another writer's condition stays beside ours."""
    create(crds, namespace, LLAMA)
    status = placed(crds, namespace)
    write_status(crds, namespace, status)
    theirs = {"conditions": [dict(status["conditions"][0], type="Theirs")]}
    write_status(crds, namespace, theirs, manager="somebody-else")
    write_status(crds, namespace, status)
    types = {each["type"] for each in read(crds, namespace)["status"]["conditions"]}
    assert types == {"Theirs", *(each["type"] for each in status["conditions"])}


def test_scale_reads_pods_and_writes_the_spec(crds: Cluster, namespace: str) -> None:
    create(crds, namespace, LLAMA)
    spec = deployment_from(LLAMA).spec
    before = placed(crds, namespace)
    write_status(crds, namespace, serving_status(Serving("app=llama", 1, 1), spec, STAMP, before))
    scale = crds.custom.get_namespaced_custom_object_scale(
        GROUP, VERSION, namespace, "llmdeployments", "llama"
    )
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 1, "selector": "app=llama"}
    crds.kubectl("scale", "llmd/llama", "--replicas=3", f"--namespace={namespace}")
    assert read(crds, namespace)["spec"]["replicas"] == 3
    with pytest.raises(ClusterError, match="less than or equal to 1000"):
        crds.kubectl("scale", "llmd/llama", "--replicas=1001", f"--namespace={namespace}")


def test_a_pool_with_its_status(crds: Cluster) -> None:
    resource = copy.deepcopy(POOL)
    resource["metadata"]["name"] = name = "api-test-l40s"
    crds.custom.create_cluster_custom_object(GROUP, VERSION, "gpunodepools", resource)
    try:
        kind = GpuKind("NVIDIA-L40S", 46068 * 1024**2)
        nodes = (GpuNode("n1", {}, kind, gpus_allocatable=8, gpus_held=3),)
        status = pool_status(Pool(name, kind, nodes, {}, {}, power_budget_watts=2800), "L40S", STAMP)
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUNodePool", "metadata": {"name": name}}
        stored = crds.custom.patch_cluster_custom_object_status(
            GROUP,
            VERSION,
            "gpunodepools",
            name,
            body | {"status": status},
            field_manager=FIELD_MANAGER,
            force=True,
            _content_type="application/apply-patch+yaml",
        )
        assert stored["status"] == status
        head, row = crds.kubectl("get", "gnp", name).splitlines()
        assert head.split() == ["NAME", "GPU", "MEMORY", "NODES", "GPUS", "FREE", "AGE"]
        assert row.split()[:-1] == [name, "L40S", "46068Mi", "1", "8", "5"]
    finally:
        crds.custom.delete_cluster_custom_object(GROUP, VERSION, "gpunodepools", name)


def test_kubectl_explains_the_fields(crds: Cluster) -> None:
    text = " ".join(crds.kubectl("explain", "llmd.spec.sla.interTokenLatency").split())
    assert "FIELD: interTokenLatency <string>" in text
    assert "Longest acceptable time between two tokens of an answer (duration)." in text
    assert "GPUs on schedulable nodes that no pod has." in crds.kubectl("explain", "gnp.status.freeGPUs")


def create(cluster: Cluster, namespace: str, resource: dict[str, Any]) -> dict[str, Any]:
    body = copy.deepcopy(resource)
    body["metadata"]["namespace"] = namespace
    created = cluster.custom.create_namespaced_custom_object(
        GROUP, VERSION, namespace, plural(resource), body
    )
    return dict(created)


def read(cluster: Cluster, namespace: str) -> dict[str, Any]:
    found = cluster.custom.get_namespaced_custom_object(GROUP, VERSION, namespace, "llmdeployments", "llama")
    return dict(found)


def patch(cluster: Cluster, namespace: str, body: dict[str, Any]) -> None:
    cluster.custom.patch_namespaced_custom_object(
        GROUP,
        VERSION,
        namespace,
        "llmdeployments",
        "llama",
        body,
        _content_type="application/merge-patch+json",
    )


def placed(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """A status as the operator writes it once a pool is chosen."""
    parsed = deployment_from(read(cluster, namespace))
    forecast = Forecast(139.4, 152.2, 0.0206, 0.0244, notes=("measured before",))
    chosen = Candidate("a30", "NVIDIA-A30", "A30", 1, 4, forecast=forecast)
    full = Candidate("l4", "NVIDIA-L4", "L4", 1, 0, rejection=Rejection("InsufficientFreeGpus", "full"))
    decision = PlacementDecision(chosen, (chosen, full), "Placed", "draws the least", pools_considered=2)
    return placement_status(decision, parsed.demand, parsed.spec, STAMP)


def write_status(
    cluster: Cluster, namespace: str, status: dict[str, Any], manager: str = FIELD_MANAGER
) -> None:
    metadata = {"name": "llama", "namespace": namespace}
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "LLMDeployment", "metadata": metadata}
    cluster.custom.patch_namespaced_custom_object_status(
        GROUP,
        VERSION,
        namespace,
        "llmdeployments",
        "llama",
        body | {"status": status},
        field_manager=manager,
        force=True,
        _content_type="application/apply-patch+yaml",
    )
