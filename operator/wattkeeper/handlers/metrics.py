"""The operator's own metrics, names with units. One instance a process, registered at its start."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wattkeeper.kube.snapshot import Snapshot

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """All instruments, on a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.leading = Gauge(
            "wattkeeper_leader", "1 while this process holds the Lease and decides.", registry=self.registry
        )
        self.reconcile_seconds = Histogram(
            "wattkeeper_reconcile_seconds",
            "Time to bring about what one LLMDeployment needs.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.reconcile_failures = Counter(
            "wattkeeper_reconcile_failures_total",
            "Reconciliations that failed and were tried again, by kind of error.",
            ["error"],
            registry=self.registry,
        )
        self.placement_seconds = Histogram(
            "wattkeeper_placement_decision_seconds",
            "Time to decide on one LLMDeployment's placement, without requests to the API.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.placements = Counter(
            "wattkeeper_placement_decisions_total",
            "Placement decisions, by the reason that the condition Placed got.",
            ["reason"],
            registry=self.registry,
        )
        self.repairs = Counter(
            "wattkeeper_drift_repairs_total",
            "Children that were brought back to what they should be, by kind.",
            ["kind"],
            registry=self.registry,
        )
        self.sweep_seconds = Histogram(
            "wattkeeper_sweep_seconds",
            "Time of one sweep over all LLMDeployments and pools.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.last_sweep = Gauge(
            "wattkeeper_last_sweep_timestamp_seconds",
            "When the last sweep ended (Unix time).",
            registry=self.registry,
        )
        self.api_request_seconds = Histogram(
            "wattkeeper_api_request_seconds",
            "Requests to the Kubernetes API by verb, kind and HTTP status (0: no answer).",
            ["verb", "kind", "status"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def observe_request(self, verb: str, kind: str, status: int, seconds: float) -> None:
        """What `kube.client` tells of each request."""
        self.api_request_seconds.labels(verb, kind, str(status)).observe(seconds)

    def watch(self, snapshot: Snapshot, queue_length: Callable[[], int]) -> None:
        """Also show what the leader sees, computed when it is scraped."""
        self.registry.register(_FleetCollector(snapshot, queue_length))


class _FleetCollector(Collector):
    def __init__(self, snapshot: Snapshot, queue_length: Callable[[], int]) -> None:
        self._snapshot = snapshot
        self._queue_length = queue_length

    def describe(self) -> Iterator[Metric]:
        return iter(())  # nothing to check names against before there is a snapshot

    def collect(self) -> Iterator[Metric]:
        yield self._phases()
        yield from self._pools()
        kept = GaugeMetricFamily(
            "wattkeeper_kept_objects", "Objects of which a trimmed copy is kept, by kind.", labels=["kind"]
        )
        snapshot = self._snapshot
        for kind, count in (
            ("LLMDeployment", len(snapshot.claims)),
            ("GPUNodePool", len(snapshot.pools)),
            ("Node", len(snapshot.nodes)),
            ("Pod", len(snapshot.pods)),
            ("Deployment", len(snapshot.children)),
            ("Service", len(snapshot.services)),
        ):
            kept.add_metric([kind], count)
        yield kept
        yield GaugeMetricFamily(
            "wattkeeper_workqueue_length",
            "LLMDeployments that wait to be reconciled.",
            value=self._queue_length(),
        )

    def _phases(self) -> Metric:
        family = GaugeMetricFamily(
            "wattkeeper_llmdeployments",
            "LLMDeployments by namespace and phase.",
            labels=["namespace", "phase"],
        )
        tally = Tally((claim.key.namespace, claim.phase) for claim in self._snapshot.claims)
        for labels, count in tally.items():
            family.add_metric(labels, count)
        return family

    def _pools(self) -> Iterator[Metric]:
        gpus = GaugeMetricFamily("wattkeeper_pool_gpus", "GPUs that a pool's nodes offer.", labels=["pool"])
        free = GaugeMetricFamily(
            "wattkeeper_pool_free_gpus",
            "GPUs on schedulable nodes of a pool that no pod holds.",
            labels=["pool"],
        )
        for pool in self._snapshot.built_pools():
            gpus.add_metric([pool.name], sum(node.gpus_allocatable for node in pool.nodes))
            free.add_metric([pool.name], sum(node.gpus_free for node in pool.nodes))
        yield from (gpus, free)
