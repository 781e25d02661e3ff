"""Telemetry through a real Prometheus, sound and failing."""

from __future__ import annotations

import asyncio
import math
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prometheus.fixtures import PrometheusFactory
from tests.prometheus.remote_write import RemoteWriter
from tests.prometheus.server import PrometheusServer
from tests.telemetry.fleet import MIB, T0, Fleet
from tests.unit.telemetry.pages import shown
from wattkeeper.core.readings import GpuReading, Sample
from wattkeeper.core.witnesses import IdlenessLimits
from wattkeeper.telemetry.attribution import attribute, gpu_rows
from wattkeeper.telemetry.cluster import ClusterView, KnownNode
from wattkeeper.telemetry.engines import ENGINES, CustomMetrics, custom_engine
from wattkeeper.telemetry.errors import (
    AmbiguousClusterError,
    ClockSkewError,
    NoGpuMetricsError,
    PartialAnswerError,
    StaleError,
    TelemetryError,
    TooSlowError,
    UnreachableError,
    WrongClusterError,
)
from wattkeeper.telemetry.exposition import parse
from wattkeeper.telemetry.labels import LabelReader
from wattkeeper.telemetry.names import ESSENTIAL, QUANTITIES
from wattkeeper.telemetry.series import FaultKind, Faults
from wattkeeper.telemetry.source import MAX_AGE_SECONDS, Telemetry


@pytest.fixture
def writer(prometheus: PrometheusServer) -> Iterator[RemoteWriter]:
    writer = RemoteWriter(prometheus.url)
    yield writer
    writer.close()


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """A fleet of this test alone in the shared Prometheus."""
    return Fleet(re.sub(r"\W", "_", request.node.name))


async def read(
    fleet: Fleet,
    prometheus: PrometheusServer,
    now: float,
    cluster: ClusterView | None = None,
    **options: object,
) -> Telemetry:
    source = fleet.source(prometheus, **options)
    try:
        return await source.read(now, cluster or fleet.cluster())
    finally:
        await source.close()


def queries_served(prometheus: PrometheusServer) -> int:
    with urllib.request.urlopen(f"{prometheus.url}/metrics") as answer:
        page = answer.read().decode()
    found = re.search(r'prometheus_http_requests_total\{code="200",handler="/api/v1/query"\} (\d+)', page)
    return int(found[1]) if found else 0


