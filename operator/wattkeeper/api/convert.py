"""From resources to the core's values: all of one resource, or every error of it at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from wattkeeper.api.config_json import config_from_architecture, config_from_text
from wattkeeper.api.errors import FieldError, SpecErrors, field_errors, join_path, shorten
from wattkeeper.api.names import API_VERSION, GPU_NODE_POOL, LABEL_DISCOVERED, LLM_DEPLOYMENT
from wattkeeper.api.pod_template import node_selector_of, template_errors, tolerations_of
from wattkeeper.api.quantities import parse_duration, parse_quantity
from wattkeeper.api.schema import ApiModel
from wattkeeper.api.v1alpha1.common import RFC_1035, RFC_1123, LabelSelector
from wattkeeper.api.v1alpha1.gpunodepool import GPUNodePoolSpec
from wattkeeper.api.v1alpha1.llmdeployment import ConfigMapReference, LLMDeploymentSpec, Model, Workload
from wattkeeper.api.v1alpha1.llmdeployment_status import LLMDeploymentStatus
from wattkeeper.core.demand import (
    Demand,
    LabelRequirement,
    ModelChoice,
    Scenario,
    Sla,
    Statistic,
    Toleration,
    WorkloadShape,
)
from wattkeeper.core.fleet import WrittenPool

#: What to do with fields that the API doesn't have: the API server has dropped them already and a newer one
#: may have more, so the operator ignores them; a file for `wattkeeper plan` has a typo.
UnknownFields = Literal["ignore", "forbid"]

#: GPU nodes are commonly tainted with this key, under various values.
GPU_TOLERATION = Toleration(key="nvidia.com/gpu", operator="Exists", effect="")

_Spec = TypeVar("_Spec", bound=ApiModel)


@dataclass(frozen=True, slots=True)
class ParsedDeployment:
    """An LLMDeployment that can be carried out: what was written, and what it means to the core."""

    spec: LLMDeploymentSpec
    demand: Demand
    generation: int


@dataclass(frozen=True, slots=True)
class ParsedPool:
    """A GPUNodePool. A discovered one was made by the operator, though users may add labels and a budget."""

    pool: WrittenPool
    discovered: bool
    generation: int


def deployment_from(
    resource: Mapping[str, Any],
    config_text: str | None = None,
    *,
    unknown_fields: UnknownFields = "ignore",
) -> ParsedDeployment:
    """An LLMDeployment, as the API server or a YAML file gives it, with the config.json it refers to.

    `config_text` is the value of spec.model.configMapRef's key, None where there is none. Raises SpecErrors
    with every error found.
    """
    metadata = _mapping(resource.get("metadata"))
    errors = _identity_errors(resource, LLM_DEPLOYMENT, RFC_1035, 52)
    spec = _validated(LLMDeploymentSpec, resource, unknown_fields, errors)
    config: Mapping[str, Any] | None = None
    template = _mapping(_mapping(_mapping(resource.get("spec")).get("server")).get("template"))
    errors += template_errors(template)
    if spec is not None:
        try:
            config = _model_config(spec.model, config_text)
        except SpecErrors as error:
            if not errors:
                raise
            errors += error.errors
    if errors or spec is None:
        raise SpecErrors(errors)
    demand = _demand(spec, config, metadata, template)
    return ParsedDeployment(spec, demand, _generation(metadata))


def demand_from(
    resource: Mapping[str, Any], config_text: str | None = None, *, unknown_fields: UnknownFields = "ignore"
) -> Demand:
    """The demand of an LLMDeployment alone; see `deployment_from`."""
    return deployment_from(resource, config_text, unknown_fields=unknown_fields).demand


def status_from(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of an LLMDeployment once it is sound, empty while it has none.

    For files; what the API server gives is checked already. Raises SpecErrors with every error found.
    """
    status = resource.get("status")
    if status is None:
        return {}
    if not isinstance(status, Mapping):
        raise SpecErrors([FieldError("status", f"must be a map; got {shorten(status)}")])
    try:
        LLMDeploymentStatus.model_validate(dict(status))
    except ValidationError as error:
        raise SpecErrors(field_errors(error, LLMDeploymentStatus, "status")) from None
    return status


def config_reference(resource: Mapping[str, Any]) -> ConfigMapReference | None:
    """The ConfigMap that must be read before `deployment_from`; None where there is none (or it is wrong)."""
    reference = _mapping(_mapping(resource.get("spec")).get("model")).get("configMapRef")
    try:
        return ConfigMapReference.model_validate(reference) if reference is not None else None
    except ValidationError:
        return None


def pool_from(resource: Mapping[str, Any], *, unknown_fields: UnknownFields = "ignore") -> ParsedPool:
    """A GPUNodePool, as the API server or a YAML file gives it. Raises SpecErrors with every error found."""
    metadata = _mapping(resource.get("metadata"))
    errors = _identity_errors(resource, GPU_NODE_POOL, RFC_1123, 63)
    spec = _validated(GPUNodePoolSpec, resource, unknown_fields, errors)
    if errors or spec is None:
        raise SpecErrors(errors)
    labels = {str(key): str(value or "") for key, value in _mapping(metadata.get("labels")).items()}
    pool = WrittenPool(
        name=metadata["name"],
        node_selector=MappingProxyType(dict(spec.node_selector)),
        labels=MappingProxyType(labels),
        gpu=spec.gpu,
        power_budget_watts=spec.power_budget_watts,
        created=str(metadata.get("creationTimestamp") or ""),
    )
    return ParsedPool(pool, labels.get(LABEL_DISCOVERED) == "true", _generation(metadata))


