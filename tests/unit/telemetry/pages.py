"""Short ways to write rows of exporters and to read them."""

from __future__ import annotations

from collections.abc import Iterable

from wattkeeper.core.readings import GpuReading, Holder, Sample
from wattkeeper.telemetry.attribution import attribute, gpu_rows
from wattkeeper.telemetry.cluster import ClusterView
from wattkeeper.telemetry.exposition import parse
from wattkeeper.telemetry.labels import LabelReader
from wattkeeper.telemetry.series import FaultKind, Faults, Series

NOW = 1_700_000_000.0
MIB = 1024**2
POWER = "DCGM_FI_DEV_POWER_USAGE"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
MEMORY = "DCGM_FI_DEV_FB_USED"


def row(name: str, value: float, at: float = NOW, since: float | None = None, **labels: str) -> Series:
    """One series of GPU `a` unless labels say otherwise."""
    return Series(name, {"gpu": "0", "UUID": "GPU-a"} | labels, Sample(value, at, since))


def read_series(
    series: Iterable[Series], cluster: ClusterView | None = None
) -> tuple[dict[str, GpuReading], dict[FaultKind, int]]:
    """Readings, and how often what was wrong."""
    faults = Faults()
    readings = attribute(gpu_rows(series, LabelReader(), faults), cluster, faults)
    return readings, {fault.kind: fault.count for fault in faults.found()}


def read_page(page: str, cluster: ClusterView | None = None) -> dict[str, GpuReading]:
    return read_series(parse(page, NOW, Faults()), cluster)[0]


def shown(reading: GpuReading) -> dict[str, object]:
    """What is known of a GPU: values without their times, and what isn't at its default."""
    known: dict[str, object] = {}
    for field in GpuReading.__dataclass_fields__:
        value = getattr(reading, field)
        if isinstance(value, Sample):
            known[field] = value.value
        elif value and field != "uuid":
            known[field] = value
    return known


def pods(reading: GpuReading) -> list[tuple[str, str]]:
    return [holder.key for holder in reading.holders]


__all__ = [
    "MEMORY",
    "MIB",
    "NOW",
    "POWER",
    "UTIL",
    "Holder",
    "pods",
    "read_page",
    "read_series",
    "row",
    "shown",
]
