"""What `wattkeeper simulate` simulates: models with their requests and their GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wattkeeper.cli.manifest_files import InputError
from wattkeeper.cli.simulate_words import process
from wattkeeper.core.gpu_names import same_family
from wattkeeper.core.parking_catalogue import MEASURED
from wattkeeper.sim.access_log import looks_like_a_log, read_log
from wattkeeper.sim.arrivals import Trace, TraceError
from wattkeeper.sim.csv_trace import read_csv
from wattkeeper.sim.generators import generate
from wattkeeper.sim.hardware import Hardware, hardware
from wattkeeper.sim.residents import SharedModel

DEFAULT_MEAN_SERVICE = 10.0


@dataclass(frozen=True, slots=True)
class Requests:
    """Where requests come from."""

    traces: Sequence[Path] = ()
    generated: Sequence[str] = ()
    copies: int = 1  # of each generated trace, all different
    seed: int = 0
    horizon: float | None = None
    service_seconds: float | None = None
    log_models: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """A GPU kind, and what was measured on it."""

    gpu: str
    figures: dict[str, float | None] = field(default_factory=dict)  # keywords of `hardware`

    def with_model(self, where: str, **model: Any) -> Hardware:
        """One model's replica on it. Raises InputError."""
        figures = dict(self.figures)
        measured = any(same_family(name, self.gpu) for name in MEASURED)
        watts = all(figures.get(name) is not None for name in ("bare_watts", "context_watts", "load_watts"))
        if not measured and not watts and figures.get("tdp_watts") is None:
            figures["tdp_watts"] = _tdp_watts(self.gpu, where)
        try:
            return hardware(self.gpu, **figures, **model)  # type: ignore[arg-type]
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None


def read_requests(requests: Requests) -> tuple[list[Trace], list[str]]:
    """All traces that were asked for, and what to know of them."""
    traces: list[Trace] = []
    notes: list[str] = []
    try:
        for path in requests.traces:
            found, said = read_trace(path, requests)
            traces.extend(found)
            notes.extend(said)
    except TraceError as error:
        raise InputError(str(error)) from None
    for number, spec in enumerate(requests.generated):
        traces.extend(generated(spec, requests, number))
    return traces, notes


def read_trace(path: Path, requests: Requests) -> tuple[list[Trace], list[str]]:
    """A file's traces: one from CSV, one a model from an access log. Raises TraceError."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as stream:
            first_line = stream.readline()
    except OSError as error:
        raise TraceError(f"{path}: can't be read: {error.strerror or error}") from None
    if not looks_like_a_log(first_line):
        return [read_csv(path, default_service=requests.service_seconds)], []
    log = read_log(path, default_service=requests.service_seconds)
    wanted = list(requests.log_models) or list(log.traces)
    if missing := [model for model in wanted if model not in log.traces]:
        known = ", ".join(name or "(none named)" for name in log.traces)
        raise TraceError(f"{path}: no requests for {', '.join(missing)}: the log has {known}")
    notes = []
    if log.passed_over:
        notes.append(f"{path}: passed over {log.passed_over} lines that ask for no inference")
    return [log.traces[model] for model in wanted], notes


def generated(spec: str, requests: Requests, number: int, name: str = "") -> Iterator[Trace]:
    """The copies of one generated trace."""
    made, service = process(spec)
    if requests.horizon is None:
        raise InputError("--generate needs --horizon: say for how long, such as 24h")
    mean = service if service is not None else requests.service_seconds or DEFAULT_MEAN_SERVICE
    name = name or spec.partition(":")[0]
    for copy in range(requests.copies):
        numbered = f"{name}-{copy + 1}" if requests.copies > 1 else name
        seed = (requests.seed, number, copy)
        yield generate(numbered, made, requests.horizon, seed=seed, mean_service=mean)


def placed(traces: Sequence[Trace], replica: Hardware, models_per_gpu: int) -> list[SharedModel]:
    """Models on GPUs of their own, or so many on each, in their order."""
    names = _told_apart([trace.name for trace in traces])
    models = []
    for number, (trace, name) in enumerate(zip(traces, names, strict=True)):
        place = number // models_per_gpu
        gpus = tuple(f"{replica.gpu}-{place}-{i}" for i in range(replica.gpus))
        models.append(SharedModel(name, replace(trace, name=name), replica, gpus))
    return models


def _told_apart(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


def _tdp_watts(gpu: str, where: str) -> float:
    """A board's TDP from the GPU catalogue, which stands in for figures that seed 002 didn't measure."""
    from wattkeeper_predictor.catalog.gpus import GpuCatalogue  # noqa: PLC0415  not for the measured ones

    spec = GpuCatalogue.load().match(gpu)
    if spec is None or not math.isfinite(spec.tdp_watts):
        raise InputError(
            f"{where}: GPU {gpu!r} isn't known: give its TDP, or its bare, context and load watts"
        )
    return spec.tdp_watts
