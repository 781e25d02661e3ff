"""What a real Prometheus makes of an exporter's labels when it scrapes the exporter itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.prometheus.server import CURE, PrometheusServer, program
from tests.telemetry.pages import Pages, serving_pages
from tests.unit.telemetry.pages import pods
from wattkeeper.telemetry.cluster import ClusterView, KnownNode, KnownPod
from wattkeeper.telemetry.errors import NoGpuMetricsError
from wattkeeper.telemetry.prometheus import PrometheusSource
from wattkeeper.telemetry.promql import PrometheusOptions
from wattkeeper.telemetry.source import Telemetry

HELD = 'gpu="0",UUID="GPU-a",Hostname="node-1",container="server",namespace="team",pod="llm-0"'
FREE = 'gpu="1",UUID="GPU-b",Hostname="node-1"'
BATCH = 'gpu="2",UUID="GPU-c",Hostname="node-1",container="",namespace="",pod=""'
PAGE = "".join(
    f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {watts}\nDCGM_FI_DEV_GPU_UTIL{{{labels}}} 0\n"
    for labels, watts in ((HELD, 121.5), (FREE, 70.0), (BATCH, 71.0))
)
SERVER = """vllm:num_requests_running{engine="0",model_name="m"} 1.0
vllm:generation_tokens_total{engine="0",model_name="m"} 7.0
"""
EXPORTER = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x7k2p", "container": "exporter"}
CLUSTER = ClusterView(
    [KnownNode("node-1", ("192.0.2.1",), has_gpus=True)],
    [
        KnownPod("team", "llm-0", "uid-0", "node-1", uses_gpus=True),
        KnownPod("gpu-operator", EXPORTER["pod"], "uid-9", "node-1", uses_gpus=False),
    ],
)


VARIANTS = {
    f"{'honor' if honor else 'push-aside'}-{name}": {"honor_labels": honor, "labels": labels}
    for honor in (False, True)
    for name, labels in (("bare", {}), ("exporter", EXPORTER), ("node", {"node": "node-1"} | EXPORTER))
}
SERVED = {"path": "/server", "labels": {"namespace": "team", "pod": "llm-0"}}
TWICE = ({"labels": EXPORTER}, {"honor_labels": True, "labels": {}}, SERVED, SERVED)


@pytest.fixture(scope="module")
def scraping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus with a job a variant, told apart by the label `test`."""
    if program() is None:
        pytest.skip(CURE)
    with serving_pages() as pages:
        pages.pages = {"/metrics": PAGE, "/server": SERVER}
        jobs = [*VARIANTS.items(), *(("twice", job) for job in TWICE)]
        folder = tmp_path_factory.mktemp("scraping")
        with PrometheusServer(folder, config(pages, jobs)) as server:
            yield server


def config(pages: Pages, jobs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Prometheus' configuration with these jobs, each over a page; JSON is YAML too."""
    return json.dumps(
        {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {
                    "job_name": f"job-{number}",
                    "honor_labels": job.get("honor_labels", False),
                    "metrics_path": job.get("path", "/metrics"),
                    "static_configs": [
                        {"targets": [pages.address], "labels": {"test": name, **job["labels"]}}
                    ],
                }
                for number, (name, job) in enumerate(jobs)
            ],
        }
    )


async def look(
    server: PrometheusServer, test: str, cluster: ClusterView | None, ready: Callable[[Telemetry], bool]
) -> Telemetry:
    """The first look by which what is expected has been scraped."""
    source = PrometheusSource(PrometheusOptions(url=server.url, selector={"test": test}))
    try:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(NoGpuMetricsError):
                    telemetry = await source.read(time.time(), cluster)
                    if ready(telemetry):
                        return telemetry
                await asyncio.sleep(0.2)
    finally:
        await source.close()


@pytest.mark.parametrize("cluster", [CLUSTER, None], ids=["known", "unknown"])
@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_gpu_is_the_workloads_never_the_exporters(
    scraping: PrometheusServer, variant: str, cluster: ClusterView | None
) -> None:
    telemetry = await look(scraping, variant, cluster, lambda telemetry: len(telemetry.gpus) == 3)
    assert {uuid: pods(gpu) for uuid, gpu in telemetry.gpus.items()} == {
        "GPU-a": [("team", "llm-0")],
        "GPU-b": [],
        "GPU-c": [],
    }
    assert {gpu.node for gpu in telemetry.gpus.values()} == {"node-1"}
    assert telemetry.faults == ()


async def test_two_jobs_that_scrape_one_target_double_nothing(scraping: PrometheusServer) -> None:
    def both(telemetry: Telemetry) -> bool:
        server = telemetry.server_of("team", "llm-0")
        return server is not None and bool(server.notes) and all(gpu.notes for gpu in telemetry.gpus.values())

    telemetry = await look(scraping, "twice", CLUSTER, both)
    watts = {uuid: gpu.power_watts.value for uuid, gpu in telemetry.gpus.items() if gpu.power_watts}
    assert watts == {"GPU-a": 121.5, "GPU-b": 70.0, "GPU-c": 71.0}
    assert pods(telemetry.gpus["GPU-a"]) == [("team", "llm-0")]
    found = telemetry.server_of("team", "llm-0")
    assert found is not None
    assert found.running is not None and found.running.value == 1.0
    assert found.generation_tokens_total is not None and found.generation_tokens_total.value == 7.0
