"""The activator's metrics, names with units: one registry a process, one set of children a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wattkeeper.core.activation import ModelKey, Standing
from wattkeeper.core.refusals import Why

_MODEL = ["namespace", "model"]
_COLD_SECONDS = (1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800)
_HELD_SECONDS = (0.01, 0.1, 0.5, *_COLD_SECONDS)


class Outcome(StrEnum):
    """How a request ended."""

    FORWARDED = "forwarded"  # its pod's answer was passed on whole
    QUIET = "quiet"  # a probe or listing, answered here
    REFUSED = "refused"
    FAILED = "failed"  # the pod, or this process, failed it
    ABANDONED = "abandoned"  # the client left


class ModelMetrics:
    """One model's children, so that labels are looked up once."""

    def __init__(self, metrics: Metrics, model: ModelKey) -> None:
        labels = (model.namespace, model.name)
        self.outcomes = {outcome: metrics.requests.labels(*labels, outcome.value) for outcome in Outcome}
        self.cold_start_seconds = metrics.cold_start_seconds.labels(*labels)
        self.held_seconds = metrics.held_seconds.labels(*labels)
        self.connect_failures = metrics.connect_failures.labels(*labels)
        self.demand_failed = metrics.demand_failures.labels(*labels)


class Metrics:
    """All instruments."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = Counter(
            "wattkeeper_activator_requests_total",
            "Requests that ended, by how.",
            [*_MODEL, "outcome"],
            registry=self.registry,
        )
        self.rejected = Counter(
            "wattkeeper_activator_rejected_requests_total",
            "Requests that weren't answered by their model, by reason; model is empty where none is known.",
            [*_MODEL, "reason"],
            registry=self.registry,
        )
        self.cold_start_seconds = Histogram(
            "wattkeeper_activator_cold_start_seconds",
            "From the first request that found a model parked to a pod that took it.",
            _MODEL,
            buckets=_COLD_SECONDS,
            registry=self.registry,
        )
        self.held_seconds = Histogram(
            "wattkeeper_activator_held_seconds",
            "How long requests waited that couldn't be forwarded at once.",
            _MODEL,
            buckets=_HELD_SECONDS,
            registry=self.registry,
        )
        self.connect_failures = Counter(
            "wattkeeper_activator_connect_failures_total",
            "Pods that couldn't be connected to; another one was tried, or the request waited.",
            _MODEL,
            registry=self.registry,
        )
        self.demand_failures = Counter(
            "wattkeeper_activator_demand_failures_total",
            "Signals of demand that didn't reach the leader; each is repeated.",
            _MODEL,
            registry=self.registry,
        )
        self.report_failures = Counter(
            "wattkeeper_activator_report_failures_total",
            "Reports that didn't reach the leader; each is repeated.",
            registry=self.registry,
        )
        self.listen_failures = Counter(
            "wattkeeper_activator_listen_failures_total",
            "Models' ports that couldn't be listened on; each is tried again.",
            registry=self.registry,
        )
        self.connections = Gauge(
            "wattkeeper_activator_connections", "Clients' connections.", registry=self.registry
        )

    def of(self, model: ModelKey) -> ModelMetrics:
        return ModelMetrics(self, model)

    def reject(self, model: ModelKey | None, why: Why) -> None:
        names = (model.namespace, model.name) if model is not None else ("", "")
        self.rejected.labels(*names, why.code).inc()

    def forget(self, model: ModelKey) -> None:
        """Drop the series of a model that is gone."""
        labels = (model.namespace, model.name)
        for outcome in Outcome:
            self.requests.remove(*labels, outcome.value)
        for why in Why:
            self.rejected.remove(*labels, why.code)
        for instrument in (
            self.cold_start_seconds,
            self.held_seconds,
            self.connect_failures,
            self.demand_failures,
        ):
            instrument.remove(*labels)

    def watch(self, standings: Callable[[], Sequence[Standing]]) -> None:
        """Also show how every model stands, computed when it is scraped."""
        self.registry.register(_StandingCollector(standings))


class _StandingCollector(Collector):
    def __init__(self, standings: Callable[[], Sequence[Standing]]) -> None:
        self._standings = standings

    def describe(self) -> Iterator[Metric]:
        return iter(())  # nothing to check names against before there is a table

    def collect(self) -> Iterator[Metric]:
        held = _family("held_requests", "Requests that wait for a model.")
        held_bytes = _family("held_bytes", "Heads and bodies of requests that wait.")
        in_flight = _family("in_flight_requests", "Requests that are forwarded and not finished.")
        mode = GaugeMetricFamily(
            "wattkeeper_activator_mode",
            "1 for what is done with a model's requests.",
            labels=[*_MODEL, "mode"],
        )
        epoch = _family("epoch", "The attempt at parking that the model's route is of.")
        for standing in self._standings():
            labels = [standing.model.namespace, standing.model.name]
            held.add_metric(labels, standing.held.requests)
            held_bytes.add_metric(labels, standing.held.size_bytes)
            in_flight.add_metric(labels, standing.in_flight)
            epoch.add_metric(labels, standing.epoch)
            mode.add_metric([*labels, standing.mode.value], 1)
        yield from (held, held_bytes, in_flight, epoch, mode)


def _family(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"wattkeeper_activator_{name}", documentation, labels=_MODEL)
