"""One reading for each model server, from rows that engines split by rank and scrapes repeat.

Rows of one scrape add up as `engines` says. Scrapes of one address by two jobs are the same server: the newer
counts. Several addresses in one pod are several servers: they add up, and what one of them doesn't tell is
unknown of the pod.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wattkeeper.core.readings import ItlBasis, Sample, ServerReading
from wattkeeper.telemetry.cluster import ClusterView, is_ip_address
from wattkeeper.telemetry.engines import Alternatives, Engine, Term, names_of_engines
from wattkeeper.telemetry.labels import first, host_of
from wattkeeper.telemetry.series import FaultKind, Faults, Series

_POD = ("pod", "kubernetes_pod_name", "pod_name")
_NAMESPACE = ("namespace", "kubernetes_namespace", "pod_namespace")
_MODEL = ("model_name", "model", "served_model_name")
_NODE = ("node", "nodename", "kubernetes_node")

PodKey = tuple[str, str]  # namespace, pod


@dataclass(slots=True)
class _Scrape:
    """The rows of one address by one job."""

    rows: dict[str, list[Series]] = field(default_factory=lambda: defaultdict(list))  # by metric

    def latest(self, metric: str) -> list[Series]:
        """The rows of the metric's newest scrape; those of series that ended are older."""
        rows = self.rows.get(metric, [])
        at = max((row.sample.measured_at for row in rows), default=0.0)
        return [row for row in rows if row.sample.measured_at == at]

    @property
    def measured_at(self) -> float:
        return max(row.sample.measured_at for rows in self.rows.values() for row in rows)


def attribute_servers(
    series: Iterable[Series], engines: Sequence[Engine], cluster: ClusterView | None, faults: Faults
) -> dict[PodKey, tuple[ServerReading, ...]]:
    """By pod: a reading for each engine whose metrics it shows. Metrics of no engine are passed over."""
    wanted = names_of_engines(engines)
    scrapes: dict[PodKey, dict[tuple[str, str], _Scrape]] = defaultdict(lambda: defaultdict(_Scrape))
    for row in series:
        if row.name in wanted:
            key = _server_of(row, cluster, faults)
            if key is not None:
                target = (row.labels.get("instance", ""), row.labels.get("job", ""))
                scrapes[key][target].rows[row.name].append(row)
    readings = {}
    for key in sorted(scrapes):
        found = [_reading(key, engine, scrapes[key], faults) for engine in engines]
        readings[key] = tuple(reading for reading in found if reading is not None)
    return readings


def _server_of(row: Series, cluster: ClusterView | None, faults: Faults) -> PodKey | None:
    """The pod that a row is of: by labels that Prometheus attached, else by the address that was scraped."""
    host = host_of(row.labels.get("instance", ""))
    name, namespace = first(row.labels, _POD), first(row.labels, _NAMESPACE)
    if name and namespace:
        doubt = _doubt((namespace, name), row, host, cluster) if cluster is not None else None
        if doubt is not None:
            faults.note(doubt, f"{row.name} of {namespace}/{name} at {host or 'no address'}")
            return None
        return (namespace, name)
    pod = cluster.pod_at(host) if cluster is not None and is_ip_address(host) else None
    if pod is None:
        where = row.labels.get("instance") or "no address"
        faults.note(FaultKind.NO_SERVER_IDENTITY, f"{row.name} at {where} names neither pod nor namespace")
        return None
    return (pod.namespace, pod.name)


def _doubt(key: PodKey, row: Series, host: str, cluster: ClusterView) -> FaultKind | None:
    """Why a row isn't of the cluster's pod of that name."""
    known = cluster.pod(*key)
    if known is None:
        return FaultKind.UNKNOWN_POD
    node = first(row.labels, _NODE)
    if node and known.node and cluster.node_called(node) != known.node:
        return FaultKind.FOREIGN_CLUSTER
    if known.ended or not known.may_be_at(host):
        return FaultKind.STALE_POD  # or that of another cluster, with a pod of the same name
    return None


