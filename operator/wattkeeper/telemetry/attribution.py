"""One reading for each physical GPU, from rows that exporters repeat, relabel and leave behind.

MIG repeats a board's power once an instance, read at slightly different instants; virtual GPUs once a sharing
container; batch jobs once a job; two scrape jobs or two exporters once more. None of them is added up: the
newest scrape counts, and within it the highest value. Only memory of MIG instances adds up, for an instance
shows its own.

The order of rows makes no difference, nor do rows of other GPUs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wattkeeper.core.readings import GpuReading, Holder, Sample
from wattkeeper.telemetry.cluster import ClusterView, is_ip_address
from wattkeeper.telemetry.errors import AmbiguousClusterError, WrongClusterError
from wattkeeper.telemetry.labels import GpuLabels, LabelReader, looks_like_exporter
from wattkeeper.telemetry.names import QUANTITIES, Quantity
from wattkeeper.telemetry.series import FaultKind, Faults, Series


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One value of one GPU; `value` in our unit, None where it can't be true."""

    labels: GpuLabels
    quantity: Quantity
    sample: Sample
    value: float | None


def gpu_rows(series: Iterable[Series], reader: LabelReader, faults: Faults) -> list[GpuRow]:
    """The rows of GPUs among series; other metrics are passed over."""
    rows = []
    for each in series:
        quantity = QUANTITIES.get(each.name)
        if quantity is None:
            continue
        labels = reader.read(each.labels)
        if not labels.uuid:
            faults.note(FaultKind.NO_GPU_IDENTITY, f"{each.name} of pod {_pod_of(labels)} has no UUID")
            continue
        value = quantity.read(each.sample.value)
        if isinstance(value, FaultKind):
            faults.note(value, f"{each.name} of {labels.uuid} is {each.sample.value:.16g}")
        known = None if isinstance(value, FaultKind) else value
        rows.append(GpuRow(labels, quantity, each.sample, known))
    return rows


def attribute(rows: Iterable[GpuRow], cluster: ClusterView | None, faults: Faults) -> dict[str, GpuReading]:
    """A reading for each UUID that belongs to the cluster (to any, where `cluster` is None).

    Raises WrongClusterError where rows name nodes and pods and none of them is of the cluster, and
    AmbiguousClusterError where rows that fit it come from more than one.
    """
    places = _Places(cluster, faults)
    kept: dict[str, list[GpuRow]] = defaultdict(list)
    foreign: GpuRow | None = None
    clusters: set[str] = set()
    for row in rows:
        if places.belongs(row.labels) is False:
            foreign = row
            faults.note(FaultKind.FOREIGN_CLUSTER, f"{row.labels.uuid} on {_place_of(row.labels)}")
            continue
        kept[row.labels.uuid].append(row)
        clusters.add(row.labels.cluster)
    if foreign is not None and not kept:
        raise WrongClusterError(
            f"none of the GPUs' series is of this cluster; one is of {_place_of(foreign.labels)}: "
            "check the address, and that series name their node"
        )
    clusters.discard("")
    if len(clusters) > 1:
        raise AmbiguousClusterError(
            f"series of several clusters fit this one ({', '.join(sorted(clusters))}): "
            "set a selector such as cluster=NAME"
        )
    exporters = {row.labels.exporter for each in kept.values() for row in each} - {None}
    return {
        uuid: _reading(uuid, own, places, frozenset(exporters), faults) for uuid, own in sorted(kept.items())
    }


class _Places:
    """Where labels put a row; each set of labels is looked up once."""

    def __init__(self, cluster: ClusterView | None, faults: Faults) -> None:
        self.cluster = cluster
        self.faults = faults
        self._nodes: dict[GpuLabels, str] = {}

    def node(self, labels: GpuLabels) -> str:
        """The node's name; without a cluster to compare with, the best claim; "" where there is none."""
        found = self._nodes.get(labels)
        if found is None:
            found = self._nodes[labels] = self._find_node(labels)
        return found

    def _find_node(self, labels: GpuLabels) -> str:
        if self.cluster is None:
            return labels.node_claims[0] if labels.node_claims else ""
        for claim in labels.node_claims:
            if node := self.cluster.node_called(claim):
                return node
        if labels.exporter is not None:
            pod = self.cluster.pod(*labels.exporter)
            if pod is not None and pod.node:
                return pod.node
        return (self.cluster.node_at(labels.address) if labels.address else None) or ""

    def belongs(self, labels: GpuLabels) -> bool | None:
        """Whether the row is of this cluster, by the node that it names; None where it names none.

        A pod's name alone proves nothing: clusters that run the same manifests have pods of the same names.
        """
        if self.cluster is None:
            return None
        if self.node(labels):
            return True
        return False if labels.node_claims or is_ip_address(labels.address) else None


def _reading(
    uuid: str, rows: Sequence[GpuRow], places: _Places, exporters: frozenset[object], faults: Faults
) -> GpuReading:
    newest: dict[tuple[str, str], float] = {}  # by exporter
    for row in rows:
        target = row.labels.target
        newest[target] = max(row.sample.measured_at, newest.get(target, row.sample.measured_at))
    present = [row for row in rows if row.sample.measured_at == newest[row.labels.target]]
    by_field: dict[str, list[GpuRow]] = defaultdict(list)
    for row in rows:
        by_field[row.quantity.field].append(row)
    values = {field: _value(field, own) for field, own in by_field.items()}
    holders = _holders(present, places, exporters, faults)
    return GpuReading(
        uuid=uuid,
        node=min(filter(None, (places.node(row.labels) for row in present)), default=""),
        index=min(filter(None, (row.labels.index for row in present)), default=""),
        model_name=min(filter(None, (row.labels.model_name for row in present)), default=""),
        holders=holders,
        other_jobs=tuple(sorted({row.labels.job for row in present} - {""})),
        mig=any(row.labels.mig_instance for row in present),
        virtual=any(row.labels.virtual for row in present),
        notes=_notes(newest, by_field, values),
        **values,
    )


