"""Telemetry without Prometheus: the pages of dcgm-exporter and of model servers, fetched by ourselves.

The fallback: a page tells only of now, so how long a value has stood isn't known, and what happens between
two looks shows only in counters. Pages that can't be had are faults of one target each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from wattkeeper.core.readings import Sample
from wattkeeper.telemetry.attribution import gpu_rows
from wattkeeper.telemetry.cluster import ClusterView
from wattkeeper.telemetry.engines import ENGINES, Engine, names_of_engines
from wattkeeper.telemetry.errors import TooSlowError, UnreachableError
from wattkeeper.telemetry.exposition import ExpositionError, parse
from wattkeeper.telemetry.labels import LabelReader
from wattkeeper.telemetry.names import is_gpu_metric
from wattkeeper.telemetry.series import FaultKind, Faults, Series
from wattkeeper.telemetry.source import Rows, Telemetry, telemetry_of

_CHUNK_BYTES = 1 << 16
_HEADERS = {"Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1"}


@dataclass(frozen=True, slots=True)
class ExporterTarget:
    """A page of dcgm-exporter, and the node that it runs on."""

    url: str
    node: str


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """A page of a model server, and the pod that it is."""

    url: str
    namespace: str
    pod: str


@dataclass(frozen=True, slots=True)
class ScrapeTargets:
    """All pages of the cluster, as they are now."""

    exporters: tuple[ExporterTarget, ...] = ()
    servers: tuple[ServerTarget, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeOptions:
    """How pages are fetched."""

    target_timeout_seconds: float = 5.0
    look_timeout_seconds: float = 30.0
    most_at_once: int = 64
    max_page_bytes: int = 16 << 20
    history_seconds: float = 3600.0  # how long power is remembered, for the energy of cold starts
    verify_certificates: bool = True


class ScrapeSource:
    """A TelemetrySource over pages. `targets` is called at each look."""

    def __init__(self, targets: Callable[[], ScrapeTargets], options: ScrapeOptions | None = None) -> None:
        self.options = options or ScrapeOptions()
        self._targets = targets
        self._session: aiohttp.ClientSession | None = None
        self._watts: dict[str, deque[Sample]] = defaultdict(deque)

    async def read(
        self, now: float, cluster: ClusterView | None, engines: Sequence[Engine] = ENGINES
    ) -> Telemetry:
        targets, rows = self._targets(), Rows()
        gate = asyncio.Semaphore(self.options.most_at_once)
        labels, names = LabelReader(), names_of_engines(engines)
        failed: set[str] = set()

        async def page_of(target: ExporterTarget | ServerTarget) -> None:
            async with gate:
                try:
                    if isinstance(target, ExporterTarget):
                        place = {"node": target.node} if target.node else {}
                        series = await self._series(target.url, now, place, is_gpu_metric, rows.faults)
                        rows.gpus.extend(gpu_rows(series, labels, rows.faults))
                    else:
                        place = {"namespace": target.namespace, "pod": target.pod}
                        rows.servers += await self._series(
                            target.url, now, place, names.__contains__, rows.faults
                        )
                except (aiohttp.ClientError, ExpositionError, OSError, ValueError, TimeoutError) as error:
                    failed.add(target.url)
                    rows.faults.note(FaultKind.TARGET_FAILED, f"{target.url}: {_reason(error)}")

        every: list[ExporterTarget | ServerTarget] = [*targets.exporters, *targets.servers]
        try:
            async with asyncio.timeout(self.options.look_timeout_seconds):
                await asyncio.gather(*map(page_of, every))
        except TimeoutError as error:
            raise TooSlowError(
                f"{len(every)} pages took longer than {self.options.look_timeout_seconds:g} s in all"
            ) from error
        if targets.exporters and failed.issuperset(target.url for target in targets.exporters):
            fault = next(each for each in rows.faults.found() if each.kind is FaultKind.TARGET_FAILED)
            raise UnreachableError(f"none of {len(targets.exporters)} exporters answers; {fault.example}")
        telemetry = telemetry_of(rows, engines, cluster, now)
        self._remember(telemetry)
        return telemetry

    async def power_history(
        self, uuids: Collection[str], start: float, end: float
    ) -> dict[str, tuple[Sample, ...]]:
        found = {
            uuid: tuple(each for each in self._watts.get(uuid, ()) if start <= each.measured_at <= end)
            for uuid in uuids
        }
        return {uuid: samples for uuid, samples in found.items() if samples}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _remember(self, telemetry: Telemetry) -> None:
        """Watts of every GPU, as far back as the options say; GPUs that are gone are forgotten."""
        oldest = telemetry.taken_at - self.options.history_seconds
        for uuid, gpu in telemetry.gpus.items():
            if gpu.power_watts is not None:
                self._watts[uuid].append(gpu.power_watts)
        for uuid, samples in list(self._watts.items()):
            while samples and samples[0].measured_at < oldest:
                samples.popleft()
            if not samples:
                del self._watts[uuid]

    async def _series(
        self, url: str, now: float, place: dict[str, str], wanted: Callable[[str], bool], faults: Faults
    ) -> list[Series]:
        """The page's series with the target's labels, which win over the page's own."""
        page = parse(await self._fetch(url), now, faults, wanted)
        place = {"instance": urlsplit(url).netloc, **place}
        # One mapping for each label block of the page, as the parser gives them.
        merged = {id(each.labels): {**each.labels, **place} for each in page}
        return [Series(each.name, merged[id(each.labels)], each.sample) for each in page]

    async def _fetch(self, url: str) -> str:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self.options.target_timeout_seconds)
            self._session = aiohttp.ClientSession(timeout=timeout, headers=_HEADERS)
        verify = self.options.verify_certificates
        async with self._session.get(url, allow_redirects=False, ssl=verify) as answer:
            if answer.status != 200:
                raise ExpositionError(f"status {answer.status}")
            body = bytearray()
            async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                body += chunk
                if len(body) > self.options.max_page_bytes:
                    raise ExpositionError(f"more than {self.options.max_page_bytes >> 20} MiB")
        return body.decode("utf-8", errors="replace")


def _reason(error: BaseException) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
