"""The spec of an LLMDeployment: what a user asks for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from wattkeeper.api.schema import ANY_OBJECT, ATOMIC_LIST, ApiModel, DurationRange, QuantityRange, Rule, Text
from wattkeeper.api.v1alpha1.architecture import Architecture
from wattkeeper.api.v1alpha1.common import RFC_1035, DataKey, LabelSelector, ObjectName
from wattkeeper.api.v1alpha1.llmdeployment_status import LLMDeploymentStatus

#: vLLM flags that wattkeeper itself writes: another value of them would belie the prediction.
MANAGED_FLAGS = (
    r"^(--(model|port|tensor[-_]parallel[-_]size|pipeline[-_]parallel[-_]size|data[-_]parallel[-_]size)|-(tp|pp|dp))"
    r"(=.*)?$"
)


class ConfigMapReference(ApiModel):
    """A key of a ConfigMap in the same namespace."""

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: DataKey = Field(default="config.json", description="Key whose value is the config.json's text.")


class SecretReference(ApiModel):
    """A key of a Secret in the same namespace."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: DataKey = Field(default="token", description="Key whose value is the token.")


class Model(ApiModel):
    """The LLM to serve; one that the catalogue lacks is described by `architecture` or `configMapRef`."""

    rules = (
        Rule(
            "!(has(self.architecture) && has(self.configMapRef))",
            "architecture and configMapRef exclude each other: keep one, "
            "or neither for a model of the catalogue",
            at=("configMapRef",),
            holds=lambda self: self.architecture is None or self.config_map_ref is None,
        ),
    )

    id: Annotated[
        str,
        Text(
            r"^/?[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
            "a Hugging Face id such as meta-llama/Llama-3.1-8B-Instruct, or a path in the container",
            256,
        ),
    ] = Field(
        description="Hugging Face id of the model, or the path of its weights in the container. "
        "Immutable once the model is placed (status.pool is set)."
    )
    quantization: Literal["none", "fp8", "int8", "int4", "mxfp4", "nvfp4"] = Field(
        default="none",
        description="Format of the weights as they are served; none: 16 bits (FP16 or BF16). "
        "A pool whose GPU lacks the format isn't used.",
    )
    architecture: Architecture | None = Field(
        default=None, description="The model's architecture, for a model that the catalogue lacks."
    )
    config_map_ref: ConfigMapReference | None = Field(
        default=None,
        description="A ConfigMap that holds the model's Hugging Face config.json, for a model that the "
        "catalogue lacks.",
    )


class WeightCache(ApiModel):
    """A volume that keeps downloaded weights, so that a start needn't download them again."""

    claim_name: ObjectName = Field(
        description="PersistentVolumeClaim in the same namespace; ReadWriteMany for several replicas."
    )
    mount_path: Annotated[str, Text(r"^/[^:]*$", "an absolute path without ':'", 256)] = Field(
        default="/var/cache/huggingface",
        description="Where it is mounted; the container's HF_HOME points to it.",
    )
    read_only: bool = Field(default=False, description="Mount it read-only: the weights are already there.")


class Server(ApiModel):
    """The model server that is run."""

    rules = (
        Rule(
            f"!has(self.args) || !self.args.exists(a, a.matches('{MANAGED_FLAGS}'))",
            "args must not set the model, the port or the parallel sizes: "
            "use model.id, server.port and placement.tensorParallelSize",
            at=("args",),
            holds=lambda self: not any(_is_managed(arg) for arg in self.args),
        ),
    )

    engine: Literal["vllm"] = Field(default="vllm", description="Kind of the server.")
    image: Annotated[
        str, Text(r"^[a-zA-Z0-9][^\s]*$", "an image reference such as vllm/vllm-openai:v0.11.0", 512)
    ] = Field(default="vllm/vllm-openai:v0.11.0", description="Container image of the server.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port of the server and of the Service.")
    args: Annotated[list[Annotated[str, Field(max_length=1024)]], ATOMIC_LIST] = Field(
        default_factory=list,
        max_length=64,
        description="Further arguments of the server, after those that wattkeeper writes.",
    )
    max_request_duration: Annotated[str, DurationRange("1s", "24h", "10m")] = Field(
        default="10m",
        description="Longest time that one request may take (duration). A pod's termination grace period is "
        "set above it, so that a request in flight ends before its pod does.",
    )
    weight_cache: WeightCache | None = Field(
        default=None, description="Volume for downloaded weights; default: they live and die with the pod."
    )
    hugging_face_token_secret_ref: SecretReference | None = Field(
        default=None, description="Secret with a Hugging Face token, for gated models (HF_TOKEN)."
    )
    template: Annotated[dict[str, Any], ANY_OBJECT] = Field(
        default_factory=dict,
        description="A PodTemplateSpec that is merged into the pods', lists by their keys. The model "
        "server's container is named server. The template's spec.tolerations and spec.nodeSelector take part "
        "in placement.",
    )


