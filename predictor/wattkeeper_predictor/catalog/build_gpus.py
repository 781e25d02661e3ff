"""Build gpus.json from a table of readings, a table of cloud instances and our decisions.

The table of readings (``gpu_specs.csv``) gives one value a field, the codes of who gave it, and the
fields on which sources disagree. ``gpu_decisions.json`` holds what we decided and why; a disputed field
without a decision is an error, so that none slips in.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattkeeper_predictor.errors import InvalidInput

_FIELDS: Mapping[str, str] = {
    "form_factor": "form_factor",
    "memory_nominal_gb": "memory_gb",
    "memory_type": "memory_type",
    "memory_bandwidth_gb_s": "bandwidth_gb_s",
    "fp16_dense_tflops": "fp16_bf16_dense_tflops",
    "fp8_dense_tflops": "fp8_dense_tflops",
    "int8_dense_tops": "int8_dense_tops",
    "tdp_watts": "tdp_w",
    "release_year": "release_year",
    "base_clock_mhz": "base_clock_mhz",
    "boost_clock_mhz": "boost_clock_mhz",
    "transistors_millions": "transistors_billion",
    "architecture": "architecture",
    "compute_capability": "compute_capability",
    "nvml_name": "nvml_name",
    "sm_count": "streaming_multiprocessors",
    "l2_cache_mb": "l2_cache_mb",
    "process_nm": "process_size_nm",
    "pcie_generation": "pcie_gen",
    "nvlink_gb_s": "nvlink_bandwidth_gb_s",
}
_TEXTS = {"form_factor", "memory_type", "architecture", "compute_capability", "nvml_name"}
_WHOLE = {"release_year", "sm_count", "pcie_generation"}
_PER_BOARD = {
    "memory_nominal_gb",
    "memory_bandwidth_gb_s",
    "fp16_dense_tflops",
    "fp8_dense_tflops",
    "int8_dense_tops",
    "tdp_watts",
    "transistors_millions",
    "sm_count",
    "l2_cache_mb",
}
_REQUIRED = ("memory_nominal_gb", "memory_bandwidth_gb_s", "tdp_watts")
_VENDORS = {"AMD": "AMD", "Intel": "Intel"}
_MIB_PER_GIB = 1024
# What the driver keeps for itself: in-band ECC takes a sixteenth of GDDR6 on server cards.
_USABLE_GDDR6 = 0.9375
_USABLE = 0.985


def build_gpus(specs: Path, sources: Path, instances: Path, decisions: Path) -> dict[str, Any]:
    """The content of gpus.json. Raises ``InvalidInput`` for a disputed field nobody decided."""
    decided = json.loads(decisions.read_text(encoding="utf-8"))
    rows = [row for row in _rows(specs) if row["gpu"] not in decided["leave_out"]]
    entries = [_entry(row, decided) for row in rows]
    missing = {e["name"]: [f for f in _REQUIRED if f not in e["values"]] for e in entries}
    known = {entry["name"] for entry in entries}
    return {
        "sources": {row["code"]: _public(_column(row, "what")) for row in _rows(sources)},
        "gpus": [entry for entry in entries if not missing[entry["name"]]],
        "incomplete": [
            {**entry, "missing": missing[entry["name"]]} for entry in entries if missing[entry["name"]]
        ],
        "aliases": decided["aliases"],
        "instances": _instances(instances, decided["rename"], known),
    }


def _entry(row: Mapping[str, str], decided: Mapping[str, Any]) -> dict[str, Any]:
    gpu = row["gpu"]
    readings, origin = _readings(row["source"])
    boards, why_boards = decided["gpus_per_board"].get(gpu, (1, ""))
    ruled = decided["set"].get(gpu, {})
    disputed = _disputed(row)
    reasons = {**decided["decided"].get(gpu, {}), **{name: why for name, (_, why) in ruled.items()}}
    if undecided := sorted(disputed - set(reasons)):
        raise InvalidInput(f"{gpu}.{undecided[0]}", "sources disagree; add a decision with its reason")

    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    for name, column in _FIELDS.items():
        if name in ruled:
            values[name], said[name] = ruled[name][0], "decided"
        elif row[column]:
            values[name] = _value(name, row[column])
            said[name] = readings.get(column, "ORIG")
        if name in values and name in _PER_BOARD and boards > 1:
            values[name] = values[name] // boards if name in _WHOLE else values[name] / boards
    values["vendor"] = _VENDORS.get(gpu.split()[0], "NVIDIA")
    _set_driver_memory(gpu, values, said, decided["driver_memory_mib"])
    if boards > 1:
        reasons = {**reasons, "board": why_boards}
    return {
        "name": decided["rename"].get(gpu, gpu.removeprefix("AMD ").removeprefix("Intel ")),
        "values": values,
        "sources": said,
        "origin": origin,
        "decisions": dict(sorted(reasons.items())),
        **({"details": decided["details"][gpu]} if gpu in decided["details"] else {}),
    }


def _set_driver_memory(
    gpu: str, values: dict[str, Any], said: dict[str, str], seen: Mapping[str, tuple[int, str]]
) -> None:
    if gpu in seen:
        values["memory_mib"], said["memory_mib"] = seen[gpu]
    elif "memory_nominal_gb" in values:
        share = _USABLE_GDDR6 if values.get("memory_type") == "GDDR6" else _USABLE
        values["memory_mib"] = round(values["memory_nominal_gb"] * _MIB_PER_GIB * share)
        said["memory_mib"] = f"nominal size × {share:g} (what drivers leave)"


def _value(name: str, text: str) -> str | int | float:
    if name in _TEXTS:
        return text
    number = float(text) * (1000 if name == "transistors_millions" else 1)
    return int(number) if name in _WHOLE or number == int(number) else number


def _disputed(row: Mapping[str, str]) -> set[str]:
    ours = {column: name for name, column in _FIELDS.items()}
    return {ours[column] for column in row["disagreement_fields"].split() if column in ours}


def _readings(source: str) -> tuple[dict[str, str], str]:
    """Codes a column, and the free text before them."""
    origin, _, coded = source.rpartition("readings (codes in sources.csv): ")
    codes = dict(part.split("=", 1) for part in coded.split("; ") if "=" in part)
    return codes, _public(re.sub(r"(\s*\|\|\s*)?\d{4}-\d\d-\d\d\s*$", "", origin).strip())


def _public(text: str) -> str:
    return text.replace("shared/data/wattgpu/", "WattGPU's ").replace(
        "value already in shared/data/gpus/", ""
    )


def _instances(path: Path, rename: Mapping[str, str], known: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in _rows(path):
        gpu = row["gpu_table_row"].removeprefix("AMD ").removeprefix("Intel ")
        gpu = rename.get(gpu, gpu)
        # A count of 0 or a fraction is a slice of a GPU, which no row here describes.
        whole = (
            row["gpu_count"].isdecimal() and int(row["gpu_count"]) > 0 and "fraction" not in row["gpu_model"]
        )
        if whole and gpu in known:
            found[row["instance_type"]] = {"gpu": gpu, "count": int(row["gpu_count"])}
    return found


def _column(row: Mapping[str, str], start: str) -> str:
    return next(value for name, value in row.items() if name.startswith(start))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))
