"""The node affinity of a pool: label terms that match its nodes and those of no other pool.

The operator labels no nodes. So a pool says in terms of the labels that nodes already have which ones it
means, and takes out what written pools keep; single nodes with a problem are taken out by host name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from wattkeeper.core.demand import LabelRequirement
from wattkeeper.core.fleet import GpuNode
from wattkeeper.core.selectors import LabelTerms, contradict, matches_any, negated

#: The labels by which clouds and provisioners name their node pools, the one that decides first.
NODE_POOL_LABELS = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
)
HOSTNAME = "kubernetes.io/hostname"  # the kubelet sets it on every node

#: Beyond it, what written pools select is taken out node by node instead.
_MOST_TERMS = 64


def node_pool_of(labels: Mapping[str, str]) -> LabelRequirement | None:
    """The label that names the node's node pool, or None."""
    for key in NODE_POOL_LABELS:
        if value := labels.get(key):
            return LabelRequirement(key, "In", (value,))
    return None


def discovered_terms(members: Sequence[GpuNode], all_nodes: Sequence[GpuNode]) -> LabelTerms:
    """Terms for a discovered pool: the labels that name the GPU, and the one that names the node pool.

    Nodes that offer no GPU yet (the driver is still starting) have a say only if all are such: their
    labels will change, and the affinity of running pods had better not.
    """
    speaking = [node for node in members if node.gpus_allocatable] or members
    node_pools = [node_pool_of(node.labels) for node in all_nodes]
    keys_in_use = {node_pool.key for node_pool in node_pools if node_pool}
    values: dict[tuple[str, tuple[LabelRequirement, ...]], set[str]] = {}
    nameless: set[tuple[LabelRequirement, ...]] = set()
    for node in speaking:
        node_pool = node_pool_of(node.labels)
        where = (node_pool,) if node_pool else _absent(keys_in_use)
        if not node.gpu_labels:
            nameless.add(where)
        for requirement in node.gpu_labels:
            values.setdefault((requirement.key, where), set()).update(requirement.values)
    named = [
        (LabelRequirement(key, "In", tuple(sorted(of_key))), *where)
        for (key, where), of_key in values.items()
    ]
    return tuple(sorted([*named, *nameless], key=lambda term: (source_rank(term), term)))


def source_rank(gpu_labels: tuple[LabelRequirement, ...]) -> int:
    """Sorts labels of GPU feature discovery, the most exact source, before those of the clouds."""
    return 0 if gpu_labels and gpu_labels[0].key.startswith("nvidia.com/") else 1


def _absent(keys: Iterable[str]) -> tuple[LabelRequirement, ...]:
    return tuple(LabelRequirement(key, "DoesNotExist") for key in sorted(keys))


def pool_terms(
    base: LabelTerms,
    others: Sequence[tuple[LabelRequirement, ...]],
    members: Sequence[GpuNode],
    all_nodes: Sequence[GpuNode],
) -> LabelTerms:
    """`base` without what `others` (selectors of written pools) select and without stray nodes."""
    terms = base
    for selector in others:
        reduced = _without(terms, selector)
        if len(reduced) <= _MOST_TERMS:
            terms = reduced
    own = {node.name for node in members}
    strays = [
        node.labels.get(HOSTNAME, node.name)
        for node in all_nodes
        if node.name not in own and node.gpus_allocatable and matches_any(terms, node.labels)
    ]
    if not strays:
        return terms
    not_these = LabelRequirement(HOSTNAME, "NotIn", tuple(sorted(strays)))
    return tuple((*term, not_these) for term in terms)


@lru_cache(maxsize=4096)  # the same for as long as nobody writes a pool, and asked at every change of a node
def _without(terms: LabelTerms, selector: tuple[LabelRequirement, ...]) -> LabelTerms:
    """Terms that match what `terms` match and `selector` doesn't: not (a and b) is (not a) or (not b)."""
    reduced: list[tuple[LabelRequirement, ...]] = []
    for term in terms:
        if contradict((*term, *selector)):
            reduced.append(term)
            continue
        for requirement in selector:
            narrower = (*term, negated(requirement))
            if not contradict(narrower):
                reduced.append(narrower)
    return tuple(dict.fromkeys(reduced))
