"""Build models.json from a table of config.json values, WattGPU's model table and our decisions.

A model is left out, with the reason kept, unless we can stand behind it: its source is trusted, no
size is missing, its architecture is one we can count, and its count agrees with what is published (or
with an independent count, where the published one is only the name's round figure).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattkeeper_predictor.architectures import FAMILIES
from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.hf_config import model_from_config

_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "sliding_window",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "num_shared_experts",
    "shared_expert_intermediate_size",
    "first_k_dense_replace",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "v_head_dim",
)
_QUANTIZED_NAME = re.compile(r"(NVFP4|FP8|AWQ|GPTQ|Int4|Int8)", re.IGNORECASE)
_TOLERANCE = 0.03
_ROUNDING = 0.006


@dataclass(frozen=True, slots=True)
class BuiltModels:
    """The content of models.json, and why each model not in it was left out."""

    data: dict[str, Any]
    left_out: dict[str, str]


def build_models(configs: Path, wattgpu_models: Path, decisions: Path) -> BuiltModels:
    """Read both tables; the table of configurations wins where a model is in both."""
    decided = json.loads(decisions.read_text(encoding="utf-8"))
    entries: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for row in _rows(configs, ","):
        try:
            entries[row["hf_id"]] = _entry(row, decided)
        except _LeftOut as why:
            left_out[row["hf_id"]] = str(why)
    for row in _rows(wattgpu_models, ";"):
        if row["model_name"] in entries:
            continue
        try:
            entries[row["model_name"]] = _measured_entry(row, decided)
            left_out.pop(row["model_name"], None)
        except _LeftOut as why:
            left_out.setdefault(row["model_name"], str(why))
    ordered = [entries[name] for name in sorted(entries, key=str.lower)]
    return BuiltModels({"models": ordered}, dict(sorted(left_out.items())))


class _LeftOut(Exception):  # noqa: N818 - a verdict, not a fault
    """A model we can't stand behind; the text says why."""


def _entry(row: Mapping[str, str], decided: Mapping[str, Any]) -> dict[str, Any]:
    name, notes = row["hf_id"], row["notes"]
    family = _family(row, decided["model_type"])
    _check_trust(row, family, decided)
    config: dict[str, Any] = {"model_type": family}
    for key in _SIZES:
        if row[key]:
            config[key] = int(float(row[key]))
    if row["tie_word_embeddings"]:
        config["tie_word_embeddings"] = row["tie_word_embeddings"] == "True"
    if row["torch_dtype"]:
        config["torch_dtype"] = row["torch_dtype"]
    config |= _quantization(name, row["quant_method"])
    said = {"config": _public(row["source"]), "tier": notes.split(" |")[0]}
    return _checked(name, config, said, decided, _published(row))


def _measured_entry(row: Mapping[str, str], decided: Mapping[str, Any]) -> dict[str, Any]:
    """A model of WattGPU's table, an ``AutoConfig`` dump with other column names."""
    renamed = {"num_hidden_layers": "num_layers", "max_position_embeddings": "max_sequence_length"}
    config: dict[str, Any] = {"model_type": row["model_type"]}
    if row["model_type"] not in FAMILIES:
        raise _LeftOut(f"architecture {row['model_type']} isn't supported")
    for key in ("num_hidden_layers", "max_position_embeddings", *_SIZES[1:7], "sliding_window"):
        value = row.get(renamed.get(key, key), "")
        if value:
            config[key] = int(float(value))
    for flag in ("tie_word_embeddings", "use_sliding_window"):
        if row[flag]:
            config[flag] = row[flag].upper() == "TRUE"
    if row["dtype"]:
        config["torch_dtype"] = row["dtype"]
    said = {"config": "WattGPU model_features.csv (AutoConfig dump)", "tier": "AutoConfig dump"}
    return _checked(row["model_name"], config, said, decided, None)


def _checked(
    name: str,
    config: dict[str, Any],
    said: dict[str, str],
    decided: Mapping[str, Any],
    expected_billion: float | None,
) -> dict[str, Any]:
    for key, (value, why) in decided["set"].get(name, {}).items():
        config[key] = value
        said[key] = why
    if name in decided["towers"]:
        config["vision_config"] = decided["towers"][name]
    try:
        spec = model_from_config(name, config)
    except InvalidInput as unsound:
        raise _LeftOut(str(unsound).split(";")[0]) from unsound
    count = spec.parameters_total_billion
    disagrees = expected_billion and abs(count - expected_billion) > max(
        _ROUNDING, _TOLERANCE * expected_billion
    )
    if disagrees and name not in decided["accept"]:
        raise _LeftOut(f"counts {count:.2f} billion where {expected_billion} are published")
    return {"id": name, "config": config, "sources": said}


def _family(row: Mapping[str, str], by_prefix: Mapping[str, str]) -> str:
    # "gemma3 (text: gemma3_text)": the outer type names the family.
    family = row["model_type"].split(" ")[0]
    if not family:
        family = next((kind for start, kind in by_prefix.items() if row["hf_id"].startswith(start)), "")
    if family not in FAMILIES:
        raise _LeftOut(f"architecture {family or 'unknown'} isn't supported")
    return family


def _check_trust(row: Mapping[str, str], family: str, decided: Mapping[str, Any]) -> None:
    name, notes = row["hf_id"], row["notes"]
    if name in decided["leave_out"]:
        raise _LeftOut(decided["leave_out"][name])
    if name in decided["accept"]:
        return
    if "LOW RELIABILITY" in notes or notes.startswith("tier D"):
        raise _LeftOut("its source isn't reliable enough")
    if "multimodal" in notes and name not in decided["towers"]:
        raise _LeftOut("the sizes of its vision or audio encoder weren't read")
    partial = re.search(r"PARTIAL, not in the source: (\S+)", notes)
    if partial:
        missing = set(partial[1].split(","))
        if missing != {"num_key_value_heads"} or family not in decided["multi_head"]:
            raise _LeftOut(f"{', '.join(sorted(missing))} wasn't read")


def _quantization(name: str, method: str) -> dict[str, Any]:
    if not method:
        if _QUANTIZED_NAME.search(name):
            raise _LeftOut("its name says that it is quantized, its configuration doesn't say how")
        return {}
    kind, _, detail = method.partition(" ")
    algorithm = detail.strip("()")
    return {"quantization_config": {"quant_method": kind, **({"quant_algo": algorithm} if algorithm else {})}}


def _published(row: Mapping[str, str]) -> float | None:
    """An independent count where there is one: the table's own, made by other code from the same sizes
    and compared there with what is published; for a source without the tie flag only the latter."""
    counted = re.search(r"computed total ([\d.]+)B", row["notes"])
    if counted and row["tie_word_embeddings"]:
        return float(counted[1])
    published = row["published_total_params_b"]
    rounded = published and float(published) < 20 and float(published) == int(float(published))
    if counted and rounded and float(published) > 1:
        # A name's round figure: "7" stands for anything from 6.5 to 8.5.
        low, high = float(published) - 0.5, float(published) + 1.5
        if low <= float(counted[1]) <= high:
            return float(counted[1])
    return float(published) if published else None


def _public(source: str) -> str:
    return source.replace("wattgpu model_features shared/data/wattgpu/", "WattGPU ")


def _rows(path: Path, separator: str) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table, delimiter=separator))