class Workload(ApiModel):
    """The load that one replica is meant to carry. The prediction holds for it."""

    rules = (
        Rule(
            "self.scenario != 'Server' || has(self.requestsPerSecond)",
            "requestsPerSecond is required with scenario Server, such as 330m",
            at=("requestsPerSecond",),
            holds=lambda self: self.scenario != "Server" or self.requests_per_second is not None,
        ),
        Rule(
            "self.scenario != 'Offline' || !has(self.requestsPerSecond)",
            "requestsPerSecond has no meaning with scenario Offline (the batch is never empty): leave it out",
            at=("requestsPerSecond",),
            holds=lambda self: self.scenario != "Offline" or self.requests_per_second is None,
        ),
    )

    scenario: Literal["Server", "Offline"] = Field(
        default="Server",
        description="Server: requests arrive at requestsPerSecond. Offline: the batch is never empty.",
    )
    requests_per_second: Annotated[int | str, QuantityRange("1u", "1k", "330m")] | None = Field(
        default=None,
        description="Mean arrival rate at one replica (requests per second, a quantity); Server only.",
    )
    prompt_tokens: int = Field(
        default=256, ge=1, le=16_777_216, description="Mean length of a request's prompt (tokens)."
    )
    output_tokens: int = Field(
        default=256, ge=1, le=16_777_216, description="Mean length of a request's answer (tokens)."
    )


class ServiceLevel(ApiModel):
    """The latency that must be kept."""

    inter_token_latency: Annotated[str, DurationRange("10us", "60s", "50ms")] = Field(
        description="Longest acceptable time between two tokens of an answer (duration)."
    )
    statistic: Literal["Mean", "P95"] = Field(
        default="Mean", description="Which statistic of the inter-token latency is bounded."
    )
    time_to_first_token: Annotated[str, DurationRange("1ms", "1h", "2s")] | None = Field(
        default=None,
        description="Longest acceptable time to an answer's first token (duration); default: any.",
    )
    prediction_confidence_percent: int = Field(
        default=90,
        ge=50,
        le=99,
        description="How sure the prediction must be (percent): the upper bound of the predicted latency at "
        "this one-sided confidence must meet the SLA.",
    )


def _not_a_boolean(value: Any) -> Any:
    # Python takes true for 1; the API server doesn't.
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "an integer")
    return value


class Placement(ApiModel):
    """Where the replicas may go. Tolerations and node selectors are read from server.template."""

    pool_selector: LabelSelector = Field(
        default_factory=LabelSelector,
        description="Labels of the GPUNodePools that may be used; default: all.",
    )
    tensor_parallel_size: Annotated[Literal[1, 2, 4, 8], BeforeValidator(_not_a_boolean)] | None = Field(
        default=None, description="GPUs of one replica; default: chosen with the pool."
    )


class Parking(ApiModel):
    """When an idle model gives up its GPUs. Accepted, and not yet acted upon: see the conditions."""

    rules = (
        Rule(
            # The API server tries the default {} of the field on this rule before it fills in the policy.
            "(has(self.policy) && self.policy == 'Fixed') == has(self.idleTimeout)",
            "idleTimeout is required with policy Fixed, and has no meaning with another policy",
            at=("idleTimeout",),
            holds=lambda self: (self.policy == "Fixed") == (self.idle_timeout is not None),
        ),
    )

    policy: Literal["BreakEven", "Adaptive", "Fixed", "Never"] = Field(
        default="BreakEven",
        description="BreakEven: when idling has cost as much energy as loading again. Adaptive: learnt from "
        "the gaps between requests. Fixed: after idleTimeout. Never: not at all.",
    )
    idle_timeout: Annotated[str, DurationRange("1s", "720h", "15m")] | None = Field(
        default=None, description="Idle time after which policy Fixed parks (duration)."
    )
    min_idle: Annotated[str, DurationRange("0s", "720h", "60s")] = Field(
        default="60s", description="Idle time before which no policy parks (duration)."
    )
    dry_run: bool = Field(default=False, description="Only report what would be parked.")


class LLMDeploymentSpec(ApiModel):
    """What to serve, at which load and latency; where and with which power is wattkeeper's to find."""

    model: Model = Field(description="The LLM to serve.")
    server: Server = Field(default_factory=Server, description="The model server that is run.")
    replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Number of replicas while awake; 0: off, and never woken. An HPA may set it by /scale.",
    )
    workload: Workload = Field(description="The load that one replica is meant to carry.")
    sla: ServiceLevel = Field(description="The latency that must be kept.")
    placement: Placement = Field(default_factory=Placement, description="Where the replicas may go.")
    parking: Parking = Field(default_factory=Parking, description="When an idle model gives up its GPUs.")


class LLMDeploymentResource(ApiModel):
    """An LLM served on the pool of GPUs that draws the least power while the latency SLA is met."""

    rules = (
        Rule(
            f"self.metadata.name.matches('{RFC_1035}') && size(self.metadata.name) <= 52",
            "metadata.name must be at most 52 lower-case letters, digits and '-', beginning with a letter "
            "and ending with a letter or digit (RFC 1035): it becomes the name of a Service",
        ),
        Rule(
            "!has(oldSelf.status) || !has(oldSelf.status.pool)"
            " || self.spec.model.id == oldSelf.spec.model.id",
            "spec.model.id is immutable once the model is placed (status.pool is set): "
            "create another LLMDeployment for another model",
        ),
    )

    spec: LLMDeploymentSpec = Field(description="What is asked for.")
    status: LLMDeploymentStatus | None = Field(default=None, description="What was found and done.")


def _is_managed(argument: str) -> bool:
    return _MANAGED.accepts(argument)


_MANAGED = Text(MANAGED_FLAGS, "a flag", 1024)
