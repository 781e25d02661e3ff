"""From a resource to the core's values, or to every error at once."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.api.cases import LLAMA, LLAMA_8B, POOL, change, with_architecture
from wattkeeper.api.convert import (
    GPU_TOLERATION,
    config_reference,
    demand_from,
    deployment_from,
    pool_from,
)
from wattkeeper.api.errors import SpecErrors
from wattkeeper.core.demand import LabelRequirement, Scenario, Sla, Statistic, Toleration, WorkloadShape
from wattkeeper.core.fleet import WrittenPool


def llama(**changes: Any) -> dict[str, Any]:
    """LLAMA with fields changed; `__` stands for a dot."""
    resource = copy.deepcopy(LLAMA)
    for path, value in changes.items():
        change(resource, path.replace("__", "."), value)
    return resource


def errors_of(resource: dict[str, Any], config_text: str | None = None) -> dict[str, str]:
    with pytest.raises(SpecErrors) as caught:
        deployment_from(resource, config_text, unknown_fields="forbid")
    return {error.field: error.message for error in caught.value.errors}


def test_the_demand_of_a_plain_deployment() -> None:
    resource = llama(
        metadata__uid="u-1", metadata__creationTimestamp="2026-01-02T03:04:05Z", metadata__generation=4
    )
    parsed = deployment_from(resource)
    demand = parsed.demand
    assert (demand.uid, demand.namespace, demand.name) == ("u-1", "default", "llama")
    assert demand.created == "2026-01-02T03:04:05Z"
    assert demand.model.id == "meta-llama/Llama-3.1-8B-Instruct"
    assert (demand.model.quantization, demand.model.config) == ("none", None)
    assert demand.workload == WorkloadShape(Scenario.SERVER, 0.33, 256, 256)
    assert demand.sla == Sla(0.05, Statistic.MEAN, 90, None)
    assert (demand.replicas, demand.tensor_parallel_size) == (1, None)
    assert demand.tolerations == (GPU_TOLERATION,)
    assert (demand.pool_selector, dict(demand.node_selector)) == ((), {})
    assert parsed.generation == 4
    assert parsed.spec.parking.policy == "BreakEven"


def test_a_manifest_that_was_never_applied_has_an_identity_too() -> None:
    resource = llama()
    del resource["metadata"]["namespace"]
    demand = demand_from(resource)
    assert (demand.uid, demand.namespace, demand.created) == ("default/llama", "default", "")


def test_everything_a_user_can_ask_for_arrives() -> None:
    demand = demand_from(
        llama(
            spec__replicas=3,
            spec__model=with_architecture() | {"quantization": "fp8"},
            spec__workload={"scenario": "Offline", "promptTokens": 100, "outputTokens": 20},
            spec__sla={
                "interTokenLatency": "5.9ms",
                "statistic": "P95",
                "timeToFirstToken": "1.5s",
                "predictionConfidencePercent": 75,
            },
            spec__placement={
                "tensorParallelSize": 4,
                "poolSelector": {
                    "matchLabels": {"b": "2", "a": "1"},
                    "matchExpressions": [
                        {"key": "tier", "operator": "NotIn", "values": ["spot"]},
                        {"key": "own", "operator": "Exists"},
                    ],
                },
            },
            spec__server={
                "template": {
                    "spec": {
                        "nodeSelector": {"zone": "eu-1"},
                        "tolerations": [
                            {"key": "sku", "value": "gpu", "effect": "NoSchedule"},
                            {"operator": "Exists", "tolerationSeconds": 60},
                        ],
                    }
                }
            },
        )
    )
    assert demand.replicas == 3
    assert demand.model.quantization == "fp8"
    assert demand.workload == WorkloadShape(Scenario.OFFLINE, None, 100, 20)
    assert demand.sla == Sla(0.0059, Statistic.P95, 75, 1.5)
    assert demand.tensor_parallel_size == 4
    assert demand.pool_selector == (
        LabelRequirement("a", "In", ("1",)),
        LabelRequirement("b", "In", ("2",)),
        LabelRequirement("tier", "NotIn", ("spot",)),
        LabelRequirement("own", "Exists", ()),
    )
    assert dict(demand.node_selector) == {"zone": "eu-1"}
    assert demand.tolerations == (
        GPU_TOLERATION,
        Toleration("sku", "Equal", "gpu", "NoSchedule"),
        Toleration("", "Exists", "", ""),
    )


def test_an_inline_architecture_becomes_a_config_json() -> None:
    config = demand_from(llama(spec__model=with_architecture())).model.config
    assert config == {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }


def test_experts_are_never_lost_on_the_way() -> None:
    model = with_architecture(
        numLocalExperts=8, numExpertsPerTok=2, moeIntermediateSize=1024, nSharedExperts=1, slidingWindow=4096
    )
    config = demand_from(llama(spec__model=model)).model.config or {}
    assert config["num_local_experts"] == 8
    assert config["num_experts_per_tok"] == 2
    assert config["moe_intermediate_size"] == 1024
    assert config["n_shared_experts"] == 1
    assert config["sliding_window"] == 4096


def test_a_config_map_is_read_as_it_is() -> None:
    resource = llama(spec__model__configMapRef={"name": "own", "key": "llama.json"})
    reference = config_reference(resource)
    assert reference is not None
    assert (reference.name, reference.key) == ("own", "llama.json")
    config = demand_from(resource, json.dumps({"model_type": "llama", "hidden_size": 64})).model.config
    assert config == {"model_type": "llama", "hidden_size": 64}


def test_a_config_map_that_is_not_there_is_named() -> None:
    resource = llama(spec__model__configMapRef={"name": "own"})
    with pytest.raises(SpecErrors) as caught:
        deployment_from(resource)
    assert caught.value.reason == "ConfigMapNotFound"
    assert str(caught.value) == (
        "spec.model.configMapRef: no ConfigMap own with the key config.json in this namespace: create it"
    )


@pytest.mark.parametrize("value", [None, {}, {"name": "Own"}, "own", 3])
def test_no_config_map_is_read_for_a_wrong_reference(value: Any) -> None:
    assert config_reference(llama(spec__model__configMapRef=value)) is None


def test_every_error_is_reported_at_once() -> None:
    resource = {
        "apiVersion": "wattkeeper.dev/v1",
        "kind": "LLMDeployments",
        "metadata": {"name": "8B"},
        "spec": {
            "modle": {},
            "model": {"id": "a b", "configMapRef": {"name": "x"}},
            "workload": {"scenario": "Offline", "requestsPerSecond": 1},
            "sla": {"interTokenLatency": "soon"},
            "server": {"template": {"spec": {"tolerations": [{"operator": "Is"}], "nodeName": "n1"}}},
        },
    }
    assert errors_of(resource).keys() == {
        "apiVersion",
        "kind",
        "metadata.name",
        "spec.modle",
        "spec.model.id",
        "spec.workload.requestsPerSecond",
        "spec.sla.interTokenLatency",
        "spec.server.template.spec.tolerations[0].operator",
        "spec.server.template.spec.nodeName",
    }


def test_a_malformed_config_is_reported_beside_the_rest() -> None:
    resource = llama(
        spec__model__configMapRef={"name": "own"}, spec__server={"template": {"spec": {"nodeName": "n1"}}}
    )
    assert errors_of(resource, "{").keys() == {
        "spec.server.template.spec.nodeName",
        "spec.model.configMapRef.key",
    }


def test_an_unknown_field_is_answered_with_the_nearest_one() -> None:
    assert errors_of(llama(spec__sla__interTokenLatancy="1ms")) == {
        "spec.sla.interTokenLatancy": "unknown field; did you mean interTokenLatency?"
    }
    message = errors_of(llama(spec__sla__xyz=1))["spec.sla.xyz"]
    assert message.startswith("unknown field; known here: interTokenLatency, predictionConfidencePercent")


def test_fields_of_a_newer_version_are_ignored_in_a_cluster() -> None:
    assert demand_from(llama(spec__sla__fromTheFuture=1)) == demand_from(llama())


def test_a_missing_field_is_described() -> None:
    assert errors_of(llama(spec__sla={})) == {
        "spec.sla.interTokenLatency": (
            "is required: Longest acceptable time between two tokens of an answer (duration)."
        )
    }


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"spec": "x"}, "spec"),
        ({"spec": {"tolerations": {}}}, "spec.tolerations"),
        ({"spec": {"tolerations": ["x"]}}, "spec.tolerations[0]"),
        ({"spec": {"tolerations": [{"key": 1}]}}, "spec.tolerations[0].key"),
        ({"spec": {"tolerations": [{}, {"effect": "No"}]}}, "spec.tolerations[1].effect"),
        ({"spec": {"nodeSelector": {"a": 1}}}, "spec.nodeSelector"),
        ({"spec": {"nodeSelector": []}}, "spec.nodeSelector"),
        ({"spec": {"nodeName": "n1"}}, "spec.nodeName"),
        (
            {
                "spec": {
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"a": 1}}}
                }
            },
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        ),
    ],
)
def test_what_placement_reads_of_the_template_is_judged(template: Any, field: str) -> None:
    assert errors_of(llama(spec__server={"template": template})).keys() == {f"spec.server.template.{field}"}


def test_a_label_with_a_typo_in_its_key_is_refused() -> None:
    selector = {"matchLabels": {"tier/": "a"}}
    field = "spec.placement.poolSelector.matchLabels[tier/]"
    message = errors_of(llama(spec__placement={"poolSelector": selector}))[field]
    assert message.startswith("must be a label such as topology.kubernetes.io/zone")


def test_a_pool_that_a_user_wrote() -> None:
    resource = copy.deepcopy(POOL)
    resource["metadata"] |= {"labels": {"tier": "a"}, "creationTimestamp": "2026-01-02T03:04:05Z"}
    resource["spec"] |= {"gpu": "NVIDIA-L40S", "powerBudgetWatts": 2800}
    parsed = pool_from(resource)
    assert parsed.pool == WrittenPool(
        name="l40s",
        node_selector={"nvidia.com/gpu.product": "NVIDIA-L40S"},
        labels={"tier": "a"},
        gpu="NVIDIA-L40S",
        power_budget_watts=2800,
        created="2026-01-02T03:04:05Z",
    )
    assert not parsed.discovered


def test_a_pool_that_the_operator_found() -> None:
    resource = copy.deepcopy(POOL)
    resource["metadata"]["labels"] = {"wattkeeper.dev/discovered": "true"}
    assert pool_from(resource).discovered


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespace", ["x"]),
        ("namespace", 5),
        ("uid", 1),
        ("creationTimestamp", 2026),
        ("labels", {"tier": 1}),
    ],
)
def test_metadata_that_is_no_text_is_refused(field: str, value: Any) -> None:
    for resource, parse in ((llama(), deployment_from), (copy.deepcopy(POOL), pool_from)):
        resource["metadata"][field] = value
        with pytest.raises(SpecErrors) as refused:
            parse(resource)
        (error,) = refused.value.errors
        assert error.field.startswith(f"metadata.{field}")
        assert error.message.startswith("must be a string: quote it; got ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PATHS = (
    ["metadata", "spec", "metadata.name", "metadata.labels", "metadata.generation"]
    + [f"spec.{name}" for name in ("model", "server", "workload", "sla", "placement", "parking", "replicas")]
    + ["spec.model.architecture", "spec.model.id", "spec.server.template", "spec.server.template.spec"]
    + ["spec.server.template.spec.tolerations", "spec.server.args", "spec.workload.requestsPerSecond"]
    + ["spec.placement.poolSelector", "spec.placement.poolSelector.matchExpressions", "spec.nodeSelector"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), JSON), min_size=1, max_size=3), st.text(max_size=20))
def test_no_input_is_a_crash(changes: list[tuple[str, Any]], config_text: str) -> None:
    """Whatever stands in a resource, the answer is a value or errors that name fields."""
    for base in (LLAMA, POOL):
        resource = copy.deepcopy(base)
        for path, value in changes:
            try:
                change(resource, path, value)
            except (AttributeError, TypeError):
                continue  # an earlier change took the parent away
        parse = deployment_from if base is LLAMA else pool_from
        arguments = {"config_text": config_text} if base is LLAMA else {}
        try:
            assert parse(resource, unknown_fields="forbid", **arguments) is not None
        except SpecErrors as errors:
            assert errors.errors
            assert all(error.field and error.message for error in errors.errors)
        config_reference(resource)


@given(JSON)
def test_no_resource_at_all_is_a_crash(value: Any) -> None:
    if isinstance(value, dict):
        with pytest.raises(SpecErrors):
            deployment_from(value)


@given(st.sampled_from([k for k, v in LLAMA_8B.items() if isinstance(v, int)]), st.integers(16, 4096))
def test_architectures_are_taken_or_refused_by_name(field: str, value: int) -> None:
    resource = llama(spec__model=with_architecture(**{field: value}))
    try:
        assert demand_from(resource).model.config is not None
    except SpecErrors as errors:
        assert all(error.field.startswith("spec.model.architecture.") for error in errors.errors)
