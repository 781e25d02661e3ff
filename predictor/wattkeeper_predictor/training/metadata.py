"""WattGPU's two feature tables (separator ``;``) as ``ModelSpec`` and ``GpuSpec``.

Parameter counts here are the advertised ones of the table (``total_b_params``), because the recipe was
published with them; everywhere else counts are computed from the architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.specs import GpuSpec, ModelSpec

from .tables import open_table

_Spec = TypeVar("_Spec", GpuSpec, ModelSpec)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Specs by the name that runs use, and the reason for each row that gave none."""

    models: Mapping[str, ModelSpec]
    gpus: Mapping[str, GpuSpec]
    skipped: Mapping[str, str]


def read_metadata(
    models: Path | None,
    gpus: Path | None,
    used_models: Iterable[str] = (),
    used_gpus: Iterable[str] = (),
) -> Metadata:
    """Read both tables; the catalogue stands in for one that isn't given, for the names in use.

    Raises ``InvalidInput`` if a table lacks its key column.
    """
    skipped: dict[str, str] = {}
    return Metadata(
        models=_catalogued(used_models, ModelCatalogue.load().get, skipped)
        if models is None
        else _table(models, "model_name", _model, skipped),
        gpus=_catalogued(used_gpus, GpuCatalogue.load().get, skipped)
        if gpus is None
        else _table(gpus, "gpu_type", _gpu, skipped),
        skipped=skipped,
    )


def _catalogued(
    names: Iterable[str], get: Callable[[str], _Spec], skipped: dict[str, str]
) -> dict[str, _Spec]:
    specs: dict[str, _Spec] = {}
    for name in sorted(set(names)):
        try:
            specs[name] = get(name)
        except InvalidInput as unknown:
            skipped[name] = str(unknown)
    return specs


def _table(
    path: Path, key: str, parse: Callable[[Mapping[str, str]], _Spec], skipped: dict[str, str]
) -> dict[str, _Spec]:
    with open_table(path, delimiter=";") as reader:
        if key not in (reader.fieldnames or ()):
            raise InvalidInput(path.name, f"lacks the column {key}; the separator must be ';'")
        specs: dict[str, _Spec] = {}
        for row in reader:
            try:
                specs[row[key]] = parse(row)
            except (InvalidInput, ValueError) as wrong:
                skipped[row[key]] = str(wrong)
    return specs


def _model(row: Mapping[str, str]) -> ModelSpec:
    hidden, heads = _whole(row, "hidden_size"), _whole(row, "num_attention_heads")
    return ModelSpec(
        id=row["model_name"],
        model_type=row["model_type"],
        parameters_total_billion=_number(row, "total_b_params"),
        parameters_active_billion=_number(row, "active_b_params"),
        layers=_whole(row, "num_layers"),
        hidden_size=hidden,
        attention_heads=heads,
        kv_heads=_whole(row, "num_key_value_heads"),
        head_dim=_whole(row, "head_dim") if row.get("head_dim") else max(1, hidden // heads),
        intermediate_size=_whole(row, "intermediate_size"),
        vocab_size=_whole(row, "vocab_size"),
    )


def _gpu(row: Mapping[str, str]) -> GpuSpec:
    memory_gb = _number(row, "memory_size_gb")
    known = GpuCatalogue.load().match(row["gpu_type"])
    # Upstream's table has no tensor rates; its notebook adds them, and so does our catalogue.
    catalogued = known.fp16_dense_tflops if known else None
    capability = (_whole(row, "cuda_major_version"), _whole(row, "cuda_minor_version", least=0))
    return GpuSpec(
        name=row["gpu_type"],
        memory_bytes=known.memory_bytes if known else round(memory_gb * 1024**3),
        memory_nominal_gb=memory_gb,
        memory_type=row["memory_type"],
        memory_bandwidth_gb_s=_number(row, "memory_bandwidth_gb_s"),
        tdp_watts=_number(row, "thermal_design_power_w"),
        fp16_dense_tflops=_number(row, "tensor_tflops") if row.get("tensor_tflops") else catalogued,
        base_clock_mhz=_number(row, "base_clock_mhz"),
        boost_clock_mhz=_number(row, "boost_clock_mhz"),
        transistors_millions=_number(row, "transistor_count_m"),
        release_year=_whole(row, "release_year"),
        sm_count=_whole(row, "streaming_multiprocessors"),
        l2_cache_mb=_number(row, "l2_cache_mb"),
        process_nm=_number(row, "process_size_nm"),
        compute_capability=f"{capability[0]}.{capability[1]}",
    )


def _number(row: Mapping[str, str], column: str) -> float:
    if not row.get(column):
        raise ValueError(f"{column} is empty")
    return float(row[column])


def _whole(row: Mapping[str, str], column: str, least: int = 1) -> int:
    value = _number(row, column)
    if value != int(value) or value < least:
        raise ValueError(f"{column} is {row[column]!r}, not a whole number of at least {least}")
    return int(value)
