"""wattkeeper's own CSV of measured rows: what ``import`` writes, and what a cluster's recordings are kept in.

One row a run or a sweep point. ``kind``: ``server`` (mean time a token), ``offline`` (inverse throughput) or
``sweep`` (median time between tokens at ``running`` sequences). ``gpu`` is a catalogue name; models the
catalogue lacks bring ``parameters_total_billion`` and ``parameters_active_billion``.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.catalog import GpuCatalogue
from wattkeeper_predictor.engine.columns import Question, columns_of
from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.levels import level_of_rate
from wattkeeper_predictor.quantization import QUANTIZATIONS
from wattkeeper_predictor.recipes.wattkeeper.recall import architecture
from wattkeeper_predictor.specs import ServingConfig, Workload

from .families import family_of
from .measured import LONGEST_OUTPUT, Measured, Source
from .sweep_models import sweep_model

Array = NDArray[np.float64]
COLUMNS = (
    "kind", "model", "parameters_total_billion", "parameters_active_billion", "gpu", "gpus", "quantization",
    "expert_parallel", "requests_per_second", "running", "prompt_tokens", "output_tokens", "requests",
    "itl_seconds", "itl_with_first_token", "itl_p95_seconds", "power_watts_per_gpu", "duty",
)  # fmt: skip
_NEEDED = ("kind", "model", "gpu", "output_tokens", "itl_seconds", "power_watts_per_gpu")
_NAMED_BROKEN_ROWS = 5


@dataclass(frozen=True, slots=True)
class OwnTable:
    """Sound rows, the 95th percentiles (NaN unknown), what was wrong, and the models' architectures."""

    rows: Measured
    itl_p95: Array
    broken: tuple[tuple[int, str], ...]
    architectures: Mapping[str, str]
    sha256: str

    def complaint(self) -> str | None:
        """One line for the user about broken rows, None if there are none."""
        if not self.broken:
            return None
        named = "; ".join(f"line {line}: {reason}" for line, reason in self.broken[:_NAMED_BROKEN_ROWS])
        return f"{len(self.broken)} broken rows left out ({named})"


def write_own(path: Path, rows: Measured, itl_p95: Array) -> None:
    """Write all rows."""
    c = rows.columns
    formats = _formats(c.bytes_per_weight)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for at in range(len(rows)):
            source = Source(int(rows.source[at]))
            total = c.dense_billion[at] + c.expert_billion[at]
            total += 0.0 if c.tied[at] else c.head_billion[at]
            active = c.active_billion[at] + (0.0 if c.tied[at] else c.head_billion[at])
            writer.writerow(
                [
                    source.name.lower(),
                    rows.model[at],
                    _figure(total),
                    _figure(active),
                    rows.gpu[at],
                    int(c.gpus[at]),
                    formats[at],
                    int(c.expert_parallel[at]),
                    _figure(c.rate[at]) if source is Source.SERVER else "",
                    _figure(c.fixed_batch[at]),
                    _figure(c.prompt[at]),
                    _figure(c.output[at]),
                    _figure(c.queue[at]),
                    _figure(rows.itl[at]),
                    int(rows.with_first[at]),
                    _figure(itl_p95[at]),
                    _figure(rows.power[at]),
                    _figure(rows.duty[at]),
                ]
            )


def read_own(path: Path, *, strict: bool = False) -> OwnTable:
    """Read a file; raises ``InvalidInput`` for missing columns, no sound row or, strict, any broken one."""
    parsed: list[tuple[Question, Mapping[str, float], Source]] = []
    broken: list[tuple[int, str]] = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = set(_NEEDED) - set(reader.fieldnames or ())
        if missing:
            raise InvalidInput(
                "runs", f"{path.name} lacks the columns {', '.join(sorted(missing))}; add them"
            )
        for row in reader:
            try:
                parsed.append(_parse(row))
            except (ValueError, TypeError, KeyError, InvalidInput) as wrong:
                broken.append((reader.line_num, str(wrong)))
    if not parsed or (strict and broken):
        first = f"line {broken[0][0]}: {broken[0][1]}" if broken else "it has no rows"
        raise InvalidInput("runs", f"{path.name}: {len(broken)} broken rows ({first}); mend the file")
    return _table(parsed, broken, path)


def is_own(header: set[str]) -> bool:
    """Whether a file's columns are ours."""
    return header >= set(_NEEDED)


