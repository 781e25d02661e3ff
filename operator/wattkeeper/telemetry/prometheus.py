"""Telemetry through Prometheus: the same few queries whatever the size of the cluster.

A query is a range selector evaluated at `time=`: it gives raw samples with their own timestamps, so that each
value carries when it was measured. (An instant selector gives values up to five minutes old, all dated now.)
One query is made for each quantity of GPUs, and one for each kind of metric of all engines together.

Samples that lie ahead of our clock aren't seen at `time=now`, and what is seen then is older than it looks:
Prometheus' clock is ahead of ours. So one more query asks whether there are any.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from wattkeeper.core.readings import Sample
from wattkeeper.telemetry.attribution import gpu_rows
from wattkeeper.telemetry.cluster import ClusterView
from wattkeeper.telemetry.engines import ENGINES, Engine
from wattkeeper.telemetry.errors import ClockSkewError, MalformedAnswerError, TooSlowError
from wattkeeper.telemetry.labels import LabelReader
from wattkeeper.telemetry.names import ESSENTIAL, QUANTITIES, names_of
from wattkeeper.telemetry.promql import PrometheusOptions, PromQl
from wattkeeper.telemetry.series import Series
from wattkeeper.telemetry.source import Rows, Telemetry, telemetry_of

_DAY_SECONDS = 86_400
_UUID = re.compile(r"[A-Za-z0-9._-]+")
_MOST_UUIDS = 50  # more would make the address too long for proxies: then all GPUs' are asked for


class PrometheusSource:
    """A TelemetrySource over one Prometheus. Queries run in a thread of their own, one after another."""

    def __init__(self, options: PrometheusOptions) -> None:
        self.options = options
        self._lock = asyncio.Lock()
        self._start_over()

    def _start_over(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="prometheus")
        self._client = PromQl(self.options)

    async def read(
        self, now: float, cluster: ClusterView | None, engines: Sequence[Engine] = ENGINES
    ) -> Telemetry:
        telemetry: Telemetry = await self._in_thread(self._look, now, cluster, tuple(engines))
        return telemetry

    async def power_history(
        self, uuids: Collection[str], start: float, end: float
    ) -> dict[str, tuple[Sample, ...]]:
        wanted = frozenset(uuid for uuid in uuids if _UUID.fullmatch(uuid))
        if not wanted or end <= start:
            return {}
        result: dict[str, tuple[Sample, ...]] = await self._in_thread(self._history, wanted, start, end)
        return result

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def queries(self, engines: Sequence[Engine] = ENGINES) -> tuple[str, ...]:
        """All queries of one look, but for the one on clocks."""
        return (*self._gpu_queries(), *self._server_queries(engines))

    def _gpu_queries(self) -> list[str]:
        return [self._select(names_of(field), self.options.window_seconds) for field in ESSENTIAL]

    def _server_queries(self, engines: Sequence[Engine]) -> list[str]:
        kinds = (
            frozenset[str]().union(*(engine.gauge_names for engine in engines)),
            frozenset[str]().union(*(engine.counter_names for engine in engines)),
            frozenset[str]().union(*(engine.latency_names for engine in engines)),
        )
        # llama.cpp's latency is made of counters that are asked for already.
        latencies = kinds[2] - kinds[1]
        return [
            self._select(sorted(names), self.options.window_seconds)
            for names in (kinds[0], kinds[1], latencies)
            if names
        ]

    def _select(self, names: Iterable[str], window_seconds: int, **labels: str) -> str:
        matchers = [f'__name__=~"{"|".join(names)}"']
        matchers += [f"{label}={_quoted(value)}" for label, value in sorted(self.options.selector.items())]
        matchers += [f"{label}=~{_quoted(value)}" for label, value in labels.items()]
        return f"{{{','.join(matchers)}}}[{window_seconds}s]"

    async def _in_thread(self, work: Any, *args: Any) -> Any:
        async with self._lock:
            loop = asyncio.get_running_loop()
            seconds = self.options.look_timeout_seconds
            deadline = time.monotonic() + seconds
            try:
                # Queries bound themselves; a little later the thread itself is given up.
                async with asyncio.timeout(seconds + 1):
                    return await loop.run_in_executor(self._executor, work, deadline, *args)
            except (TimeoutError, asyncio.CancelledError) as error:
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._start_over()
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise TooSlowError(f"Prometheus took longer than {seconds:g} s in all") from error

    def _look(
        self, deadline: float, now: float, cluster: ClusterView | None, engines: Sequence[Engine]
    ) -> Telemetry:
        if self.options.check_future:
            self._check_clock(deadline, now)
        reader = LabelReader()
        rows = Rows()
        for query in self._gpu_queries():
            found = map(_latest, self._client.query(query, now, deadline))
            rows.gpus.extend(gpu_rows((each for each in found if each is not None), reader, rows.faults))
        for query in self._server_queries(engines):
            found = map(_latest, self._client.query(query, now, deadline))
            rows.servers.extend(each for each in found if each is not None)
        return telemetry_of(rows, engines, cluster, now)

    def _check_clock(self, deadline: float, now: float) -> None:
        """Raises ClockSkewError where any sample of the coming day is there already."""
        ahead = self.options.max_ahead_seconds
        names = (*names_of("power_watts"), *sorted(set().union(*(each.gauge_names for each in ENGINES))))
        query = f"count(last_over_time({self._select(names, _DAY_SECONDS)}))"
        found = self._client.query(query, now + ahead + _DAY_SECONDS, deadline)
        if found:
            raise ClockSkewError(
                f"Prometheus has samples more than {ahead:g} s later than our clock: set both clocks by NTP"
            )

    def _history(
        self, deadline: float, uuids: frozenset[str], start: float, end: float
    ) -> dict[str, tuple[Sample, ...]]:
        names = names_of("power_watts")
        seconds = math.ceil(end - start)
        if len(uuids) > _MOST_UUIDS:
            queries = [self._select(names, seconds)]
        else:
            pattern = "|".join(sorted(re.escape(uuid).replace("\\-", "-") for uuid in uuids))
            queries = [self._select(names, seconds, **{label: pattern}) for label in ("UUID", "uuid")]
        watts: dict[str, dict[float, float]] = {}
        for query in queries:
            for item in self._client.query(query, end, deadline):
                labels = _labels(item)
                uuid = labels.get("UUID") or labels.get("uuid", "")
                if uuid in uuids:
                    of_gpu = watts.setdefault(uuid, {})
                    _add_watts(of_gpu, labels["__name__"], _points(item), start)
        return {
            uuid: tuple(Sample(value, at) for at, value in sorted(points.items()))
            for uuid, points in watts.items()
            if points
        }


def _add_watts(
    kept: dict[float, float], name: str, points: Iterable[tuple[float, float]], start: float
) -> None:
    """Rows of one GPU repeat each other: the highest of each scrape counts."""
    for at, value in points:
        watts = QUANTITIES[name].read(value)
        if isinstance(watts, float) and at >= start:
            kept[at] = max(watts, kept.get(at, watts))


def _latest(item: Mapping[str, Any]) -> Series | None:
    """The newest sample of one series of an answer, and since when it has read the same."""
    labels = _labels(item)
    values = item.get("values")
    if not values:  # native histograms have none
        return None
    try:
        at, text = values[-1]
        since = at
        for earlier, earlier_text in reversed(values[:-1]):
            if earlier_text != text:
                break
            since = earlier
        sample = Sample(float(text), float(at), float(since) if len(values) > 1 else None)
        return Series(labels["__name__"], labels, sample)
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedAnswerError(f"a sample that isn't one: {str(values)[:100]}") from error


def _points(item: Mapping[str, Any]) -> list[tuple[float, float]]:
    try:
        return [(float(at), float(text)) for at, text in item.get("values", ())]
    except (ValueError, TypeError) as error:
        raise MalformedAnswerError(f"samples that aren't: {str(item.get('values'))[:100]}") from error


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    labels = item.get("metric") if isinstance(item, dict) else None
    if not isinstance(labels, dict) or "__name__" not in labels:
        raise MalformedAnswerError(f"a series without a name: {str(item)[:100]}")
    return labels


def _quoted(value: str) -> str:
    """A PromQL string; its escapes are those of JSON."""
    return json.dumps(value, ensure_ascii=False)
