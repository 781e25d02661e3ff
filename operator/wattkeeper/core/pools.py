"""Pools from nodes: those that users wrote, and those found by the nodes' labels.

A discovered pool is one GPU model in one node pool of the cloud (GKE, EKS, AKS, Karpenter), or one GPU
model where nodes carry no such label. Its name is `<gpu>` or `<gpu>--<node pool>`: it follows from these
two alone, so it stays the same while nodes come and go. The double hyphen keeps names apart: a GPU's slug
has only single ones. A node belongs to the first written pool that selects it, in the order (created,
name), so that a new pool never takes nodes from an older one; what no written pool selects is discovered.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from wattkeeper.core.demand import LabelRequirement
from wattkeeper.core.fleet import GpuNode, Pool, Problem, WrittenPool
from wattkeeper.core.forecast import GpuKind
from wattkeeper.core.gpu_labels import CURED_BY_NAMING
from wattkeeper.core.gpu_names import gpu_slug
from wattkeeper.core.node_terms import HOSTNAME, discovered_terms, node_pool_of, pool_terms, source_rank
from wattkeeper.core.selectors import LabelTerms, describe, label_equals, matches

#: On discovered pools, for `placement.poolSelector`: the GPU's slug, such as `l4` or `h100-nvl`.
POOL_GPU_LABEL = "wattkeeper.dev/gpu"

MAX_NAME_LENGTH = 63  # of an RFC 1123 label, so that the name is a label's value too
_NAMED_NODES = 3  # in messages, before "and n more"


def build_pools(
    nodes: Iterable[GpuNode],
    written: Iterable[WrittenPool] = (),
    discovered: Iterable[WrittenPool] = (),
) -> tuple[Pool, ...]:
    """All pools, sorted by name, independent of the input's order.

    `discovered` are the objects that stand for discovered pools already: users may have added labels and a
    power budget to them, which count; what nodes belong to the pool is found anew.
    """
    known = {spec.name: spec for spec in discovered}
    all_nodes = sorted(nodes, key=lambda node: node.name)
    pool_specs = sorted(written, key=lambda spec: (spec.created, spec.name))
    pools = []
    remaining = all_nodes
    for position, spec in enumerate(pool_specs):
        pools.append(_written_pool(spec, pool_specs[:position], remaining, all_nodes))
        remaining = [node for node in remaining if not matches(label_equals(spec.node_selector), node.labels)]
    taken_names = {spec.name for spec in pool_specs}
    groups: dict[tuple[str, str | None], list[GpuNode]] = {}
    for node in remaining:
        node_pool = node_pool_of(node.labels)
        key = (gpu_slug(node.gpu.label) or "unknown", node_pool.values[0] if node_pool else None)
        groups.setdefault(key, []).append(node)
    for (gpu, node_pool_name), members in groups.items():
        name = pool_name(gpu, node_pool_name)
        if name in taken_names:
            name = _shortened(f"{name}-discovered", hashed=True)
        empty = _empty_pool(name, gpu, known.get(name))
        pools.append(_discovered_pool(empty, members, all_nodes, pool_specs))
    return tuple(sorted(pools, key=lambda pool: pool.name))


def pool_name(gpu: str, node_pool: str | None) -> str:
    """The name of a discovered pool: an RFC 1123 label, with a hash where the parts had to be altered."""
    if node_pool is None:
        return _shortened(gpu, hashed=False)
    cleaned = re.sub(r"[^a-z0-9]+", "-", node_pool.lower()).strip("-")
    if cleaned == node_pool:
        return _shortened(f"{gpu}--{node_pool}", hashed=False)
    return _shortened(f"{gpu}--{cleaned}", hashed=True, identity=f"{gpu}--{node_pool}")


def _shortened(name: str, *, hashed: bool, identity: str | None = None) -> str:
    if not hashed and len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256((identity or name).encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def _written_pool(
    spec: WrittenPool,
    older: Sequence[WrittenPool],
    remaining: Sequence[GpuNode],
    all_nodes: Sequence[GpuNode],
) -> Pool:
    selector = label_equals(spec.node_selector)
    selected = [node for node in all_nodes if matches(selector, node.labels)]
    members = [node for node in remaining if matches(selector, node.labels)]
    notes = []
    for other in older:
        lost = [node for node in selected if matches(label_equals(other.node_selector), node.labels)]
        if lost:
            match = "matches" if len(lost) == 1 else "match"
            notes.append(
                f"{_named(lost)} also {match} GPUNodePool {other.name}, which is older and keeps them"
            )
    if spec.gpu is not None:
        members = [
            replace(node, problem=None) if node.problem and node.problem.reason in CURED_BY_NAMING else node
            for node in members
        ]
    pool = Pool(
        name=spec.name,
        gpu=GpuKind(spec.gpu or ""),
        nodes=(),
        labels=spec.labels,
        node_selector=spec.node_selector,
        written=True,
        power_budget_watts=spec.power_budget_watts,
        notes=tuple(notes),
    )
    if selected and not members:
        taken = "all its nodes are another's: narrow the other's spec.nodeSelector, or delete this pool"
        return replace(pool, notes=(), problem=Problem("NoNodes", "; ".join([*notes, taken])))
    if not members:
        where = f"no GPU node matches spec.nodeSelector ({describe(selector)})"
        return replace(pool, problem=Problem("NoNodes", f"{where}: correct it, or add nodes"))
    # An empty term matches no node in Kubernetes, unlike an empty node selector.
    term = selector or (LabelRequirement(HOSTNAME, "Exists"),)
    return _filled(pool, members, (term,), [label_equals(other.node_selector) for other in older], all_nodes)


def _empty_pool(name: str, gpu: str, known: WrittenPool | None) -> Pool:
    """A discovered pool before its nodes, with what users added to its object."""
    labels = {POOL_GPU_LABEL: gpu[:MAX_NAME_LENGTH].rstrip("-"), **(known.labels if known else {})}
    budget = known.power_budget_watts if known else None
    return Pool(name, GpuKind(""), (), labels, node_selector={}, power_budget_watts=budget)


def _discovered_pool(
    empty: Pool, members: Sequence[GpuNode], all_nodes: Sequence[GpuNode], written: Sequence[WrittenPool]
) -> Pool:
    usable = [node for node in members if node.problem is None]
    terms = discovered_terms(usable or members, all_nodes)
    node_selector = {
        requirement.key: requirement.values[0]
        for requirement in terms[0]
        if requirement.operator == "In" and len(requirement.values) == 1
    }
    pool = replace(empty, node_selector=node_selector, labels={**node_selector, **empty.labels})
    others = [label_equals(spec.node_selector) for spec in written]
    return _filled(pool, members, terms, others, all_nodes)


def _filled(
    pool: Pool,
    members: Sequence[GpuNode],
    terms: LabelTerms,
    others: Sequence[tuple[LabelRequirement, ...]],
    all_nodes: Sequence[GpuNode],
) -> Pool:
    """The pool with its usable nodes; without any, with all of them and the problem that they have."""
    usable = [node for node in members if node.problem is None]
    broken = [node for node in members if node.problem is not None]
    if not usable:
        return replace(pool, nodes=tuple(members), gpu=_kind(pool, members), problem=_shared_problem(broken))
    pool = replace(
        pool,
        nodes=tuple(usable),
        gpu=_kind(pool, usable),
        node_terms=pool_terms(terms, others, usable, all_nodes),
        notes=(*pool.notes, *_left_out(broken)),
    )
    kinds = {gpu_slug(node.gpu.label): node for node in reversed(usable) if node.gpu.label}
    if len(kinds) > 1:
        examples = ", ".join(f"{node.gpu.label} on {node.name}" for _, node in sorted(kinds.items()))
        cure = "narrow spec.nodeSelector until one model remains, and write a pool for each"
        return replace(pool, problem=Problem("GpuModelsMixed", f"its nodes differ ({examples}): {cure}"))
    return pool


def _kind(pool: Pool, nodes: Sequence[GpuNode]) -> GpuKind:
    """The pool's GPU: as written, else as most exactly labelled; of memory, the least that a node reports."""
    named = [(source_rank(node.gpu_labels), node.gpu.label) for node in nodes if node.gpu.label]
    label = pool.gpu.label or min(named, default=(0, ""))[1]
    memory = min((node.gpu.memory_bytes for node in nodes if node.gpu.memory_bytes), default=None)
    return GpuKind(label, memory)


def _shared_problem(broken: Sequence[GpuNode]) -> Problem:
    first = broken[0].problem
    assert first is not None, "the caller picked nodes with a problem"
    return Problem(first.reason, f"{_named(broken)}: {first.message}")


def _left_out(broken: Sequence[GpuNode]) -> list[str]:
    by_reason: dict[str, list[GpuNode]] = {}
    for node in broken:
        if node.problem:
            by_reason.setdefault(node.problem.reason, []).append(node)
    return [f"{_named(nodes)} left out: {_shared_problem(nodes).message}" for nodes in by_reason.values()]


def _named(nodes: Sequence[GpuNode]) -> str:
    names = ", ".join(node.name for node in nodes[:_NAMED_NODES])
    more = len(nodes) - _NAMED_NODES
    return f"{'node' if len(nodes) == 1 else 'nodes'} {names}{f' and {more} more' if more > 0 else ''}"