def _parse(row: Mapping[str, str]) -> tuple[Question, Mapping[str, float], Source]:
    source = Source[row["kind"].strip().upper()]
    numbers = {
        name: _number(row, name, needed=name in _NEEDED)
        for name in (
            "requests_per_second", "running", "prompt_tokens", "output_tokens", "requests", "itl_seconds",
            "itl_p95_seconds", "power_watts_per_gpu", "duty", "gpus",
            "parameters_total_billion", "parameters_active_billion",
        )
    }  # fmt: skip
    if source is Source.SERVER and math.isnan(numbers["requests_per_second"]):
        raise ValueError("requests_per_second is missing in a server row")
    if source is Source.SWEEP and math.isnan(numbers["running"]):
        raise ValueError("running is missing in a sweep row")
    quantization = row.get("quantization") or "none"
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization {quantization!r} isn't one of {', '.join(QUANTIZATIONS)}")
    total = numbers["parameters_total_billion"]
    active = numbers["parameters_active_billion"]
    model, _ = sweep_model(row["model"], total, total if math.isnan(active) else active)
    prompt = 15.0 if math.isnan(numbers["prompt_tokens"]) else numbers["prompt_tokens"]
    question = Question(
        model,
        GpuCatalogue.load().get(row["gpu"]),
        ServingConfig(
            quantization=quantization,
            tensor_parallel_size=1 if math.isnan(numbers["gpus"]) else int(numbers["gpus"]),
            expert_parallel=(row.get("expert_parallel") or "0") not in ("0", "", "false", "False"),
        ),
        Workload(
            scenario="Offline",
            prompt_tokens=max(1, round(prompt)),
            output_tokens=max(1, round(numbers["output_tokens"])),
        ),
    )
    with_first = float((row.get("itl_with_first_token") or "0") not in ("0", "", "false", "False"))
    return question, {**numbers, "with_first": with_first, "prompt_tokens": prompt}, source


def _table(
    parsed: list[tuple[Question, Mapping[str, float], Source]], broken: list[tuple[int, str]], path: Path
) -> OwnTable:
    questions = [question for question, _, _ in parsed]
    sources = np.array([int(source) for _, _, source in parsed], dtype=np.intp)

    def column(name: str) -> Array:
        return np.array([figures[name] for _, figures, _ in parsed])

    requests = column("requests")
    columns = columns_of(questions).replace(
        offline=(sources != Source.SERVER).astype(np.float64),
        rate=np.nan_to_num(column("requests_per_second")) * (sources == Source.SERVER),
        prompt=column("prompt_tokens"),
        output=column("output_tokens"),
        fixed_batch=np.where(sources == Source.SWEEP, column("running"), np.nan),
        queue=np.where((sources == Source.OFFLINE) & ~np.isnan(requests), requests, np.inf),
        longest_output=np.full(len(parsed), float(LONGEST_OUTPUT)),
    )
    rates = np.where(sources == Source.SERVER, column("requests_per_second"), np.nan).tolist()
    levels = [
        f"sweep {place}" if source is Source.SWEEP else level_of_rate(_rate(rates[place])).name.lower()
        for place, (_, _, source) in enumerate(parsed)
    ]
    rows = Measured(
        columns=columns,
        itl=column("itl_seconds"),
        power=column("power_watts_per_gpu"),
        duty=column("duty"),
        with_first=column("with_first"),
        source=sources,
        gpu=np.array([question.gpu.name for question in questions]),
        model=np.array([question.model.id for question in questions]),
        family=np.array(
            [
                family_of(q.model.id, q.model.model_type, mixture=q.model.is_mixture_of_experts)
                for q in questions
            ]
        ),
        level=np.array(levels),
    )
    return OwnTable(
        rows,
        column("itl_p95_seconds"),
        tuple(broken),
        {question.model.id: architecture(question.model) for question in questions},
        hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def _rate(value: float) -> float | None:
    return None if math.isnan(value) else value


def _formats(bytes_per_weight: Array) -> list[str]:
    names = {2.0: "none", 1.0: "fp8", 0.53125: "mxfp4", 0.5625: "nvfp4"}
    return [names.get(float(value), "int4") for value in bytes_per_weight]


def _figure(value: float) -> str:
    return f"{value:.9g}" if math.isfinite(value) else ""


def _number(row: Mapping[str, str], column: str, *, needed: bool) -> float:
    text = (row.get(column) or "").strip()
    if not text:
        if needed:
            raise ValueError(f"{column} is empty")
        return math.nan
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{column} is {text!r}, not a number above 0")
    return value
