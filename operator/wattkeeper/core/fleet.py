"""The fleet as values: GPU nodes, the pools they form, and the GPUs that are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattkeeper.core.forecast import GpuKind


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint, as in core/v1."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class GpuNode:
    """One node with GPUs: what it has, what bound pods hold, and who may come."""

    name: str
    labels: Mapping[str, str]
    gpu: GpuKind
    gpus_allocatable: int
    gpus_held: int = 0  # requests of the pods bound here that haven't ended
    taints: tuple[Taint, ...] = ()
    schedulable: bool = True  # Ready and not cordoned

    @property
    def gpus_free(self) -> int:
        return max(0, self.gpus_allocatable - self.gpus_held) if self.schedulable else 0


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are interchangeable for placement: one GPU kind, one name, one set of labels."""

    name: str
    gpu: GpuKind
    nodes: tuple[GpuNode, ...]
    labels: Mapping[str, str]
    node_selector: Mapping[str, str]  # what the pods' node affinity says
    written: bool = False  # by a user, in place of discovered ones
    power_budget_watts: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs promised to an LLMDeployment whose pods aren't bound yet."""

    owner_uid: str
    pool: str
    gpus_per_replica: int
    replicas: int  # those not bound yet


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything placement needs to know of the cluster at one moment."""

    pools: tuple[Pool, ...]
    reservations: tuple[Reservation, ...] = ()