def _value(field: str, rows: Sequence[GpuRow]) -> Sample | None:
    """The newest scrape's highest; None where its newest value can't be true, whatever an older one was."""
    if field == "gpu_util_ratio":
        # Not supported for MIG instances, where old exporters print 0.
        rows = [row for row in rows if not row.labels.mig_instance]
    if not rows:
        return None
    at = max(row.sample.measured_at for row in rows)
    rows = [row for row in rows if row.sample.measured_at == at and row.value is not None]
    if not rows:
        return None
    rank = min(row.quantity.rank for row in rows)
    rows = [row for row in rows if row.quantity.rank == rank]
    value = max(row.value for row in rows if row.value is not None)
    if field in ("memory_used_bytes", "memory_free_bytes"):
        value = max(value, _sum_of_instances(rows))
    since = [row.sample.since for row in rows if row.value == value and row.sample.since is not None]
    return Sample(value, at, max(since) if since else None)


def _sum_of_instances(rows: Sequence[GpuRow]) -> float:
    instances: dict[str, float] = {}
    for row in rows:
        if row.labels.mig_instance and row.value is not None:
            key = row.labels.mig_instance
            instances[key] = max(row.value, instances.get(key, 0.0))
    return sum(sorted(instances.values()))  # in one order, so that rounding doesn't show another


def _holders(
    rows: Sequence[GpuRow], places: _Places, exporters: frozenset[object], faults: Faults
) -> tuple[Holder, ...]:
    """The pods that hold the GPU by the newest scrape, each with its own share of memory where known."""
    named = {labels: _named(labels, places, exporters) for labels in {row.labels for row in rows}}
    memory = _memory_by_process(rows, named)
    merged: dict[tuple[str, str, str, str], Holder] = {}
    for labels, pod in named.items():
        holder = _holder(pod, labels, places, faults) if pod is not None else None
        if holder is None:
            continue
        key = (holder.namespace, holder.pod, holder.container, holder.mig_instance)
        before = merged.get(key, holder)
        shares = [each for each in (before.memory_bytes, memory.get(labels)) if each is not None]
        merged[key] = replace(
            before, uid=max(before.uid, holder.uid), memory_bytes=max(shares) if shares else None
        )
    return tuple(merged[key] for key in sorted(merged))


def _named(labels: GpuLabels, places: _Places, exporters: frozenset[object]) -> Holder | None:
    """The pod that a row names as the GPU's; None where it names only the exporter."""
    for pod in labels.pods:
        known = places.cluster.pod(pod.namespace, pod.pod) if places.cluster is not None else None
        exporter = labels.may_name_exporter and (
            (pod.namespace, pod.pod) in exporters
            or looks_like_exporter(pod, labels)
            or (known is not None and known.uses_gpus is False)
        )
        if not exporter:
            return pod
    return None


def _holder(pod: Holder, labels: GpuLabels, places: _Places, faults: Faults) -> Holder | None:
    """The pod that a row names, unless it ended, or is another one of that name."""
    if places.cluster is None:
        return pod
    name = f"{pod.namespace}/{pod.pod}"
    known = places.cluster.pod(pod.namespace, pod.pod)
    if known is None:
        # It may be in a namespace that isn't watched: something holds the GPU.
        faults.note(FaultKind.UNKNOWN_POD, f"{labels.uuid} is held by {name}")
        return pod
    elsewhere = known.node and places.node(labels) and known.node != places.node(labels)
    if known.ended or elsewhere or (pod.uid and known.uid and pod.uid != known.uid):
        faults.note(FaultKind.STALE_POD, f"{labels.uuid} is said to be held by {name}")
        return None
    return replace(pod, uid=pod.uid or known.uid)


def _memory_by_process(
    rows: Sequence[GpuRow], named: Mapping[GpuLabels, Holder | None]
) -> Mapping[GpuLabels, float]:
    """What each sharing pod holds itself, where the exporter maps processes to pods.

    It does so when the device's own row stands beside the pods' copies. A mapping that failed prints 0 for
    all pods, so 0 is unknown.
    """
    rows = [row for row in rows if row.quantity.field == "memory_used_bytes" and not row.labels.mig_instance]
    mapped = {row.labels.target for row in rows if named[row.labels] is None}
    return {
        row.labels: row.value
        for row in rows
        if row.labels.virtual and row.labels.target in mapped and row.value
    }


def _notes(
    newest: Mapping[tuple[str, str], float],
    by_field: Mapping[str, Sequence[GpuRow]],
    values: Mapping[str, Sample | None],
) -> tuple[str, ...]:
    """What was wrong, for people."""
    notes = []
    if len(newest) > 1:
        targets = ", ".join(sorted(f"{job or 'scrape'} at {instance}" for instance, job in newest))
        notes.append(f"scraped more than once: {targets}")
    for field, rows in sorted(by_field.items()):
        if values[field] is None:
            worst = max(row.sample.measured_at for row in rows)
            shown = sorted({f"{row.sample.value:.16g}" for row in rows if row.sample.measured_at == worst})
            notes.append(f"{field}: {', '.join(shown)} isn't a value")
    return tuple(notes)


def _pod_of(labels: GpuLabels) -> str:
    return "/".join((labels.pods[0].namespace, labels.pods[0].pod)) if labels.pods else "(none)"


def _place_of(labels: GpuLabels) -> str:
    return labels.node_claims[0] if labels.node_claims else labels.address or "(unknown)"