def _validated(
    model: type[_Spec], resource: Mapping[str, Any], unknown_fields: UnknownFields, errors: list[FieldError]
) -> _Spec | None:
    """The spec, or None after its errors were added to `errors`."""
    spec = resource.get("spec")
    if not isinstance(spec, Mapping):
        errors.append(
            FieldError("spec", f"must be a map; got {shorten(spec)}" if spec is not None else "is required")
        )
        return None
    try:
        return model.model_validate(dict(spec), extra=unknown_fields)
    except ValidationError as error:
        errors += field_errors(error, model, "spec")
        return None


def _identity_errors(
    resource: Mapping[str, Any], kind: str, name_pattern: str, name_length: int
) -> list[FieldError]:
    errors = []
    if resource.get("apiVersion") != API_VERSION:
        errors.append(
            FieldError("apiVersion", f"must be {API_VERSION}; got {shorten(resource.get('apiVersion'))}")
        )
    if resource.get("kind") != kind:
        errors.append(FieldError("kind", f"must be {kind}; got {shorten(resource.get('kind'))}"))
    metadata = _mapping(resource.get("metadata"))
    name = metadata.get("name")
    fits = isinstance(name, str) and len(name) <= name_length and "\n" not in name
    if not fits or re.search(name_pattern, str(name)) is None:
        first = "a letter" if name_pattern == RFC_1035 else "a letter or digit"
        errors.append(
            FieldError(
                "metadata.name",
                f"must be at most {name_length} lower-case letters, digits and '-', beginning with {first} "
                f"and ending with a letter or digit; got {shorten(name)}",
            )
        )
    return errors + _text_errors(metadata)


def _text_errors(metadata: Mapping[str, Any]) -> list[FieldError]:
    """What of the metadata isn't the text that it must be: the API server refuses it, a file may have it."""
    texts = {f"metadata.{field}": metadata.get(field) for field in ("namespace", "uid", "creationTimestamp")}
    texts |= {
        join_path("metadata.labels", key): value
        for key, value in _mapping(metadata.get("labels")).items()
        if isinstance(key, str)
    }
    return [
        FieldError(field, f"must be a string: quote it; got {shorten(value)}")
        for field, value in texts.items()
        if value is not None and not isinstance(value, str)
    ]


def _model_config(model: Model, config_text: str | None) -> Mapping[str, Any] | None:
    if model.architecture is not None:
        return MappingProxyType(config_from_architecture(model.architecture))
    reference = model.config_map_ref
    if reference is None:
        return None
    if config_text is None:
        message = f"no ConfigMap {reference.name} with the key {reference.key} in this namespace: create it"
        raise SpecErrors([FieldError("spec.model.configMapRef", message)], reason="ConfigMapNotFound")
    return MappingProxyType(config_from_text(config_text))


def _demand(
    spec: LLMDeploymentSpec,
    config: Mapping[str, Any] | None,
    metadata: Mapping[str, Any],
    template: Mapping[str, Any],
) -> Demand:
    name = str(metadata["name"])
    namespace = str(metadata.get("namespace") or "default")
    ttft = spec.sla.time_to_first_token
    return Demand(
        uid=str(metadata.get("uid") or f"{namespace}/{name}"),
        namespace=namespace,
        name=name,
        created=str(metadata.get("creationTimestamp") or ""),
        model=ModelChoice(id=spec.model.id, quantization=spec.model.quantization, config=config),
        workload=_workload(spec.workload),
        sla=Sla(
            itl_seconds=float(parse_duration(spec.sla.inter_token_latency, "spec.sla.interTokenLatency")),
            statistic=Statistic(spec.sla.statistic),
            confidence_percent=spec.sla.prediction_confidence_percent,
            ttft_seconds=None if ttft is None else float(parse_duration(ttft, "spec.sla.timeToFirstToken")),
        ),
        replicas=spec.replicas,
        tensor_parallel_size=spec.placement.tensor_parallel_size,
        pool_selector=_requirements(spec.placement.pool_selector),
        tolerations=(GPU_TOLERATION, *tolerations_of(template)),
        node_selector=MappingProxyType(node_selector_of(template)),
    )


def _workload(workload: Workload) -> WorkloadShape:
    rate = workload.requests_per_second
    return WorkloadShape(
        scenario=Scenario(workload.scenario),
        requests_per_second=(
            None if rate is None else float(parse_quantity(rate, "spec.workload.requestsPerSecond"))
        ),
        prompt_tokens=workload.prompt_tokens,
        output_tokens=workload.output_tokens,
    )


def _requirements(selector: LabelSelector) -> tuple[LabelRequirement, ...]:
    labels = [LabelRequirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    expressions = [
        LabelRequirement(each.key, each.operator, tuple(each.values or ()))
        for each in selector.match_expressions
    ]
    return (*labels, *expressions)


def _generation(metadata: Mapping[str, Any]) -> int:
    generation = metadata.get("generation")
    return generation if isinstance(generation, int) else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
