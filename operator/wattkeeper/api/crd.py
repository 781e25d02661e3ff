"""The CustomResourceDefinitions, as plain objects made from the models.

pydantic writes JSON Schema with references and nulls; Kubernetes wants a structural schema: everything in
its place, no `$ref`, no null, no title, and a type everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wattkeeper.api.names import (
    GPU_NODE_POOL,
    GPU_NODE_POOLS,
    GROUP,
    LLM_DEPLOYMENT,
    LLM_DEPLOYMENTS,
    VERSION,
)
from wattkeeper.api.schema import ApiModel
from wattkeeper.api.v1alpha1.gpunodepool import GPUNodePoolResource
from wattkeeper.api.v1alpha1.llmdeployment import LLMDeploymentResource

Json = dict[str, Any]

CATEGORY = "wattkeeper"
_INT32_MAX = 2**31 - 1
#: Words of JSON Schema that a structural schema has no use for.
_DROPPED = frozenset({"title", "$defs", "propertyNames"})
_TYPE_META = {
    "apiVersion": {"type": "string", "description": f"Group and version of the object: {GROUP}/{VERSION}."},
    "kind": {"type": "string", "description": "Kind of the object."},
    "metadata": {"type": "object"},  # the API server takes no description of it
}


@dataclass(frozen=True, slots=True)
class _Names:
    kind: str
    plural: str
    short: str
    scope: str


_LLM_DEPLOYMENT = _Names(LLM_DEPLOYMENT, LLM_DEPLOYMENTS, "llmd", "Namespaced")
_GPU_NODE_POOL = _Names(GPU_NODE_POOL, GPU_NODE_POOLS, "gnp", "Cluster")


def structural_schema(model: type[ApiModel]) -> Json:
    """The model's schema as `openAPIV3Schema` takes it."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _structural(schema, schema.get("$defs", {}))


def llm_deployment_crd() -> Json:
    """The CRD of LLMDeployment."""
    columns = [
        _column("Phase", ".status.phase", "Summary of the state."),
        _column("Pool", ".status.pool", "GPUNodePool that was chosen."),
        _column("GPU", ".status.gpu", "GPU of the pool."),
        _column("Watts", ".status.prediction.powerWatts", "Predicted power of one replica (W).", "integer"),
        _column("ITL", ".status.prediction.interTokenLatency", "Predicted inter-token latency."),
        _column("SLA", ".spec.sla.interTokenLatency", "Longest acceptable inter-token latency."),
        _column("Age", ".metadata.creationTimestamp", "Time since creation.", "date"),
        _column("Model", ".spec.model.id", "The LLM that is served.", wide=True),
        _column("Replicas", ".spec.replicas", "Replicas while awake.", "integer", wide=True),
        _column("Ready", ".status.readyReplicas", "Replicas that answer requests.", "integer", wide=True),
        _column("GPUs", ".status.gpusPerReplica", "GPUs of one replica.", "integer", wide=True),
        _column("ITL-Upper", ".status.prediction.interTokenLatencyUpper", "Upper bound of ITL.", wide=True),
        _column("Reason", '.status.conditions[?(@.type=="Placed")].reason', "Why there.", wide=True),
    ]
    crd = _crd(_LLM_DEPLOYMENT, LLMDeploymentResource, columns)
    crd["spec"]["versions"][0]["subresources"]["scale"] = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return crd


def gpu_node_pool_crd() -> Json:
    """The CRD of GPUNodePool."""
    columns = [
        _column("GPU", ".status.gpu", "GPU of the nodes."),
        _column("Memory", ".status.memoryPerGPU", "Memory of one GPU."),
        _column("Nodes", ".status.nodes", "Nodes of the pool.", "integer"),
        _column("GPUs", ".status.gpus", "GPUs that the nodes offer.", "integer"),
        _column("Free", ".status.freeGPUs", "GPUs that no pod has.", "integer"),
        _column("Age", ".metadata.creationTimestamp", "Time since creation.", "date"),
        _column("Budget", ".spec.powerBudgetWatts", "Power budget of the pool (W).", "integer", wide=True),
        _column("Label", ".status.gpuLabel", "GPU as the nodes' labels name it.", wide=True),
        _column("Known", '.status.conditions[?(@.type=="GPUKnown")].status', "In the catalogue.", wide=True),
    ]
    return _crd(_GPU_NODE_POOL, GPUNodePoolResource, columns)


def all_crds() -> dict[str, Json]:
    """Every CRD by the name of its file."""
    crds = (llm_deployment_crd(), gpu_node_pool_crd())
    return {f"{GROUP}_{crd['spec']['names']['plural']}.yaml": crd for crd in crds}


def _crd(names: _Names, model: type[ApiModel], columns: list[Json]) -> Json:
    schema = structural_schema(model)
    schema["properties"] = {**_TYPE_META, **schema["properties"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{names.plural}.{GROUP}",
            # Uninstalling the chart must not delete what users wrote.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": names.kind,
                "listKind": f"{names.kind}List",
                "plural": names.plural,
                "singular": names.kind.lower(),
                "shortNames": [names.short],
                "categories": [CATEGORY],
            },
            "scope": names.scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _column(name: str, path: str, description: str, kind: str = "string", *, wide: bool = False) -> Json:
    column: Json = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Json:
    """One schema with its references filled in, and its children likewise."""
    flat = _dereferenced(schema, definitions)
    out: Json = {}
    for key, value in flat.items():
        if key in _DROPPED:
            continue
        if key == "properties":
            out[key] = {name: _structural(child, definitions) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            out[key] = _structural(value, definitions)
        else:
            out[key] = " ".join(value.split()) if key == "description" else value
    return _typed(out)


def _dereferenced(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Json:
    """The schema without `$ref` and without null: `X | None` is X that may be left out."""
    flat = dict(schema)
    if "x-kubernetes-int-or-string" not in flat and "anyOf" in flat:
        (flat_inner,) = [each for each in flat.pop("anyOf") if each.get("type") != "null"]
        if flat.get("default", ...) is None:
            del flat["default"]
        flat = {**_dereferenced(flat_inner, definitions), **flat}
    if "$ref" in flat:
        name = str(flat.pop("$ref")).rsplit("/", maxsplit=1)[-1]
        flat = {**_dereferenced(definitions[name], definitions), **flat}
    return flat


def _typed(schema: Json) -> Json:
    """Integers with their width (kubectl and clients in Go go by it), `type` first."""
    if schema.get("type") == "integer":
        top = max(schema["enum"]) if "enum" in schema else schema.get("maximum", math.inf)
        schema["format"] = "int32" if top <= _INT32_MAX else "int64"
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    first: Json = {key: schema[key] for key in ("description", "type", "format", "default") if key in schema}
    return first | {key: value for key, value in schema.items() if key not in first}
