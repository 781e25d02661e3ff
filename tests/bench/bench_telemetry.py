"""One look at 4,000 GPUs and 1,000 model servers: queries, seconds and memory, with a real Prometheus."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import resource
import sys
import tempfile
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench.timing import measure
from tests.prometheus.remote_write import RemoteWriter
from tests.prometheus.server import CURE, PrometheusServer, program
from wattkeeper.telemetry.attribution import attribute, gpu_rows
from wattkeeper.telemetry.cluster import ClusterView, KnownNode, KnownPod
from wattkeeper.telemetry.engines import ENGINES, names_of_engines
from wattkeeper.telemetry.exposition import parse
from wattkeeper.telemetry.labels import LabelReader
from wattkeeper.telemetry.names import is_gpu_metric
from wattkeeper.telemetry.prometheus import PrometheusSource
from wattkeeper.telemetry.promql import PrometheusOptions
from wattkeeper.telemetry.series import Faults, Series
from wattkeeper.telemetry.servers import attribute_servers

GPUS, SERVERS = 4000, 1000
T0 = 1_700_000_000.0
SCRAPES, INTERVAL_SECONDS = 9, 15.0
GPU_METRICS = {
    "DCGM_FI_DEV_POWER_USAGE": 121.5,
    "DCGM_FI_DEV_GPU_UTIL": 0.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0,
    "DCGM_FI_DEV_FB_USED": 60_000.0,
    "DCGM_FI_DEV_SM_CLOCK": 1980.0,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5e10,
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": 700.0,
}
# What the default list has besides; a page has them, Prometheus isn't asked for them.
OTHER_METRICS = (
    *("MEM_CLOCK", "MEMORY_TEMP", "GPU_TEMP", "PCIE_REPLAY_COUNTER", "MEM_COPY_UTIL", "ENC_UTIL", "DEC_UTIL"),
    *("XID_ERRORS", "FB_FREE", "FB_RESERVED", "UNCORRECTABLE_REMAPPED_ROWS", "CORRECTABLE_REMAPPED_ROWS"),
    *("ROW_REMAP_FAILURE", "VGPU_LICENSE_STATUS"),
)
SERVER_METRICS = {
    "vllm:num_requests_running": 0.0,
    "vllm:num_requests_waiting": 0.0,
    "vllm:prompt_tokens_total": 1e6,
    "vllm:generation_tokens_total": 5e5,
    "vllm:request_success_total": 1e3,
    "vllm:inter_token_latency_seconds_sum": 1e4,
    "vllm:inter_token_latency_seconds_count": 5e5,
}


def benchmarks() -> dict[str, dict[str, object]]:
    found = _pages()
    if program() is None:
        print(f"    no Prometheus: {CURE}", file=sys.stderr)
        return found
    with tempfile.TemporaryDirectory() as folder, PrometheusServer(Path(folder)) as server:
        _fill(server)
        # In a process of its own: what is measured is the high-water mark of a process.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:
            found["one look through Prometheus"] = own.submit(_look, server.url).result()
    return found


def _look(url: str) -> dict[str, object]:
    return asyncio.run(_through_prometheus(url))


async def _through_prometheus(url: str) -> dict[str, object]:
    before = _resident_bytes()
    source = PrometheusSource(PrometheusOptions(url=url))
    cluster, now = _cluster(), T0 + SCRAPES * INTERVAL_SECONDS
    asked = _queries_served(url)
    loop = asyncio.get_running_loop()
    seconds = []
    for _ in range(5):
        began = loop.time()
        telemetry = await source.read(now, cluster)
        seconds.append(loop.time() - began)
    assert len(telemetry.gpus) == GPUS, telemetry.summary()
    assert len(telemetry.servers) == SERVERS, telemetry.summary()
    assert not telemetry.faults, telemetry.summary()
    queries = (_queries_served(url) - asked) / len(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    await source.close()
    seconds.sort()
    return {
        "queries": queries,
        "median_seconds": seconds[len(seconds) // 2],
        "max_seconds": seconds[-1],
        "peak_above_start_mib": round((peak - before) / 2**20, 1),
        "peak_of_process_mib": round(peak / 2**20, 1),
    }


def _pages() -> dict[str, dict[str, object]]:
    cluster = _cluster()
    page = _page(_gpu_labels(i) for i in range(GPUS))
    series = parse(page, T0, Faults(), is_gpu_metric)
    rows = gpu_rows(series, LabelReader(), Faults())
    servers = [
        Series(name, _server_labels(i), series[0].sample) for name in SERVER_METRICS for i in range(SERVERS)
    ]
    wanted = names_of_engines(ENGINES)
    return {
        f"parse the pages of {GPUS} GPUs ({len(page) >> 20} MiB)": dict(
            measure(lambda: parse(page, T0, Faults(), is_gpu_metric), runs=3)
        ),
        f"read the labels of {len(series)} series": dict(
            measure(lambda: gpu_rows(series, LabelReader(), Faults()), runs=5)
        ),
        f"attribute {len(rows)} rows to {GPUS} GPUs": dict(
            measure(lambda: attribute(rows, cluster, Faults()), runs=5)
        ),
        f"attribute {len(servers)} rows to {SERVERS} servers ({len(wanted)} names)": dict(
            measure(lambda: attribute_servers(servers, ENGINES, cluster, Faults()), runs=5)
        ),
    }


def _fill(server: PrometheusServer) -> None:
    writer = RemoteWriter(server.url)
    gpus = [
        ({"__name__": name, **_gpu_labels(i), "instance": f"192.0.{i // 2048}.{i // 8 % 256}:9400"}, value)
        for name, value in GPU_METRICS.items()
        for i in range(GPUS)
    ]
    servers = [
        ({"__name__": name, **_server_labels(i)}, value)
        for name, value in SERVER_METRICS.items()
        for i in range(SERVERS)
    ]
    for scrape in range(SCRAPES):
        at = T0 + scrape * INTERVAL_SECONDS
        writer.write((labels, [(at, value * (1 + scrape / 1000))]) for labels, value in (*gpus, *servers))
    writer.close()


def _gpu_labels(number: int) -> dict[str, str]:
    return {
        "gpu": str(number % 8),
        "UUID": f"GPU-{number:08x}-0000-4000-8000-{number:012x}",
        "pci_bus_id": "00000000:01:00.0",
        "device": f"nvidia{number % 8}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": f"node-{number // 8}",
        "DCGM_FI_DRIVER_VERSION": "580.00.00",
        "container": "server",
        "namespace": f"team-{number // 4 % 7}",
        "pod": f"llm-{number // 4}-6d5f7c9b8-x7k2p",
        "job": "dcgm-exporter",
    }


def _server_labels(number: int) -> dict[str, str]:
    return {
        "engine": "0",
        "model_name": f"org/model-{number % 9}",
        "namespace": f"team-{number % 7}",
        "pod": f"llm-{number}-6d5f7c9b8-x7k2p",
        "instance": f"10.1.{number // 250}.{number % 250}:8000",
        "job": "llms",
    }


def _cluster() -> ClusterView:
    nodes = [
        KnownNode(f"node-{i}", (f"192.0.{i // 256}.{i % 256}",), has_gpus=True) for i in range(GPUS // 8)
    ]
    pods = [
        KnownPod(
            f"team-{i % 7}",
            f"llm-{i}-6d5f7c9b8-x7k2p",
            f"uid-{i}",
            f"node-{i // 2}",
            f"10.1.{i // 250}.{i % 250}",
            uses_gpus=True,
        )
        for i in range(SERVERS)
    ]
    return ClusterView(nodes, pods)


def _page(gpus: Iterable[dict[str, str]]) -> str:
    names = {**GPU_METRICS, **{f"DCGM_FI_DEV_{name}": 1.0 for name in OTHER_METRICS}}
    lines = []
    for labels in gpus:
        block = ",".join(f'{key}="{value}"' for key, value in labels.items() if key != "job")
        lines += [f"{name}{{{block}}} {value:f}\n" for name, value in names.items()]
    return "".join(lines)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _queries_served(url: str) -> int:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        page = answer.read().decode()
    found = re.search(r'prometheus_http_requests_total\{code="200",handler="/api/v1/query"\} (\d+)', page)
    return int(found[1]) if found else 0
