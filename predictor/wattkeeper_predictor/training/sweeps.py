"""Batch sweeps in the columns of ML.ENERGY's benchmark: latency and power at given numbers of sequences.

Needed columns: ``model_id, weight_precision, total_params_billions, activated_params_billions, gpu_model,
num_gpus, avg_batch_size, avg_output_len, avg_power_watts`` (all GPUs together) and ``median_itl_ms``. Used
where present: ``task, tensor_parallel, expert_parallel, data_parallel, max_num_seqs, p95_itl_ms,
avg_prompt_len``.
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
from wattkeeper_predictor.quantization import QUANTIZATIONS
from wattkeeper_predictor.recipes.wattkeeper.recall import architecture
from wattkeeper_predictor.specs import GpuSpec, ServingConfig, Workload

from .families import family_of
from .measured import Measured, Source
from .sweep_models import sweep_model

SWEEP_COLUMNS = frozenset(
    [
        "model_id",
        "weight_precision",
        "total_params_billions",
        "activated_params_billions",
        "gpu_model",
        "num_gpus",
        "avg_batch_size",
        "avg_output_len",
        "avg_power_watts",
        "median_itl_ms",
    ]
)
# Prompts aren't in the table; these are the tasks' usual lengths. The median step hardly depends on them.
_TASK_PROMPTS = {"lm-arena-chat": 150, "gpqa": 250, "sourcegraph-fim": 1000}
_OTHER_PROMPT = 300
_FORMATS = {"bfloat16": "none", "bf16": "none", "float16": "none", "fp16": "none"}
_SAME = {"w4a16": "int4", "w8a8": "int8"}
# The benchmark's short names.
_GPUS = {"H100": "H100 SXM5", "H200": "H200 SXM", "B200": "B200 SXM", "A100": "A100 SXM4 80GB"}
_NAMED_BROKEN_ROWS = 5


@dataclass(frozen=True, slots=True)
class SweepTable:
    """Sound rows, their 95th percentile between tokens (seconds; NaN unknown), and what was wrong."""

    rows: Measured
    itl_p95: NDArray[np.float64]
    broken: tuple[tuple[int, str], ...]
    stand_ins: Mapping[str, str]
    architectures: Mapping[str, str]
    sha256: str

    def complaint(self) -> str | None:
        """One line for the user about broken rows, None if there are none."""
        if not self.broken:
            return None
        named = "; ".join(f"line {line}: {reason}" for line, reason in self.broken[:_NAMED_BROKEN_ROWS])
        return f"{len(self.broken)} broken rows left out ({named})"


def read_sweeps(path: Path, *, strict: bool = False) -> SweepTable:
    """Read a file; raises ``InvalidInput`` for missing columns, no sound row or, strict, any broken one."""
    parsed: list[_Row] = []
    broken: list[tuple[int, str]] = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = SWEEP_COLUMNS - set(reader.fieldnames or ())
        if missing:
            raise InvalidInput(
                "runs", f"{path.name} lacks the columns {', '.join(sorted(missing))}; add them"
            )
        for row in reader:
            try:
                parsed.append(_parse(row))
            except (ValueError, TypeError, InvalidInput) as wrong:
                broken.append((reader.line_num, str(wrong)))
    table = _table(parsed, broken, path) if parsed else None
    if table is None or (strict and broken):
        first = f"line {broken[0][0]}: {broken[0][1]}" if broken else "it has no rows"
        raise InvalidInput("runs", f"{path.name}: {len(broken)} broken rows ({first}); mend the file")
    return table


@dataclass(frozen=True, slots=True)
class _Row:
    question: Question
    batch: float
    output: float
    power_watts: float
    itl_seconds: float
    itl_p95_seconds: float
    mixture: bool
    stand_in: str | None


def _parse(row: Mapping[str, str]) -> _Row:
    total, active = _positive(row, "total_params_billions"), _positive(row, "activated_params_billions")
    if active > total:
        raise ValueError(f"activated_params_billions {active} exceeds total_params_billions {total}")
    model, stand_in = sweep_model(row["model_id"], total, active)
    gpus = _positive(row, "num_gpus") / _optional(row, "data_parallel", 1)
    output = _positive(row, "avg_output_len")
    prompt = _optional(row, "avg_prompt_len", _TASK_PROMPTS.get(row.get("task") or "", _OTHER_PROMPT))
    question = Question(
        model,
        _gpu(row["gpu_model"]),
        ServingConfig(
            quantization=_format(row["weight_precision"]),
            tensor_parallel_size=int(gpus),
            expert_parallel=_optional(row, "expert_parallel", 1) > 1,
        ),
        Workload(scenario="Offline", prompt_tokens=round(prompt), output_tokens=max(1, round(output))),
    )
    return _Row(
        question=question,
        batch=max(1.0, _positive(row, "avg_batch_size")),
        output=output,
        power_watts=_positive(row, "avg_power_watts") / _positive(row, "num_gpus"),
        itl_seconds=_positive(row, "median_itl_ms") / 1e3,
        itl_p95_seconds=_optional(row, "p95_itl_ms", math.nan) / 1e3,
        mixture=model.is_mixture_of_experts,
        stand_in=stand_in,
    )


def _table(parsed: list[_Row], broken: list[tuple[int, str]], path: Path) -> SweepTable:
    questions = [row.question for row in parsed]
    columns = columns_of(questions)
    columns = columns.replace(
        fixed_batch=np.array([row.batch for row in parsed]), output=np.array([row.output for row in parsed])
    )
    itl = np.array([row.itl_seconds for row in parsed])
    rows = Measured(
        columns=columns,
        itl=itl,
        power=np.array([row.power_watts for row in parsed]),
        duty=np.full(len(parsed), math.nan),
        with_first=np.zeros(len(parsed)),
        source=np.full(len(parsed), int(Source.SWEEP), dtype=np.intp),
        gpu=np.array([row.question.gpu.name for row in parsed]),
        model=np.array([row.question.model.id for row in parsed]),
        family=np.array(
            [
                family_of(row.question.model.id, row.question.model.model_type, mixture=row.mixture)
                for row in parsed
            ]
        ),
        level=np.array([f"sweep {index}" for index in range(len(parsed))]),
    )
    return SweepTable(
        rows=rows,
        itl_p95=np.array([row.itl_p95_seconds for row in parsed]),
        broken=tuple(broken),
        stand_ins={row.question.model.id: row.stand_in for row in parsed if row.stand_in},
        architectures={row.question.model.id: architecture(row.question.model) for row in parsed},
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def _gpu(name: str) -> GpuSpec:
    return GpuCatalogue.load().get(_GPUS.get(name.strip(), name))


def _format(precision: str) -> str:
    name = precision.strip().lower()
    found = _FORMATS.get(name, _SAME.get(name, name))
    if found not in QUANTIZATIONS:
        raise ValueError(f"weight_precision {precision!r} isn't one of {', '.join(QUANTIZATIONS)}")
    return found


def _positive(row: Mapping[str, str], column: str) -> float:
    value = float(row[column])
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{column} is {row[column]!r}, not a number above 0")
    return value


def _optional(row: Mapping[str, str], column: str, default: float) -> float:
    return _positive(row, column) if row.get(column) else default
