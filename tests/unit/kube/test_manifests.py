"""The rendered children, against goldens and in what they must and must not say."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.kube.rendering import L4, OWNER, parsed, placed
from wattkeeper.api.errors import SpecErrors
from wattkeeper.core.demand import LabelRequirement
from wattkeeper.kube.manifests.deployment import deployment, paused, pod_of
from wattkeeper.kube.manifests.service import service

GOLDEN = Path(__file__).parents[2] / "golden" / "manifests"
UPDATE = "WATTKEEPER_UPDATE_GOLDEN"


def rendered(placement: dict[str, Any] | None = None, *, surge: bool = False, **spec: Any) -> dict[str, Any]:
    return deployment(
        OWNER, parsed(**spec).spec, placed(**(placement or {})), propagation_seconds=10, surge=surge
    )


CASES: dict[str, Any] = {
    "default": lambda: [rendered(), service(OWNER, parsed().spec)],
    "cached-gated-two-gpus": lambda: [
        rendered(
            {"gpus_per_replica": 2, "pool": "h100--gold", "weight_bytes": 141_000_000_000},
            surge=True,
            server={
                "port": 9000,
                "args": ["--max-num-seqs=64", "--load-format", "runai_streamer"],
                "maxRequestDuration": "30m",
                "weightCache": {"claimName": "weights", "readOnly": True},
                "huggingFaceTokenSecretRef": {"name": "hub"},
            },
        ),
        service(OWNER, parsed(server={"port": 9000}).spec),
    ],
    "template": lambda: [
        rendered(
            {
                "node_terms": (
                    L4,
                    (
                        LabelRequirement("cloud.google.com/gke-accelerator", "In", ("nvidia-l4",)),
                        LabelRequirement("kubernetes.io/hostname", "NotIn", ("broken-1", "broken-2")),
                    ),
                )
            },
            server={
                "template": {
                    "metadata": {
                        "labels": {"team": "search", "wattkeeper.dev/serving": "false"},
                        "annotations": {"sidecar.istio.io/inject": "true"},
                    },
                    "spec": {
                        "nodeSelector": {"zone": "a"},
                        "tolerations": [{"key": "spot", "operator": "Exists"}],
                        "priorityClassName": "models",
                        "containers": [
                            {
                                "name": "server",
                                "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}],
                                "resources": {"requests": {"cpu": "8"}},
                                "readinessProbe": {"periodSeconds": 1},
                                "livenessProbe": None,
                            },
                            {"name": "logger", "image": "example.test/logger:1"},
                        ],
                    },
                }
            },
        )
    ],
}


class _Readable(yaml.SafeDumper):
    """Scripts as blocks."""


def _text(dumper: _Readable, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Readable.add_representer(str, _text)


@pytest.mark.parametrize("case", sorted(CASES))
def test_golden(case: str) -> None:
    """WATTKEEPER_UPDATE_GOLDEN=1 writes them anew."""
    text = yaml.dump_all(CASES[case](), Dumper=_Readable, sort_keys=False, width=120)
    golden = GOLDEN / f"{case}.yaml"
    if os.environ.get(UPDATE):
        golden.write_text(text)
    assert text == golden.read_text(), f"set {UPDATE}=1 to write {golden.name} anew, and read the difference"


def test_replicas_are_never_said() -> None:
    assert "replicas" not in rendered()["spec"]
    assert paused(rendered())["spec"]["paused"] is True
    assert rendered()["spec"]["paused"] is False  # said aloud: somebody else's pause is drift


def test_serving_is_on_the_pods_and_in_the_service_but_not_in_the_deployments_selector() -> None:
    manifest = rendered()
    assert manifest["spec"]["template"]["metadata"]["labels"]["wattkeeper.dev/serving"] == "true"
    assert manifest["spec"]["selector"]["matchLabels"] == {"wattkeeper.dev/llmdeployment": "llama"}
    assert service(OWNER, parsed().spec)["spec"]["selector"]["wattkeeper.dev/serving"] == "true"


def test_the_grace_period_is_above_propagation_and_the_longest_request() -> None:
    spec = rendered(server={"maxRequestDuration": "1h"})["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] > 10 + 3600


@pytest.mark.parametrize(
    ("template", "field"),
    [
        (
            {"containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": 4}}}]},
            "spec.server.template.spec.containers[0].resources.limits[nvidia.com/gpu]",
        ),
        (
            {"containers": [{"name": "x", "image": "x", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
            "spec.server.template.spec.containers[0].resources.requests[nvidia.com/gpu]",
        ),
        (
            {
                "initContainers": [
                    {"name": "warm", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
                ]
            },
            "spec.server.template.spec.initContainers[0].resources.limits[nvidia.com/gpu]",
        ),
        (
            {"containers": [{"name": "server", "image": "y"}, {"name": "vllm", "args": ["--x"]}]},
            "spec.server.template.spec.containers[1]",
        ),
        (
            {"containers": [{"name": "server", "ports": [{"containerPort": 8000, "name": "api"}]}]},
            "spec.server.template.spec.containers",
        ),
        ({"initContainers": [{"name": "server"}]}, "spec.server.template.spec.initContainers[0]"),
        ({"containers": {"name": "server"}}, "spec.server.template.spec.containers"),
        ({"containers": [{"image": "x"}]}, "spec.server.template.spec.containers[0].name"),
        ({"volumes": ["x"]}, "spec.server.template.spec.volumes[0]"),
        ({"affinity": "none"}, "spec.server.template.spec.affinity"),
    ],
)
def test_a_template_that_belies_the_placement_or_its_own_shape_is_refused_by_field(
    template: dict[str, Any], field: str
) -> None:
    with pytest.raises(SpecErrors) as refused:
        rendered(server={"template": {"spec": template}})
    assert [each.field for each in refused.value.errors] == [field]
    assert refused.value.reason == "InvalidTemplate"


def test_a_new_container_without_an_image_is_told_the_model_servers_name() -> None:
    with pytest.raises(SpecErrors, match=r"'vllm' is a new container without an image.*name it 'server'"):
        rendered(server={"template": {"spec": {"containers": [{"name": "vllm"}]}}})


def test_the_placements_own_gpus_may_be_repeated() -> None:
    same = {"containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    assert rendered(server={"template": {"spec": same}})


@pytest.mark.parametrize("nulled", ["affinity", "tolerations"])
def test_what_placement_rests_on_cannot_be_taken_away(nulled: str) -> None:
    spec = rendered(server={"template": {"spec": {nulled: None}}})["spec"]["template"]["spec"]
    assert spec[nulled] == rendered()["spec"]["template"]["spec"][nulled]


def test_metadata_may_be_nulled_without_losing_our_labels() -> None:
    template = rendered(server={"template": {"metadata": None}})["spec"]["template"]
    assert template["metadata"]["labels"]["wattkeeper.dev/pool"] == "l4"


def test_the_pod_of_a_dry_run_is_what_the_deployment_would_make() -> None:
    manifest = rendered()
    pod = pod_of(manifest)
    assert pod["spec"] == manifest["spec"]["template"]["spec"]
    assert pod["metadata"]["labels"] == manifest["spec"]["template"]["metadata"]["labels"]
    assert (pod["metadata"]["namespace"], pod["metadata"]["generateName"]) == ("team-a", "llama-")


def test_rendering_is_repeatable_and_changes_nothing_it_is_given() -> None:
    template = {"spec": {"tolerations": [{"key": "spot"}], "containers": [{"name": "server", "env": []}]}}
    before = repr(template)
    assert rendered(server={"template": template}) == rendered(server={"template": template})
    assert repr(template) == before


# ---- engine arguments -------------------------------------------------------------------------------


def arguments(placement: dict[str, Any] | None = None, **spec: Any) -> list[str]:
    container = rendered(placement, **spec)["spec"]["template"]["spec"]["containers"][0]
    return list(container["args"])


def test_vllm_is_told_the_model_the_port_the_gpus_and_the_context_that_fits() -> None:
    assert arguments({"gpus_per_replica": 4}) == [
        "--model", "meta-llama/Llama-3.1-8B-Instruct", "--port", "8000", "--tensor-parallel-size", "4",
        "--max-model-len", "34304",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "own", [["--max-model-len", "4096"], ["--max-model-len=4096"], ["--max_model_len=4096"]]
)
def test_a_context_length_of_the_users_wins(own: list[str]) -> None:
    given = arguments(server={"args": own})
    assert given[-len(own) :] == own
    assert "34304" not in given


def test_without_a_known_context_vllm_decides() -> None:
    assert "--max-model-len" not in arguments({"max_context_tokens": None})


def test_fp8_of_a_16_bit_checkpoint_is_asked_for() -> None:
    fp8 = {"id": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "fp8"}
    assert arguments(model=fp8)[-2:] == ["--quantization", "fp8"]
    assert arguments(model=fp8, server={"args": ["-q", "modelopt"]})[-2:] == ["-q", "modelopt"]
