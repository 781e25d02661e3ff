"""Models of batch sweeps: by id from the catalogue, from a list of those it lacks, or by likeness.

A sweep's table gives total and active parameters but no architecture. Where nobody knows the id, the shape
(layers, widths, heads) of the catalogued model nearest in both sizes stands in, and is said to.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from wattkeeper_predictor.catalog import ModelCatalogue
from wattkeeper_predictor.errors import UnknownModel
from wattkeeper_predictor.specs import ModelSpec

_FORMAT_SUFFIX = re.compile(r"[-_](FP8|NVFP4|MXFP4|FP4|AWQ|GPTQ|BF16|INT4|INT8)([-_].*)?$", re.IGNORECASE)


def sweep_model(model_id: str, total_billion: float, active_billion: float) -> tuple[ModelSpec, str | None]:
    """The model, and which other model's shape stands in for its own (None: its own is known)."""
    bare = _FORMAT_SUFFIX.sub("", model_id)
    for name in (model_id, bare):
        known = _listed().get(name.lower()) or _catalogued(name)
        if known is not None:
            return replace(known, id=model_id, native_quantization=None, max_context_tokens=None), None
    like = min(_catalogue_specs(), key=lambda spec: _distance(spec, total_billion, active_billion))
    shaped = replace(
        like,
        id=model_id,
        parameters_total_billion=total_billion,
        parameters_active_billion=active_billion,
        native_quantization=None,
        max_context_tokens=None,
    )
    return shaped, like.id


def _catalogued(model_id: str) -> ModelSpec | None:
    try:
        return ModelCatalogue.load().get(model_id)
    except UnknownModel:
        return None


def _distance(spec: ModelSpec, total: float, active: float) -> float:
    far = abs(math.log(spec.parameters_total_billion / total))
    return (
        far
        + abs(math.log(spec.parameters_active_billion / active))
        + (10.0 if spec.is_mixture_of_experts != (active < 0.95 * total) else 0.0)
    )


def _catalogue_specs() -> list[ModelSpec]:
    catalogue = ModelCatalogue.load()
    return [catalogue.get(name) for name in catalogue.ids()]


@cache
def _listed() -> dict[str, ModelSpec]:
    text = resources.files(__package__).joinpath("sweep_models.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    specs = {entry["id"].lower(): ModelSpec(**entry) for entry in data["models"]}
    for name, other in data["same_as"].items():
        spec = specs.get(other.lower()) or _catalogued(other)
        if spec is not None:
            specs[name.lower()] = replace(spec, id=name)
    return specs