class TestWhatIsThere:
    async def test_each_value_carries_when_it_was_measured(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        for step, watts in enumerate((300.0, 121.5, 121.5, 121.5)):
            at = T0 + 15 * step
            fleet.write(writer, at, gpu={"DCGM_FI_DEV_POWER_USAGE": watts})
        telemetry = await read(fleet, prometheus, T0 + 52.5)
        gpu = telemetry.gpus[fleet.uuid()]
        assert gpu.power_watts == Sample(121.5, T0 + 45, T0 + 15)
        assert shown(gpu) == {
            "node": "node-0",
            "index": "0",
            "model_name": "NVIDIA H100 80GB HBM3",
            "power_watts": 121.5,
            "energy_joules": pytest.approx((1e6 + 45) * 121.5),
            "gpu_util_ratio": 0.0,
            "engine_active_ratio": 0.0,
            "memory_used_bytes": 60_000.0 * MIB,
            "sm_clock_mhz": 1980.0,
            "holders": gpu.holders,
        }
        assert telemetry.gpus_of("team", "llm-0") == (gpu,)
        server = telemetry.server_of("team", "llm-0")
        assert server is not None
        assert server.running == Sample(0.0, T0 + 45, T0)
        assert server.prompt_tokens_total == Sample(1000.0, T0 + 45, T0)
        assert telemetry.faults == () and telemetry.silent_nodes == ()

    async def test_it_looks_at_the_time_it_is_told_not_at_now(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        for step in range(9):
            fleet.write(writer, T0 + 30 * step, gpu={"DCGM_FI_DEV_POWER_USAGE": 100.0 + step})
        for step in (2, 5, 8):
            telemetry = await read(fleet, prometheus, T0 + 30 * step + 1, check_future=False)
            assert telemetry.gpus[fleet.uuid()].power_watts == Sample(
                100.0 + step, T0 + 30 * step, T0 + 30 * step
            )

    async def test_a_sample_of_this_very_moment_is_seen(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        fleet.write(writer, T0)
        telemetry = await read(fleet, prometheus, T0)
        assert telemetry.gpus[fleet.uuid()].power_watts == Sample(121.5, T0)

    async def test_the_number_of_queries_does_not_grow_with_the_fleet(
        self, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        counts = []
        for gpus in (1, 64):
            fleet = Fleet(f"queries-{gpus}", gpus)
            fleet.write(writer, T0)
            before = queries_served(prometheus)
            telemetry = await read(fleet, prometheus, T0 + 1)
            counts.append(queries_served(prometheus) - before)
            assert len(telemetry.gpus) == len(telemetry.servers) == gpus
        assert counts == [11, 11]

    async def test_a_custom_engine_by_the_names_of_its_metrics(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        fleet.write(writer, T0)
        rows = {"mine_in_flight": 2.0, "mine_requests": 7.0}
        writer.write(
            [({"__name__": name} | fleet.server_labels(0), [(T0, value)]) for name, value in rows.items()]
        )
        engine = custom_engine(
            "mine", CustomMetrics(running="mine_in_flight", requests_total="mine_requests")
        )
        source = fleet.source(prometheus)
        telemetry = await source.read(T0, fleet.cluster(), (*ENGINES, engine))
        await source.close()
        server = telemetry.server_of("team", "llm-0", "mine")
        assert server is not None and server.running == Sample(2.0, T0)
        assert server.requests_total == Sample(7.0, T0)

    async def test_power_over_a_span_for_the_energy_of_a_cold_start(
        self, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        fleet = Fleet("history", gpus=3)
        for step in range(20):
            fleet.write(writer, T0 + 15 * step, gpu={"DCGM_FI_DEV_POWER_USAGE": 70.0 + step})
        source = fleet.source(prometheus)
        history = await source.power_history(
            [fleet.uuid(0), fleet.uuid(2), "GPU-unknown", 'x"}'], T0 + 60, T0 + 120
        )
        expected = tuple(Sample(70.0 + step, T0 + 15 * step) for step in range(4, 9))
        assert history == {fleet.uuid(0): expected, fleet.uuid(2): expected}
        everything = await source.power_history([f"GPU-{i:08d}" for i in range(60)], T0 + 60, T0 + 120)
        assert everything == {fleet.uuid(i): expected for i in range(3)}
        assert await source.power_history([], T0, T0 + 60) == {}
        await source.close()


@pytest.mark.data
async def test_every_published_sample_comes_through_as_it_was_written(
    prometheus: PrometheusServer, writer: RemoteWriter, data_dir: Path
) -> None:
    """As scraped with honor_labels: false by a target that has labels of its own."""
    for number, path in enumerate(sorted((data_dir / "telemetry").glob("*.prom"))):
        page = path.read_text()
        fleet = Fleet(path.stem)
        target = {"instance": f"10.2.0.{number}:9400", "job": "dcgm", "test": fleet.name}
        exporter = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-abcde", "container": "exporter"}
        writer.write_page(page, T0, target | exporter)
        faults = Faults()
        rows = gpu_rows(parse(page, T0, faults), LabelReader(), faults)
        readings = attribute(rows, None, faults)
        direct = {uuid: decisive(reading) for uuid, reading in readings.items()}
        direct = {uuid: known for uuid, known in direct.items() if known.keys() & set(ESSENTIAL)}
        if not direct:
            continue
        source = fleet.source(prometheus)
        through = await source.read(T0, None)
        await source.close()
        assert {uuid: decisive(reading) for uuid, reading in through.gpus.items()} == direct, path.name


def decisive(reading: GpuReading) -> dict[str, object]:
    """What is known of a GPU, but for the fields that decisions don't rest on: those aren't asked for."""
    fields = {quantity.field for quantity in QUANTITIES.values()} - set(ESSENTIAL)
    return {key: value for key, value in shown(reading).items() if key not in fields}


class TestFaults:
    async def test_down_and_up_again(self, prometheus_factory: PrometheusFactory) -> None:
        server, fleet = prometheus_factory(), Fleet("down")
        fleet.write(RemoteWriter(server.url), T0)
        source = fleet.source(server)
        assert len((await source.read(T0, fleet.cluster())).gpus) == 1
        server.stop()
        with pytest.raises(UnreachableError, match="refused"):
            await source.read(T0, fleet.cluster())
        server.start()
        assert len((await source.read(T0, fleet.cluster())).gpus) == 1
        await source.close()

    async def test_paused_and_running_again(self, prometheus_factory: PrometheusFactory) -> None:
        server, fleet = prometheus_factory(), Fleet("paused")
        fleet.write(RemoteWriter(server.url), T0)
        source = fleet.source(server, query_timeout_seconds=0.5, look_timeout_seconds=2.0)
        assert len((await source.read(T0, fleet.cluster())).gpus) == 1
        server.pause()
        async with asyncio.timeout(30):
            with pytest.raises(TooSlowError, match="longer than"):
                await source.read(T0, fleet.cluster())
        server.resume()
        assert len((await source.read(T0, fleet.cluster())).gpus) == 1
        await source.close()

    async def test_a_look_that_is_cancelled_leaves_the_next_one_free(
        self, prometheus_factory: PrometheusFactory
    ) -> None:
        server, fleet = prometheus_factory(), Fleet("cancelled")
        fleet.write(RemoteWriter(server.url), T0)
        source = fleet.source(server, query_timeout_seconds=5.0)
        server.pause()
        look = asyncio.create_task(source.read(T0, fleet.cluster()))
        await asyncio.sleep(0.2)
        look.cancel()
        with pytest.raises(asyncio.CancelledError):
            await look
        server.resume()
        assert len((await source.read(T0, fleet.cluster())).gpus) == 1
        await source.close()

    async def test_partial_data_is_no_data(self, prometheus_factory: PrometheusFactory) -> None:
        config = "remote_read: [{url: 'http://127.0.0.1:9/read', read_recent: true}]\n"
        server, fleet = prometheus_factory(config), Fleet("partial")
        fleet.write(RemoteWriter(server.url), T0)
        with pytest.raises(PartialAnswerError, match="remote_read"):
            await read(fleet, server, T0)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    async def test_a_value_that_is_no_number_is_unknown(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter, value: float
    ) -> None:
        fleet.write(writer, T0)
        bad = {"DCGM_FI_DEV_GPU_UTIL": value, "DCGM_FI_DEV_POWER_USAGE": value}
        fleet.write(writer, T0 + 15, gpu=bad, server={"vllm:num_requests_running": value})
        telemetry = await read(fleet, prometheus, T0 + 16)
        gpu, server = telemetry.gpus[fleet.uuid()], telemetry.server_of("team", "llm-0")
        assert gpu.gpu_util_ratio is None and gpu.power_watts is None
        assert gpu.memory_used_bytes is not None
        assert server is not None and server.running is None and server.waiting is not None
        assert {fault.kind: fault.count for fault in telemetry.faults} == {FaultKind.NOT_A_NUMBER: 3}

    async def test_scraping_stopped(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        fleet.write(writer, T0)
        source = fleet.source(prometheus)
        telemetry = await source.read(T0 + MAX_AGE_SECONDS, fleet.cluster())
        assert telemetry.gpus[fleet.uuid()].power_watts == Sample(121.5, T0)
        with pytest.raises(StaleError, match="91 s old"):
            await source.read(T0 + MAX_AGE_SECONDS + 1, fleet.cluster())
        with pytest.raises(NoGpuMetricsError):
            await source.read(T0 + 600, fleet.cluster())
        fleet.write(writer, T0 + 615)
        assert len((await source.read(T0 + 616, fleet.cluster())).gpus) == 1
        await source.close()

    async def test_one_gpus_series_stopped_and_the_core_knows_how_old_they_are(
        self, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        whole, half = Fleet("half", gpus=16), Fleet("half", gpus=8)
        whole.write(writer, T0)
        for step in range(1, 8):
            half.write(writer, T0 + 15 * step)
        telemetry = await read(whole, prometheus, T0 + 106)
        fresh, old = (telemetry.gpus[whole.uuid(i)].power_watts for i in (0, 15))
        limits = IdlenessLimits()
        assert limits.fresh(fresh, T0 + 106) == fresh and limits.fresh(old, T0 + 106) is None
        later = await read(whole, prometheus, T0 + 106, window_seconds=60)
        assert len(later.gpus) == 8 and later.silent_nodes == ("node-1",)

    async def test_its_clock_is_ahead_of_ours(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        """What it stamps with our now it measured earlier: the past would pass for the present."""
        for step in range(8):
            fleet.write(writer, T0 + 15 * step)
        for behind in (15, 60, 3600, 80_000):
            with pytest.raises(ClockSkewError, match="later than our clock"):
                await read(fleet, prometheus, T0 + 105 - behind)
        assert len((await read(fleet, prometheus, T0 + 101)).gpus) == 1  # within tolerance

    async def test_its_clock_is_behind_ours(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        fleet.write(writer, T0 - 100)
        with pytest.raises(StaleError, match="clock is behind"):
            await read(fleet, prometheus, T0)

    async def test_time_zones_make_no_difference(
        self, prometheus_factory: PrometheusFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet, readings = Fleet("zone"), []
        for theirs, ours in (("UTC", "America/St_Johns"), ("Asia/Kolkata", "UTC")):
            server = prometheus_factory(environment={"TZ": theirs})
            fleet.write(RemoteWriter(server.url), T0)
            monkeypatch.setenv("TZ", ours)
            time.tzset()
            readings.append((await read(fleet, server, T0 + 1)).gpus)
        monkeypatch.undo()
        time.tzset()
        assert readings[0] == readings[1] and len(readings[0]) == 1

    async def test_the_wrong_cluster(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        fleet.write(writer, T0)
        other = ClusterView([KnownNode("elsewhere", ("198.51.100.1",), has_gpus=True)], fleet.cluster().pods)
        with pytest.raises(WrongClusterError, match="node-0"):
            await read(fleet, prometheus, T0, other)

    async def test_two_clusters_in_one_prometheus(
        self, fleet: Fleet, prometheus: PrometheusServer, writer: RemoteWriter
    ) -> None:
        fleet.write(writer, T0, cluster="eu")
        fleet.write(writer, T0, cluster="us", gpu={"DCGM_FI_DEV_GPU_UTIL": 90.0})
        with pytest.raises(AmbiguousClusterError, match="eu, us"):
            await read(fleet, prometheus, T0)
        selector = {"test": fleet.name, "cluster": "us"}
        telemetry = await read(fleet, prometheus, T0, selector=selector)
        assert telemetry.gpus[fleet.uuid()].gpu_util_ratio == Sample(0.9, T0)

    async def test_a_prometheus_without_gpus(self, fleet: Fleet, prometheus: PrometheusServer) -> None:
        with pytest.raises(NoGpuMetricsError, match="dcgm-exporter"):
            await read(fleet, prometheus, T0)
        empty = await read(fleet, prometheus, T0, ClusterView([KnownNode("cpu-only")], []))
        assert empty.gpus == {}

    async def test_every_error_names_its_reason(self) -> None:
        def leaves(kind: type[TelemetryError]) -> list[type[TelemetryError]]:
            below = [leaf for each in kind.__subclasses__() for leaf in leaves(each)]
            return below or [kind]

        reasons = [kind.reason for kind in leaves(TelemetryError)]
        assert len(set(reasons)) == len(reasons) and all(re.fullmatch(r"[A-Z]\w+", each) for each in reasons)
