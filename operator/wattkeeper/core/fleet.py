"""The fleet as values: GPU nodes, the pools they form, and the GPUs that are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from wattkeeper.core.demand import LabelRequirement, Toleration
from wattkeeper.core.forecast import GpuKind


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    """A node's taint, as in core/v1."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why GPUs can't be offered, rather than a guess. `reason` is CamelCase, `message` names the cure."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class GpuNode:
    """One node with GPUs: what it has, what bound pods hold, and who may come.

    `gpu_labels` are the labels that name its GPU: nodes that share their values have the same GPU.
    """

    name: str
    labels: Mapping[str, str]
    gpu: GpuKind  # with an empty label where nothing names the model
    gpus_allocatable: int
    gpus_held: int = 0  # requests of the pods bound here that haven't ended
    taints: tuple[Taint, ...] = ()
    schedulable: bool = True  # Ready and not cordoned
    gpu_labels: tuple[LabelRequirement, ...] = ()
    problem: Problem | None = None

    @property
    def gpus_free(self) -> int:
        return max(0, self.gpus_allocatable - self.gpus_held) if self.schedulable else 0


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are interchangeable for placement: one GPU kind, one name, one set of labels.

    `node_terms` is what the pods' node affinity says (any of the terms, all requirements of it): it
    matches the pool's nodes and no other pool's. `node_selector` says the same in short, for people,
    without what it takes out. `problem` makes the pool unusable; `notes` tell what was left out.
    """

    name: str
    gpu: GpuKind
    nodes: tuple[GpuNode, ...]
    labels: Mapping[str, str]
    node_selector: Mapping[str, str]
    written: bool = False  # by a user, in place of discovered ones
    power_budget_watts: int | None = None
    node_terms: tuple[tuple[LabelRequirement, ...], ...] = ()
    problem: Problem | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenPool:
    """A GPUNodePool that a user wrote. `gpu` overrides what the nodes' labels say; `created` is RFC 3339."""

    name: str
    node_selector: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    gpu: str | None = None
    power_budget_watts: int | None = None
    created: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where an LLMDeployment already is, and how many of its pods are bound to a node there."""

    pool: str
    gpus_per_replica: int
    bound_replicas: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs promised to an LLMDeployment whose pods aren't bound yet.

    Its tolerations and node selector say which of the pool's nodes its pods may still bind to.
    """

    owner_uid: str
    pool: str
    gpus_per_replica: int
    replicas: int  # those not bound yet
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything placement needs to know of the cluster at one moment."""

    pools: tuple[Pool, ...]
    reservations: tuple[Reservation, ...] = ()
