"""LLMDeployments and GPUNodePools, good and bad: what Python refuses, the API server must refuse too.

The unit tests put them to the models, tests/e2e/test_api.py to a real API server.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

LLAMA: Json = {
    "apiVersion": "wattkeeper.dev/v1alpha1",
    "kind": "LLMDeployment",
    "metadata": {"name": "llama", "namespace": "default"},
    "spec": {
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "workload": {"scenario": "Server", "requestsPerSecond": "330m"},
        "sla": {"interTokenLatency": "50ms"},
    },
}
POOL: Json = {
    "apiVersion": "wattkeeper.dev/v1alpha1",
    "kind": "GPUNodePool",
    "metadata": {"name": "l40s"},
    "spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"}},
}
LLAMA_8B: Json = {
    "modelType": "llama",
    "hiddenSize": 4096,
    "numHiddenLayers": 32,
    "numAttentionHeads": 32,
    "numKeyValueHeads": 8,
    "intermediateSize": 14336,
    "vocabSize": 128256,
    "maxPositionEmbeddings": 131072,
}


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Any = _Absent()


@dataclass(frozen=True)
class Case:
    """One change to a good resource. `refused` is the field that the refusal names, None if it is taken.

    `words` stand in the refusal of both; `python_words` only in ours, where the API server's own words for
    a wrong type or a value out of bounds are what they are.
    """

    path: str
    value: Any
    refused: str | None = None
    words: str = ""
    python_words: str = ""
    base: str = "LLAMA"

    def __str__(self) -> str:
        shown = repr(self.value)
        return f"{self.path}={shown if len(shown) < 60 else shown[:57] + '...'}"

    def resource(self) -> Json:
        resource = copy.deepcopy({"LLAMA": LLAMA, "POOL": POOL}[self.base])
        change(resource, self.path, self.value)
        return resource


def change(resource: Json, path: str, value: Any) -> None:
    """Sets the field, or takes it away."""
    *parents, last = path.split(".")
    place = resource
    for name in parents:
        place = place.setdefault(name, {})
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value


def with_architecture(**changes: Any) -> Json:
    """A model of LLAMA_8B, changed; ABSENT takes a field away."""
    fields = {**LLAMA_8B, **changes}
    return {
        "id": "acme/own-8b",
        "architecture": {key: value for key, value in fields.items() if value is not ABSENT},
    }


def _good() -> list[Case]:
    return [
        Case("metadata.name", "a"),
        Case("metadata.name", "a" * 52),
        Case("spec.model.id", "gpt2"),
        Case("spec.model.id", "/models/own/llama"),
        Case("spec.model.quantization", "fp8"),
        Case("spec.model", with_architecture()),
        Case("spec.model", with_architecture(numKeyValueHeads=ABSENT, maxPositionEmbeddings=ABSENT)),
        Case("spec.model", with_architecture(hiddenSize=2048, numAttentionHeads=24, headDim=128)),
        Case("spec.model", with_architecture(numLocalExperts=8, numExpertsPerTok=2)),
        Case("spec.model.configMapRef", {"name": "own-config"}),
        Case("spec.server", {}),
        Case("spec.server.args", ["--max-model-len=8192", "--served-model-name", "--model-impl=vllm"]),
        Case(
            "spec.server.template", {"spec": {"tolerations": [{"operator": "Exists"}]}, "any": {"thing": 1}}
        ),
        Case("spec.server.weightCache", {"claimName": "models"}),
        Case("spec.server.huggingFaceTokenSecretRef", {"name": "hf"}),
        Case("spec.server.maxRequestDuration", "1h30m"),
        Case("spec.replicas", 0),
        Case("spec.replicas", 1000),
        Case("spec.workload.requestsPerSecond", 3),
        Case("spec.workload.requestsPerSecond", "3"),
        Case("spec.workload.requestsPerSecond", "0.33"),
        Case("spec.workload.requestsPerSecond", "17e-3"),
        Case("spec.workload.requestsPerSecond", "1e003"),
        Case("spec.workload.requestsPerSecond", "1k"),
        Case("spec.workload.requestsPerSecond", "1u"),
        Case("spec.workload", {"scenario": "Offline", "promptTokens": 1, "outputTokens": 1}),
        Case("spec.sla.interTokenLatency", "5.9ms"),
        Case("spec.sla.interTokenLatency", "10us"),
        Case("spec.sla.interTokenLatency", "1m"),
        Case("spec.sla.statistic", "P95"),
        Case("spec.sla.timeToFirstToken", "2s"),
        Case("spec.sla.predictionConfidencePercent", 99),
        Case("spec.placement.tensorParallelSize", 8),
        Case("spec.placement.poolSelector.matchLabels", {"topology.kubernetes.io/zone": "eu-1"}),
        Case("spec.placement.poolSelector.matchExpressions", [{"key": "tier", "operator": "Exists"}]),
        Case(
            "spec.placement.poolSelector.matchExpressions",
            [{"key": "tier", "operator": "NotIn", "values": ["", "spot"]}],
        ),
        Case("spec.parking", {}),
        # A key with nothing after it is null in YAML; the API server puts the default there.
        *(Case(f"spec.{field}", None) for field in ("server", "parking", "placement", "replicas")),
        *(Case(f"spec.server.{field}", None) for field in ("args", "image", "template", "weightCache")),
        Case("spec.sla.statistic", None),
        Case("spec.workload.promptTokens", None),
        Case("spec.placement.tensorParallelSize", None),
        Case("spec.model.architecture", None),
        Case("spec.parking", {"policy": "Fixed", "idleTimeout": "15m"}),
        Case("spec.parking", {"policy": "Never", "dryRun": True, "minIdle": "0s"}),
        Case("metadata.name", "a" * 63, base="POOL"),
        Case("metadata.name", "8x-h100--pool", base="POOL"),
        Case("spec.gpu", "NVIDIA H100 80GB HBM3", base="POOL"),
        Case("spec.powerBudgetWatts", 2800, base="POOL"),
    ]


_NAME = "metadata.name must be at most"
_RATE = "must be a quantity from 1u to 1k, such as 330m"
_ITL = "must be a duration from 10us to 60s, such as 50ms"


def _bad_names() -> list[Case]:
    names = ["a" * 53, "8b-model", "ends-", "with.dot"]
    pools = ["a" * 64, "with.dot"]
    return [
        *(Case("metadata.name", name, "metadata.name", "at most 52 lower-case letters") for name in names),
        *(
            Case("metadata.name", name, "metadata.name", "at most 63 lower-case letters", base="POOL")
            for name in pools
        ),
    ]


def _bad_models() -> list[Case]:
    at = "spec.model.architecture"
    return [
        Case("spec.model", {}, "spec.model.id", python_words="is required"),
        Case("spec.model", ABSENT, "spec.model", python_words="is required"),
        Case("spec.model", "Qwen/Qwen3-8B", "spec.model", python_words="such as {id: …}"),
        Case("spec.model.id", "", "spec.model.id", "Hugging Face id such as"),
        Case("spec.model.id", "meta llama", "spec.model.id", "Hugging Face id such as"),
        Case("spec.model.id", "a/b\n", "spec.model.id", "Hugging Face id such as"),
        Case("spec.model.id", "a" * 257, "spec.model.id", python_words="at most 256 characters"),
        Case("spec.model.id", 8, "spec.model.id", python_words="Hugging Face id such as"),
        Case("spec.model.quantization", "fp5", "spec.model.quantization", "nvfp4"),
        Case(
            "spec.model",
            with_architecture() | {"configMapRef": {"name": "x"}},
            "spec.model.configMapRef",
            "exclude",
        ),
        Case("spec.model.configMapRef", {"name": "Own"}, "spec.model.configMapRef.name", "name of an object"),
        Case(
            "spec.model.configMapRef",
            {"name": "own", "key": "a/b"},
            "spec.model.configMapRef.key",
            "a key of",
        ),
        Case(
            "spec.model", with_architecture(hiddenSize=ABSENT), f"{at}.hiddenSize", python_words="is required"
        ),
        Case("spec.model", with_architecture(hiddenSize=0), f"{at}.hiddenSize", python_words="at least 16"),
        Case(
            "spec.model", with_architecture(hiddenSize=-4096), f"{at}.hiddenSize", python_words="at least 16"
        ),
        Case(
            "spec.model", with_architecture(hiddenSize=4096.5), f"{at}.hiddenSize", python_words="an integer"
        ),
        Case("spec.model", with_architecture(hiddenSize=1e30), f"{at}.hiddenSize", python_words="an integer"),
        Case(
            "spec.model", with_architecture(hiddenSize="NaN"), f"{at}.hiddenSize", python_words="an integer"
        ),
        Case("spec.model", with_architecture(vocabSize=True), f"{at}.vocabSize", python_words="an integer"),
        Case("spec.model", with_architecture(numKeyValueHeads=7), f"{at}.numKeyValueHeads", "must divide"),
        Case("spec.model", with_architecture(numKeyValueHeads=64), f"{at}.numKeyValueHeads", "must divide"),
        Case(
            "spec.model",
            with_architecture(hiddenSize=4097),
            f"{at}.numAttentionHeads",
            "must divide hiddenSize",
        ),
        Case("spec.model", with_architecture(numExpertsPerTok=2), f"{at}.numExpertsPerTok", "come together"),
        Case(
            "spec.model",
            with_architecture(numExpertsPerTok=9, numLocalExperts=8),
            f"{at}.numExpertsPerTok",
            "at most numLocalExperts",
        ),
        Case(
            "spec.model", with_architecture(modelType="Llama!"), f"{at}.modelType", "model_type such as llama"
        ),
    ]


def _bad_servers() -> list[Case]:
    flags = [
        "--model=x",
        "--port",
        "--tensor-parallel-size=2",
        "--tensor_parallel_size",
        "-tp",
        "-pp=2",
        "-dp",
    ]
    return [
        *(Case("spec.server.args", ["-x", flag], "spec.server.args", "args must not set") for flag in flags),
        Case("spec.server.args", ["a"] * 65, "spec.server.args", python_words="at most 64 entries"),
        Case("spec.server.args", ["a" * 1025], "spec.server.args[0]", python_words="at most 1024 characters"),
        Case("spec.server.args", "--x", "spec.server.args", python_words="a list"),
        Case("spec.server.engine", "ollama", "spec.server.engine", "vllm"),
        Case("spec.server.image", "", "spec.server.image", "an image reference such as"),
        Case("spec.server.image", "a b", "spec.server.image", "an image reference such as"),
        Case("spec.server.port", 0, "spec.server.port", python_words="at least 1"),
        Case("spec.server.port", 65536, "spec.server.port", python_words="at most 65535"),
        Case("spec.server.maxRequestDuration", "0s", "spec.server.maxRequestDuration", "from 1s to 24h"),
        Case("spec.server.weightCache", {}, "spec.server.weightCache.claimName", python_words="is required"),
        Case(
            "spec.server.weightCache",
            {"claimName": "x", "mountPath": "models"},
            "spec.server.weightCache.mountPath",
            "an absolute path",
        ),
        Case("spec.server.template", "x", "spec.server.template", python_words="a map"),
        Case("spec.replicas", -1, "spec.replicas", python_words="at least 0"),
        Case("spec.replicas", 1001, "spec.replicas", python_words="at most 1000"),
        Case("spec.replicas", "1", "spec.replicas", python_words="an integer"),
    ]


def _bad_loads() -> list[Case]:
    field = "spec.workload.requestsPerSecond"
    rates = [
        "0",
        "-1",
        0,
        -3,
        "NaN",
        "nan",
        "Inf",
        "1e30",
        "1e-30",
        "1k1",
        "1001",
        1001,
        "",
        "1 ",
        "0x1",
        "1_0",
        "٣",
    ]
    return [
        *(Case(field, rate, field, _RATE) for rate in rates),
        Case(field, 0.33, field, python_words=_RATE),
        Case(field, "1" * 33, field, python_words=_RATE),
        Case(field, ABSENT, field, "required with scenario Server"),
        Case("spec.workload", {"scenario": "Offline", "requestsPerSecond": 1}, field, "leave it out"),
        Case("spec.workload.scenario", "Batch", "spec.workload.scenario", "Offline"),
        Case("spec.workload.promptTokens", 0, "spec.workload.promptTokens", python_words="at least 1"),
        Case("spec.workload.outputTokens", -1, "spec.workload.outputTokens", python_words="at least 1"),
        Case("spec.workload.outputTokens", 1e30, "spec.workload.outputTokens", python_words="an integer"),
        Case("spec.workload.outputTokens", "NaN", "spec.workload.outputTokens", python_words="an integer"),
        Case("spec.workload", ABSENT, "spec.workload", python_words="is required"),
        Case("spec.workload", None, "spec.workload", python_words="is required"),
    ]


def _bad_slas() -> list[Case]:
    field = "spec.sla.interTokenLatency"
    latencies = [
        "0s",
        "-50ms",
        "NaN",
        "1e30s",
        "50",
        "",
        "50 ms",
        "9us",
        "61s",
        "1d",
        "+1s",
        "99999h99999h",
        "50ms\n",
    ]
    return [
        *(Case(field, latency, field, _ITL) for latency in latencies),
        Case(field, 50, field, python_words=_ITL),
        Case(field, 0.05, field, python_words=_ITL),
        Case("spec.sla", {}, field, python_words="is required"),
        Case(field, None, field, python_words="is required"),
        Case("spec.sla.statistic", "P99", "spec.sla.statistic", "P95"),
        Case("spec.sla.timeToFirstToken", "0s", "spec.sla.timeToFirstToken", "from 1ms to 1h"),
        Case(
            "spec.sla.predictionConfidencePercent",
            49,
            "spec.sla.predictionConfidencePercent",
            python_words="50",
        ),
        Case(
            "spec.sla.predictionConfidencePercent",
            100,
            "spec.sla.predictionConfidencePercent",
            python_words="99",
        ),
    ]


def _bad_placements() -> list[Case]:
    selector = "spec.placement.poolSelector"
    return [
        Case("spec.placement.tensorParallelSize", 3, "spec.placement.tensorParallelSize", "8"),
        Case("spec.placement.tensorParallelSize", 0, "spec.placement.tensorParallelSize", "8"),
        Case(
            "spec.placement.tensorParallelSize",
            True,
            "spec.placement.tensorParallelSize",
            python_words="an integer",
        ),
        Case(f"{selector}.matchLabels", {"tier": "a b"}, f"{selector}.matchLabels", "a label's value"),
        Case(
            f"{selector}.matchLabels", {"tier": 1}, f"{selector}.matchLabels", python_words="a label's value"
        ),
        Case(
            f"{selector}.matchExpressions",
            [{"key": "tier", "operator": "In"}],
            f"{selector}.matchExpressions[0].values",
            "must be given with In",
        ),
        Case(
            f"{selector}.matchExpressions",
            [{"key": "tier", "operator": "Exists", "values": ["x"]}],
            f"{selector}.matchExpressions[0].values",
            "left out with Exists",
        ),
        Case(
            f"{selector}.matchExpressions",
            [{"key": "-", "operator": "Exists"}],
            f"{selector}.matchExpressions[0].key",
            "a label such as",
        ),
        Case(
            f"{selector}.matchExpressions",
            [{"key": "tier", "operator": "Like", "values": ["x"]}],
            f"{selector}.matchExpressions[0].operator",
            "NotIn",
        ),
    ]


def _bad_parking() -> list[Case]:
    return [
        Case("spec.parking.policy", "Always", "spec.parking.policy", "BreakEven"),
        Case("spec.parking", {"policy": "Fixed"}, "spec.parking.idleTimeout", "required with policy Fixed"),
        Case(
            "spec.parking",
            {"idleTimeout": "1m"},
            "spec.parking.idleTimeout",
            "no meaning with another policy",
        ),
        Case("spec.parking.minIdle", "-1s", "spec.parking.minIdle", "from 0s to 720h"),
        Case("spec.parking.dryRun", "yes", "spec.parking.dryRun", python_words="true or false"),
    ]


def _bad_pools() -> list[Case]:
    watts = "spec.powerBudgetWatts"
    return [
        Case("spec.nodeSelector", {}, "spec.nodeSelector", python_words="at least 1 entries", base="POOL"),
        Case("spec.nodeSelector", ABSENT, "spec.nodeSelector", python_words="is required", base="POOL"),
        Case("spec.nodeSelector", {"a": "b c"}, "spec.nodeSelector", "a label's value", base="POOL"),
        Case("spec.gpu", "", "spec.gpu", "the name of a GPU", base="POOL"),
        Case("spec.gpu", "a\tb", "spec.gpu", "the name of a GPU", base="POOL"),
        Case(watts, 0, watts, python_words="at least 1", base="POOL"),
        Case(watts, -1, watts, python_words="at least 1", base="POOL"),
        Case(watts, "700W", watts, python_words="an integer", base="POOL"),
        Case(watts, 1e30, watts, python_words="an integer", base="POOL"),
    ]


GOOD = _good()
BAD = [
    *_bad_names(),
    *_bad_models(),
    *_bad_servers(),
    *_bad_loads(),
    *_bad_slas(),
    *_bad_placements(),
    *_bad_parking(),
    *_bad_pools(),
]


def plural(resource: Mapping[str, Any]) -> str:
    """The resource's name in URLs."""
    return f"{resource['kind'].lower()}s"
