"""What a series of dcgm-exporter says by its labels, in all their variants.

Who wrote a label decides its meaning. dcgm-exporter's `pod` is the workload that holds the GPU, unless
Prometheus put its own `pod`, the exporter itself, over it; then the workload is `exported_pod`, and on the
rows of a GPU that nobody holds there is no `exported_pod` at all. Empty and absent labels are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wattkeeper.core.readings import Holder

_UUID = ("UUID", "uuid", "gpu_uuid")
_NODE = ("node", "nodename", "kubernetes_node")  # by relabelling in Prometheus
_HOST = ("hostname", "Hostname", "exported_hostname", "exported_Hostname")  # by the exporter
_NO_HOST = frozenset({"localhost", "127.0.0.1"})
_CLUSTER = ("cluster", "cluster_name")
_EXPORTER_CONTAINERS = frozenset({"exporter", "dcgm-exporter", "nvidia-dcgm-exporter"})


@dataclass(frozen=True, slots=True, eq=False)  # a LabelReader makes each once, so identity will do
class GpuLabels:
    """One row's labels, read. `target` tells one exporter's scrapes from another's; `node_claims` are names
    that a node of ours should have; the first of `pods` holds the GPU, those left out that
    are the exporter itself, which Prometheus' labels may name (`may_name_exporter`)."""

    uuid: str
    target: tuple[str, str]  # instance, job
    node_claims: tuple[str, ...]
    address: str
    cluster: str
    index: str
    model_name: str
    pods: tuple[Holder, ...]
    may_name_exporter: bool
    exporter: tuple[str, str] | None  # namespace, pod, where Prometheus names it beside the workload
    mig_instance: str
    virtual: bool
    job: str  # of a batch system


# Labels that are read; all others (driver versions, PCI ids, the pods' own labels) make no difference.
_READ = (
    *_UUID,
    *_NODE,
    *_HOST,
    *_CLUSTER,
    *("gpu", "modelName", "model_name", "instance", "job", "dra_pool_name"),
    *("pod", "namespace", "container", "pod_uid", "pod_name", "pod_namespace", "container_name"),
    *("exported_pod", "exported_namespace", "exported_container"),
    *("GPU_I_PROFILE", "GPU_I_ID", "dra_mig_profile", "dra_mig_device_uuid", "vgpu", "hpc_job"),
)


class LabelReader:
    """Reads labels, and each set of them once: an exporter repeats them beside each of its metrics."""

    def __init__(self) -> None:
        self._read: dict[tuple[str | None, ...], GpuLabels] = {}

    def read(self, labels: Mapping[str, str]) -> GpuLabels:
        key = tuple(map(labels.get, _READ))
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = _read_labels(labels)
        return found


def first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    """The first of the labels that isn't empty, else ""."""
    for name in names:
        if value := labels.get(name):
            return value
    return ""


def host_of(instance: str) -> str:
    """The host of `host:port`; IPv6 addresses are in brackets."""
    host = instance.rpartition(":")[0] or instance
    return host.strip("[]")


def _read_labels(labels: Mapping[str, str]) -> GpuLabels:
    pods = _pods(labels)
    pushed_aside = bool(labels.get("exported_pod"))
    by_prometheus = bool(labels.get("job"))
    claims = map(labels.get, (*_NODE, *_HOST, "dra_pool_name"))
    return GpuLabels(
        uuid=first(labels, _UUID),
        target=(labels.get("instance", ""), labels.get("job", "")),
        node_claims=tuple(dict.fromkeys(claim for claim in claims if claim and claim not in _NO_HOST)),
        address=host_of(labels.get("instance", "")),
        cluster=first(labels, _CLUSTER),
        index=labels.get("gpu", ""),
        model_name=first(labels, ("modelName", "model_name")),
        pods=pods,
        may_name_exporter=by_prometheus and not pushed_aside,
        exporter=(labels.get("namespace", ""), labels.get("pod", "")) if pushed_aside else None,
        mig_instance=_mig_instance(labels),
        virtual=bool(labels.get("vgpu")),
        job=labels.get("hpc_job", ""),
    )


def _pods(labels: Mapping[str, str]) -> tuple[Holder, ...]:
    """The pods that the row may name as the GPU's, best first."""
    uid, mig = labels.get("pod_uid", ""), _mig_instance(labels)
    spellings = (
        ("exported_pod", "exported_namespace", "exported_container"),
        ("pod_name", "pod_namespace", "container_name"),  # the old namespace
        ("pod", "namespace", "container"),
    )
    found = []
    for pod, namespace, container in spellings:
        if labels.get(pod):
            found.append(Holder(labels.get(namespace, ""), labels[pod], labels.get(container, ""), uid, mig))
            if pod == "exported_pod":
                break
    return tuple(found)


def _mig_instance(labels: Mapping[str, str]) -> str:
    profile = first(labels, ("GPU_I_PROFILE", "dra_mig_profile"))
    number = first(labels, ("GPU_I_ID", "dra_mig_device_uuid"))
    return f"{profile}/{number}" if profile or number else ""


def looks_like_exporter(pod: Holder, labels: GpuLabels) -> bool:
    """Whether a pod that a row names is the exporter, by what the row alone shows."""
    return (
        pod.container in _EXPORTER_CONTAINERS or "dcgm-exporter" in pod.pod or pod.pod in labels.node_claims
    )