def _reading(
    key: PodKey, engine: Engine, scrapes: Mapping[tuple[str, str], _Scrape], faults: Faults
) -> ServerReading | None:
    names = engine.names
    of_engine = {target: scrape for target, scrape in scrapes.items() if names & set(scrape.rows)}
    if not of_engine:
        return None
    servers: dict[str, tuple[str, _Scrape]] = {}  # by address, with the job that scraped it last
    for (instance, job), scrape in sorted(of_engine.items()):
        before = servers.get(instance)
        if before is None or scrape.measured_at > before[1].measured_at:
            servers[instance] = (job, scrape)
    chosen = [scrape for _, scrape in servers.values()]
    values = {
        name: _add([_value(alternatives, scrape, faults) for scrape in chosen])
        for name, alternatives in (*engine.gauges.items(), *engine.counters.items())
    }
    running, waiting = values.get("running"), values.get("waiting")
    if running is not None and running.value == 0 and waiting is None and _shows("waiting", engine, chosen):
        # Told of, and unreadable: without it nothing running doesn't mean nothing to do.
        values["running"] = None
    if (asleep := values.get("asleep")) is not None:
        # Of several servers in a pod one that is awake keeps it so; each says 0 or 1.
        values["asleep"] = Sample(float(asleep.value >= len(chosen)), asleep.measured_at, asleep.since)
    itl_sum, itl_count, basis = _latency(engine, chosen, faults)
    models = {first(row.labels, _MODEL) for scrape in chosen for rows in scrape.rows.values() for row in rows}
    notes = () if len(of_engine) == len(servers) else (f"{len(of_engine)} jobs scrape it",)
    return ServerReading(
        namespace=key[0],
        pod=key[1],
        engine=engine.name,
        model=", ".join(sorted(models - {""})),
        instance=min(servers),
        itl_seconds_sum=itl_sum,
        itl_count=itl_count,
        itl_basis=basis,
        notes=notes,
        **values,
    )


def _shows(gauge: str, engine: Engine, scrapes: Sequence[_Scrape]) -> bool:
    """Whether there is any row of a gauge, readable or not."""
    terms = [term for terms in engine.gauges.get(gauge, ()) for term in terms]
    return any(_rows_of(term, scrape) for term in terms for scrape in scrapes)


def _latency(
    engine: Engine, scrapes: Sequence[_Scrape], faults: Faults
) -> tuple[Sample | None, Sample | None, ItlBasis | None]:
    for latency in engine.latencies:
        total = _add([_value(((latency.sum,),), scrape, faults) for scrape in scrapes])
        count = _add([_value(((latency.count,),), scrape, faults) for scrape in scrapes])
        if total is not None and count is not None and total.measured_at == count.measured_at:
            return total, count, latency.basis
    return None, None, None


def _value(alternatives: Alternatives, scrape: _Scrape, faults: Faults) -> Sample | None:
    for terms in alternatives:
        found = [rows for term in terms if (rows := _rows_of(term, scrape))]
        if found:
            present = [term for term in terms if _rows_of(term, scrape)]
            return _add([_term(term, rows, faults) for term, rows in zip(present, found, strict=True)])
    return None


def _rows_of(term: Term, scrape: _Scrape) -> list[Series]:
    rows = scrape.latest(term.metric)
    if not term.only:
        return rows
    return [
        row for row in rows if all(row.labels.get(label, "") in values for label, values in term.only.items())
    ]


def _term(term: Term, rows: Sequence[Series], faults: Faults) -> Sample | None:
    groups: dict[frozenset[tuple[str, str]], Sample] = {}
    for row in rows:
        if not 0 <= row.sample.value < float("inf"):  # false for NaN too
            kind = FaultKind.OUT_OF_RANGE if row.sample.value < 0 else FaultKind.NOT_A_NUMBER
            faults.note(kind, f"{row.name} is {row.sample.value}")
            return None
        key = frozenset((name, value) for name, value in row.labels.items() if name not in term.copies)
        before = groups.get(key)
        if before is None or _order(row.sample) > _order(before):
            groups[key] = row.sample
    total = _add(list(groups.values()))
    if total is not None and term.negated:
        return Sample(float(total.value == 0), total.measured_at, total.since)
    return total


def _order(sample: Sample) -> tuple[float, float]:
    return (sample.value, sample.changed_at)


def _add(parts: Sequence[Sample | None]) -> Sample | None:
    """The sum, as old as its oldest part; unknown where a part is. It stands since its last part moved."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    since = [part.since for part in known]
    return Sample(
        sum(sorted(part.value for part in known)),
        min(part.measured_at for part in known),
        None if None in since else max(each for each in since if each is not None),
    )
