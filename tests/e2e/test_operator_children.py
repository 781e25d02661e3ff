"""The children over their lifetime: drift, deletion, rollouts, other writers, input that is refused."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.cluster.access import Cluster
from tests.cluster.fixtures import FleetFactory
from tests.cluster.nodes import gpu_node
from tests.e2e.operators import LLAMA, Models, Operator

pytestmark = pytest.mark.e2e


@pytest.fixture
def llama(models: Models, fleet: FleetFactory, operator: Operator) -> str:
    """A model that runs on an L4 node with four GPUs."""
    fleet([gpu_node("child-l4", "L4", 4), gpu_node("child-a30", "A30")])
    models.create("llama")
    models.wait_phase("llama", "Ready")
    return "llama"


def template_of(deployment: Any) -> Any:
    return deployment.spec.template.spec.containers[0]


def test_drift_of_the_deployment_is_repaired(models: Models, llama: str, operator: Operator) -> None:
    image = template_of(models.deployment(llama)).image
    models.cluster.kubectl(
        "set", "image", "deployment/llama", "server=example.test/other:1", f"--namespace={models.namespace}"
    )
    models.cluster.wait("the image is back", lambda: template_of(models.deployment(llama)).image == image)
    models.cluster.wait(
        "an Event tells", lambda: "DriftRepaired" in {event.reason for event in models.events(llama)}
    )
    assert operator.metric("wattkeeper_drift_repairs_total") >= 1
    # What others add, and nobody asked us about, stays.
    models.cluster.kubectl("rollout", "restart", "deployment/llama", f"--namespace={models.namespace}")
    time.sleep(1)
    annotations = models.deployment(llama).spec.template.metadata.annotations
    assert "kubectl.kubernetes.io/restartedAt" in annotations


def test_drift_of_the_service_is_repaired(models: Models, llama: str, operator: Operator) -> None:
    patch = {"spec": {"selector": {"app": "other"}}}
    models.cluster.core.patch_namespaced_service(llama, models.namespace, patch)
    models.cluster.wait(
        "the selector is back",
        lambda: models.service(llama).spec.selector.get("wattkeeper.dev/serving") == "true",
    )


@pytest.mark.parametrize("kind", ["deployment", "service"])
def test_a_deleted_child_is_made_anew(models: Models, llama: str, operator: Operator, kind: str) -> None:
    before = getattr(models, kind)(llama).metadata.uid
    models.cluster.kubectl("delete", kind, llama, f"--namespace={models.namespace}")

    def anew() -> bool:
        found = getattr(models, kind)(llama)
        return found is not None and found.metadata.uid != before

    models.cluster.wait(f"a new {kind} exists", anew)
    assert models.wait_phase(llama, "Ready")["pool"] == "l4"


def test_a_child_that_lost_its_labels_gets_them_back(models: Models, llama: str, operator: Operator) -> None:
    label = "wattkeeper.dev/llmdeployment"
    models.cluster.kubectl("label", "deployment", llama, f"{label}-", f"--namespace={models.namespace}")
    models.cluster.wait(
        "the label is back", lambda: models.deployment(llama).metadata.labels.get(label) == llama
    )


def test_deletion_cascades_without_the_operator(models: Models, llama: str, operator: Operator) -> None:
    assert operator.stop() == 0
    models.delete(llama)
    models.cluster.wait("the Deployment is gone", lambda: models.deployment(llama) is None)
    models.cluster.wait("the Service is gone", lambda: models.service(llama) is None)
    models.cluster.wait("the pods are gone", lambda: not models.pods(llama))


def test_deleted_and_created_again_under_the_same_name(
    models: Models, llama: str, operator: Operator
) -> None:
    first = models.deployment(llama).metadata.uid
    models.delete(llama)
    models.create(llama)
    models.wait_phase(llama, "Ready")
    assert models.deployment(llama).metadata.uid != first


def test_an_orphaned_child_is_taken_over_without_a_restart(
    models: Models, llama: str, operator: Operator
) -> None:
    (before,) = models.pods(llama)
    models.cluster.kubectl("delete", "llmd", llama, "--cascade=orphan", f"--namespace={models.namespace}")
    models.cluster.wait(
        "the Deployment has no owner", lambda: not models.deployment(llama).metadata.owner_references
    )
    created = models.create(llama)
    models.wait_phase(llama, "Ready")
    (owner,) = models.deployment(llama).metadata.owner_references
    assert owner.uid == created["metadata"]["uid"]
    assert [pod.metadata.uid for pod in models.pods(llama)] == [before.metadata.uid]


def test_a_change_of_the_server_rolls_out_in_the_same_pool(
    models: Models, llama: str, operator: Operator
) -> None:
    (before,) = models.pods(llama)
    models.patch(llama, {"server": {"args": ["--max-num-seqs", "32"]}})

    def rolled() -> bool:
        pods = models.pods(llama)
        return len(pods) == 1 and pods[0].metadata.uid != before.metadata.uid

    models.cluster.wait("the pod was replaced", rolled)
    assert models.wait_phase(llama, "Ready")["pool"] == "l4"
    assert template_of(models.deployment(llama)).args[-2:] == ["--max-num-seqs", "32"]
    # GPUs were free, so the new pod came first.
    assert models.deployment(llama).spec.strategy.rolling_update.max_surge == 1


def test_without_a_spare_gpu_the_old_pod_goes_first(models: Models, llama: str, operator: Operator) -> None:
    models.patch(llama, {"replicas": 4})
    models.wait_phase(llama, "Ready")
    models.patch(llama, {"server": {"args": ["--max-num-seqs", "32"]}})
    models.cluster.wait(
        "all pods are new",
        lambda: (
            len(models.pods(llama)) == 4
            and all("--max-num-seqs" in pod.spec.containers[0].args for pod in models.pods(llama))
        ),
    )
    strategy = models.deployment(llama).spec.strategy.rolling_update
    assert (strategy.max_surge, strategy.max_unavailable) == (0, 1)
    models.wait_phase(llama, "Ready")


def test_a_stricter_sla_never_moves_a_running_replica(models: Models, llama: str, operator: Operator) -> None:
    (before,) = models.pods(llama)
    models.patch(llama, {"sla": {"interTokenLatency": "30ms"}})
    status = models.wait_phase(llama, "Ready")
    assert status["pool"] == "l4"
    assert [pod.metadata.uid for pod in models.pods(llama)] == [before.metadata.uid]
    row = next(row for row in status["candidates"] if row["pool"] == "l4")
    assert row["reason"] == "SLAMissed"
    assert "a30" in models.condition(llama, "Placed")["message"]


def test_the_model_of_a_placed_one_is_immutable_and_a_wrong_one_can_be_mended(
    models: Models, llama: str, operator: Operator
) -> None:
    other = {"model": {"id": "Qwen/Qwen2.5-7B-Instruct"}}
    answer = _refusal(lambda: models.patch(llama, other))
    assert "spec.model.id is immutable" in answer
    models.create("wrong", model={"id": "nobody/unheard-of"})
    models.wait_condition("wrong", "Placed", "False", "UnknownModel")
    models.patch("wrong", {"model": {"id": LLAMA}})
    models.wait_phase("wrong", "Ready")


def test_another_writer_of_the_replicas_is_named_and_corrected(
    models: Models, llama: str, operator: Operator
) -> None:
    models.cluster.kubectl("scale", "deployment", llama, "--replicas=3", f"--namespace={models.namespace}")
    condition = models.wait_condition(llama, "ReplicasConflict", "True")
    assert "kubectl" in condition["message"]
    assert "kubectl scale llmd llama" in condition["message"]
    models.cluster.wait("the replicas are back", lambda: models.deployment(llama).spec.replicas == 1)
    models.wait_condition(llama, "ReplicasConflict", "False")
    assert "ReplicasConflict" in {event.reason for event in models.events(llama)}


def test_an_hpa_may_scale_the_llmdeployment(models: Models, llama: str, operator: Operator) -> None:
    """The HPA itself sees the pods by the selector of /scale; it has no metrics here, and needs none."""
    models.cluster.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": llama, "namespace": models.namespace},
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "wattkeeper.dev/v1alpha1",
                    "kind": "LLMDeployment",
                    "name": llama,
                },
                "minReplicas": 2,
                "maxReplicas": 3,
            },
        }
    )
    models.cluster.wait("the HPA scaled it", lambda: models.get(llama)["spec"]["replicas"] == 2)
    status = models.wait_phase(llama, "Ready")
    assert status["replicas"] == 2
    assert not models.condition(llama, "ReplicasConflict")


# ---- what is refused, with nothing half-created ---------------------------------------------------


def nothing_exists(models: Models, name: str) -> None:
    assert models.deployment(name) is None
    assert models.service(name) is None
    assert models.status(name).get("pool") is None


@pytest.mark.parametrize(
    ("template", "reason", "said"),
    [
        ({"spec": {"containers": [{"name": "helper"}]}}, "InvalidTemplate", "'helper' is a new container"),
        (
            {"spec": {"containers": [{"name": "helper", "image": "x", "imagePullPolicy": "Sometimes"}]}},
            "InvalidTemplate",
            "imagePullPolicy: Unsupported value",  # the API server's own words
        ),
        ({"spec": {"fancy": True}}, "InvalidTemplate", "fancy"),
        ({"spec": {"containers": "none"}}, "InvalidTemplate", "spec.server.template.spec.containers"),
        (
            {"spec": {"containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}},
            "InvalidTemplate",
            "tensorParallelSize",
        ),
        ({"spec": {"nodeName": "here"}}, "InvalidSpec", "spec.server.template.spec.nodeName"),
    ],
)
def test_a_template_that_cannot_be_is_refused_and_recovers(
    models: Models,
    fleet: FleetFactory,
    operator: Operator,
    template: dict[str, Any],
    reason: str,
    said: str,
) -> None:
    fleet([gpu_node("tpl-l4", "L4")])
    models.create("llama", server={"template": template})
    condition = models.wait_condition("llama", "Accepted", "False", reason)
    assert said in condition["message"]
    nothing_exists(models, "llama")
    assert models.status("llama")["phase"] == "Invalid"
    models.patch("llama", {"server": {"template": None}})
    models.wait_phase("llama", "Ready")


def test_pod_security_is_found_before_anything_is_created(
    models: Models, fleet: FleetFactory, operator: Operator
) -> None:
    fleet([gpu_node("psa-l4", "L4")])
    label = "pod-security.kubernetes.io/enforce"
    models.cluster.kubectl("label", "namespace", models.namespace, f"{label}=restricted")
    models.create("llama")
    condition = models.wait_condition("llama", "Accepted", "False", "DeniedByPolicy")
    assert "violates PodSecurity" in condition["message"]
    nothing_exists(models, "llama")
    models.cluster.kubectl("label", "namespace", models.namespace, f"{label}-")
    models.wait_phase("llama", "Ready")  # by the sweep: nothing tells of it


def test_a_quota_is_found_before_anything_is_created(
    models: Models, fleet: FleetFactory, operator: Operator
) -> None:
    fleet([gpu_node("quota-l4", "L4", 2)])
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": "0"}}}
    models.cluster.core.create_namespaced_resource_quota(models.namespace, quota)
    models.cluster.wait(
        "the quota is counted",
        lambda: models.cluster.core.read_namespaced_resource_quota("gpus", models.namespace).status.hard,
    )
    models.create("llama")
    condition = models.wait_condition("llama", "Accepted", "False", "QuotaExceeded")
    assert "exceeded quota: gpus" in condition["message"]
    nothing_exists(models, "llama")
    models.cluster.core.delete_namespaced_resource_quota("gpus", models.namespace)
    models.wait_phase("llama", "Ready")


@pytest.mark.parametrize("kind", ["deployment", "service"])
def test_a_foreign_child_of_the_name_is_left_alone(
    models: Models, fleet: FleetFactory, operator: Operator, kind: str
) -> None:
    fleet([gpu_node("name-l4", "L4")])
    in_namespace = f"--namespace={models.namespace}"
    if kind == "deployment":
        models.cluster.kubectl("create", "deployment", "llama", "--image=example.test/x", in_namespace)
    else:
        models.cluster.kubectl("create", "service", "clusterip", "llama", "--tcp=80:80", in_namespace)
    before = getattr(models, kind)("llama")
    models.create("llama")
    condition = models.wait_condition("llama", "Accepted", "False", "NameTaken")
    assert "under another name" in condition["message"]
    assert getattr(models, kind)("llama").spec == before.spec
    assert models.status("llama").get("pool") is None
    models.cluster.kubectl("delete", kind, "llama", in_namespace)
    models.wait_phase("llama", "Ready")


def test_a_config_map_is_awaited_read_and_watched_over(
    models: Models, fleet: FleetFactory, operator: Operator
) -> None:
    fleet([gpu_node("cm-l4", "L4")])
    model = {"id": "acme/secret-llm", "configMapRef": {"name": "secret-llm"}}
    models.create("llama", model=model)
    models.wait_condition("llama", "Accepted", "False", "ConfigMapNotFound")
    core, namespace = models.cluster.core, models.namespace
    core.create_namespaced_config_map(
        namespace, {"metadata": {"name": "secret-llm"}, "data": {"config.json": "{not json"}}
    )
    condition = models.wait_condition("llama", "Accepted", "False", "InvalidModelConfig")
    assert "no valid JSON" in condition["message"]
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False, "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    core.patch_namespaced_config_map("secret-llm", namespace, {"data": {"config.json": json.dumps(config)}})
    models.cluster.wait(
        lambda: f"it is decided anew: {models.status('llama')}",
        lambda: models.condition("llama", "Accepted").get("status") == "True",
    )


def test_input_out_of_the_predictors_range_is_refused_in_words(
    models: Models, fleet: FleetFactory, operator: Operator
) -> None:
    fleet([gpu_node("range-l4", "L4")])
    models.create("quantized", model={"id": LLAMA, "quantization": "fp8"})
    models.create("tail", sla={"interTokenLatency": "70ms", "statistic": "P95"})
    for name, field in (("quantized", "spec.model.quantization"), ("tail", "spec.sla.statistic")):
        (row,) = models.wait_phase(name, "Unschedulable")["candidates"]
        assert row["reason"] == "OutOfPredictorRange"
        assert field in row["message"]
        nothing_exists(models, name)


def test_an_unknown_gpu_is_named_with_the_cure(
    models: Models, fleet: FleetFactory, operator: Operator
) -> None:
    fleet([gpu_node("odd-gpu", "L4", labels={"nvidia.com/gpu.product": "NVIDIA-Z9000"})])
    models.create("llama")
    (row,) = models.wait_phase("llama", "Unschedulable")["candidates"]
    assert row["reason"] == "UnknownGpu"
    assert "GPUNodePool" in row["message"]


def test_the_api_server_refuses_absurd_numbers(models: Models, cluster: Cluster) -> None:
    for spec, field in (
        ({"sla": {"interTokenLatency": "0ms"}}, "interTokenLatency"),
        ({"sla": {"interTokenLatency": "NaN"}}, "interTokenLatency"),
        ({"replicas": -1}, "replicas"),
        ({"workload": {"requestsPerSecond": "1e30"}}, "requestsPerSecond"),
        ({"workload": {"requestsPerSecond": "330m", "promptTokens": 0}}, "promptTokens"),
    ):
        answer = _refusal(partial(models.create, "absurd", **spec))
        assert field in answer


def _refusal(write: Callable[[], object]) -> str:
    """What the API server says to a write that it refuses."""
    with pytest.raises(ApiException) as refused:
        write()
    return str(json.loads(refused.value.body)["message"])
