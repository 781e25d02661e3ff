"""Telemetry from pages, without Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.telemetry.pages import Pages, serving_pages
from tests.unit.telemetry.pages import pods, read_page, shown
from wattkeeper.core.readings import Sample
from wattkeeper.telemetry.cluster import ClusterView, KnownNode, KnownPod
from wattkeeper.telemetry.errors import NoGpuMetricsError, TooSlowError, UnreachableError
from wattkeeper.telemetry.scrape import (
    ExporterTarget,
    ScrapeOptions,
    ScrapeSource,
    ScrapeTargets,
    ServerTarget,
)
from wattkeeper.telemetry.series import FaultKind
from wattkeeper.telemetry.source import TelemetrySource

T0 = 1_700_000_000.0
GPU = 'gpu="0",UUID="GPU-a",device="nvidia0",Hostname="exporter-x",pod="llm-0",namespace="team"'
EXPORTER = f"""# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{{GPU}}} 121.5
DCGM_FI_DEV_GPU_UTIL{{{GPU}}} 0
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{GPU}}} 0
"""
SERVER = """vllm:num_requests_running{engine="0",model_name="m",namespace="app"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m",namespace="app"} 0.0
vllm:generation_tokens_total{engine="0",model_name="m",namespace="app"} 7.0
vllm:e2e_request_latency_seconds_bucket{le="0.3"} nonsense
"""
CLUSTER = ClusterView(
    [KnownNode("node-1", ("127.0.0.1",), has_gpus=True)], [KnownPod("team", "llm-0", "uid-0", "node-1")]
)


@pytest.fixture
def pages() -> Iterator[Pages]:
    with serving_pages() as served:
        served.pages = {"/metrics": EXPORTER, "/server": SERVER}
        yield served


def source_of(pages: Pages, exporters: int = 1, **options: float) -> ScrapeSource:
    targets = ScrapeTargets(
        tuple(
            ExporterTarget(pages.url("/metrics" if i == 0 else f"/metrics{i}"), "node-1")
            for i in range(exporters)
        ),
        (ServerTarget(pages.url("/server"), "team", "llm-0"),),
    )
    return ScrapeSource(lambda: targets, ScrapeOptions(**options))  # type: ignore[arg-type]


async def test_one_look_at_everything(pages: Pages) -> None:
    source: TelemetrySource = source_of(pages)
    telemetry = await source.read(T0, CLUSTER)
    gpu = telemetry.gpus["GPU-a"]
    assert shown(gpu) == {
        "node": "node-1",
        "index": "0",
        "power_watts": 121.5,
        "gpu_util_ratio": 0.0,
        "holders": gpu.holders,
    }
    assert gpu.power_watts == Sample(121.5, T0)
    assert pods(gpu) == [("team", "llm-0")] and telemetry.gpus_of("team", "llm-0") == (gpu,)
    server = telemetry.server_of("team", "llm-0")
    assert server is not None and server.generation_tokens_total == Sample(7.0, T0)
    assert server.instance == pages.address
    assert telemetry.faults == ()
    assert sorted(pages.asked) == ["/metrics", "/server"]
    await source.close()


async def test_what_cant_be_had_is_unknown_and_said(pages: Pages) -> None:
    source = source_of(pages, exporters=2)
    del pages.pages["/server"]
    telemetry = await source.read(T0, CLUSTER)
    assert list(telemetry.gpus) == ["GPU-a"] and telemetry.servers == {}
    assert telemetry.server_of("team", "llm-0") is None
    (fault,) = telemetry.faults
    assert (fault.kind, fault.count) == (FaultKind.TARGET_FAILED, 2)
    assert "status 404" in fault.example and "TargetFailed × 2" in telemetry.summary()
    pages.pages["/server"] = SERVER
    assert (await source.read(T0 + 30, CLUSTER)).server_of("team", "llm-0") is not None
    await source.close()


async def test_a_page_that_was_cut_off_is_no_page(pages: Pages) -> None:
    pages.pages["/metrics1"] = EXPORTER.replace("GPU-a", "GPU-b")[:-3]
    source = source_of(pages, exporters=2)
    telemetry = await source.read(T0, CLUSTER)
    assert list(telemetry.gpus) == ["GPU-a"]
    assert "cut off" in telemetry.faults[0].example
    await source.close()


async def test_no_exporter_answers(pages: Pages) -> None:
    source = source_of(pages)
    del pages.pages["/metrics"]
    with pytest.raises(UnreachableError, match="none of 1 exporters"):
        await source.read(T0, CLUSTER)
    pages.pages["/metrics"] = EXPORTER
    assert len((await source.read(T0 + 30, CLUSTER)).gpus) == 1
    await source.close()


async def test_no_exporter_at_all() -> None:
    source = ScrapeSource(ScrapeTargets)
    with pytest.raises(NoGpuMetricsError):
        await source.read(T0, CLUSTER)
    await source.close()


async def test_an_exporter_that_accepts_and_says_nothing() -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
    targets = ScrapeTargets((ExporterTarget(url, "node-1"),))
    slow = ScrapeSource(lambda: targets, ScrapeOptions(target_timeout_seconds=0.2))
    with pytest.raises(UnreachableError, match="no answer in time"):
        await slow.read(T0, CLUSTER)
    await slow.close()
    many = ScrapeTargets(tuple(ExporterTarget(f"{url}?{i}", "node-1") for i in range(9)))
    options = ScrapeOptions(look_timeout_seconds=0.5, target_timeout_seconds=0.2, most_at_once=1)
    source = ScrapeSource(lambda: many, options)
    with pytest.raises(TooSlowError, match="9 pages"):
        await source.read(T0, CLUSTER)
    await source.close()
    server.close()


async def test_a_page_too_large_to_hold(pages: Pages) -> None:
    pages.pages["/metrics"] += "# padding\n" * 1000
    source = source_of(pages, max_page_bytes=4096)
    with pytest.raises(UnreachableError, match="more than 0 MiB"):
        await source.read(T0, CLUSTER)
    await source.close()


async def test_power_is_remembered_for_as_long_as_wanted(pages: Pages) -> None:
    source = source_of(pages, history_seconds=60)
    for step in range(5):
        pages.pages["/metrics"] = EXPORTER.replace("121.5", str(100.0 + step))
        await source.read(T0 + 30 * step, CLUSTER)
    history = await source.power_history(["GPU-a", "GPU-b"], T0, T0 + 100)
    assert history == {"GPU-a": (Sample(102.0, T0 + 60), Sample(103.0, T0 + 90))}
    await source.close()


@pytest.mark.data
async def test_every_published_sample_by_scraping(pages: Pages, data_dir: Path) -> None:
    for path in sorted((data_dir / "telemetry").glob("*.prom")):
        expected = read_page(path.read_text())
        if not expected:
            continue
        pages.pages["/metrics"] = path.read_text()
        targets = ScrapeTargets((ExporterTarget(pages.url(), ""),))
        source = ScrapeSource(lambda targets=targets: targets)  # type: ignore[misc]
        telemetry = await source.read(T0, None)
        assert {uuid: shown(gpu) for uuid, gpu in telemetry.gpus.items()} == {
            uuid: shown(gpu) for uuid, gpu in expected.items()
        }, path.name
        await source.close()
