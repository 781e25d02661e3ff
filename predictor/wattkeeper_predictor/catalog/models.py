"""The model catalogue: configurations of open LLMs by Hugging Face id, with their source."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from wattkeeper_predictor.errors import ArtifactError, InvalidInput, UnknownModel
from wattkeeper_predictor.hf_config import model_from_config
from wattkeeper_predictor.specs import ModelSpec


class ModelCatalogue:
    """All catalogued models. Immutable; ids match without regard to case, as on Hugging Face."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        """``data`` is the parsed models.json; raises ``ArtifactError`` naming a model that is unsound."""
        try:
            specs = [_spec(entry) for entry in data["models"]]
        except (KeyError, TypeError, AttributeError) as broken:
            raise ArtifactError(
                f"the model catalogue is damaged ({broken!r}); reinstall the package"
            ) from broken
        self._specs = {spec.id.lower(): spec for spec in specs}

    @classmethod
    def load(cls) -> ModelCatalogue:
        """The catalogue shipped with the package."""
        return _load()

    def ids(self) -> tuple[str, ...]:
        """Ids of all models, as Hugging Face spells them."""
        return tuple(spec.id for spec in self._specs.values())

    def get(self, hf_id: str) -> ModelSpec:
        """The model of this id; raises ``UnknownModel``, which names the cure."""
        spec = self._specs.get(hf_id.strip().lower())
        if spec is None:
            near = difflib.get_close_matches(hf_id.lower(), self._specs, n=3, cutoff=0.75)
            raise UnknownModel(hf_id, [self._specs[key].id for key in near])
        return spec


@cache
def _load() -> ModelCatalogue:
    path = resources.files(__package__) / "models.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        raise ArtifactError(
            f"the model catalogue can't be read ({broken}); reinstall the package"
        ) from broken
    return ModelCatalogue(data)


def _spec(entry: Mapping[str, Any]) -> ModelSpec:
    try:
        spec = model_from_config(entry["id"], entry["config"])
    except InvalidInput as unsound:
        raise ArtifactError(f"the catalogue's entry of {entry['id']} is unsound: {unsound}") from unsound
    return replace(spec, sources=entry["sources"])
