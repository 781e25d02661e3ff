"""A GPUNodePool: nodes of one GPU kind, found by their labels or written by a user."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattkeeper.api.schema import ApiModel, Rule, Text
from wattkeeper.api.v1alpha1.common import RFC_1123, Conditions, LabelKey, LabelValue


class GPUNodePoolSpec(ApiModel):
    """Which nodes belong to the pool, and what is known of them."""

    node_selector: dict[LabelKey, LabelValue] = Field(
        min_length=1,
        max_length=32,
        description="Labels that a node must all have to belong to the pool. Nodes of a pool that a user "
        "wrote belong to no discovered pool.",
    )
    gpu: (
        Annotated[
            str,
            Text(
                r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$",
                "the name of a GPU as in the node label nvidia.com/gpu.product, such as NVIDIA-L40S",
                128,
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="GPU of the nodes, as in the node label nvidia.com/gpu.product or in the catalogue; "
        "default: read from the nodes' labels.",
    )
    power_budget_watts: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Most power that the pool's GPUs may draw together (watts). Accepted, and not yet acted "
        "upon: see the conditions.",
    )


class GPUNodePoolStatus(ApiModel):
    """What the pool's nodes have."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="Generation of the spec that this status is about."
    )
    gpu: str | None = Field(
        default=None, max_length=128, description="GPU of the nodes: the catalogue's name, else their label."
    )
    gpu_label: str | None = Field(
        default=None, max_length=256, description="GPU of the nodes as their labels name it."
    )
    memory_per_gpu: str | None = Field(
        default=None,
        alias="memoryPerGPU",
        max_length=32,
        description="Memory of one GPU as the nodes report it (bytes, a quantity).",
    )
    nodes: int | None = Field(default=None, ge=0, le=1_000_000, description="Nodes of the pool.")
    gpus: int | None = Field(
        default=None, ge=0, le=10_000_000, description="GPUs that the pool's nodes offer to pods."
    )
    free_gpus: int | None = Field(
        default=None,
        alias="freeGPUs",
        ge=0,
        le=10_000_000,
        description="GPUs on schedulable nodes that no pod has.",
    )
    conditions: Conditions = Field(
        default_factory=list,
        max_length=32,
        description="What holds: Ready, GPUKnown and PowerBudgetEnforced.",
    )


class GPUNodePoolResource(ApiModel):
    """Nodes that are interchangeable for placement: one GPU kind, one set of labels."""

    rules = (
        Rule(
            f"self.metadata.name.matches('{RFC_1123}') && size(self.metadata.name) <= 63",
            "metadata.name must be at most 63 lower-case letters, digits and '-', beginning and ending with "
            "a letter or digit: it becomes the value of a label",
        ),
    )

    spec: GPUNodePoolSpec = Field(description="Which nodes belong to the pool.")
    status: GPUNodePoolStatus | None = Field(default=None, description="What the pool's nodes have.")
