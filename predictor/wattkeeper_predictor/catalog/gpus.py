"""The GPU catalogue: specifications with their sources, found under any of a GPU's names."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from wattkeeper_predictor.errors import ArtifactError, UnknownGpu
from wattkeeper_predictor.specs import GpuSpec

from .labels import GpuTokens, LabelMatch, normalised, select, split_suffix, tokens_of

_MIB = 1024**2


class GpuCatalogue:
    """All catalogued GPUs. Immutable; ``load`` reads and checks the package's own file once."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        """``data`` is the parsed gpus.json; raises ``InvalidInput`` or ``ArtifactError`` if unsound."""
        try:
            self._specs = {entry["name"]: _spec(entry) for entry in data["gpus"]}
            self._tokens = [_tokens(entry, self._specs.get(entry["name"])) for entry in data["gpus"]]
            self._tokens += [_tokens(entry, None) for entry in data["incomplete"]]
            self._incomplete = {entry["name"]: tuple(entry["missing"]) for entry in data["incomplete"]}
            self._aliases = {normalised(alias): name for alias, name in data["aliases"].items()}
            self._instances = {normalised(kind): row for kind, row in data["instances"].items()}
        except (KeyError, TypeError, AttributeError) as broken:
            raise ArtifactError(
                f"the GPU catalogue is damaged ({broken!r}); reinstall the package"
            ) from broken
        self._aliases |= {normalised(name): name for name in (*self._specs, *self._incomplete)}
        unknown = {*self._aliases.values()} - {*self._specs, *self._incomplete}
        if unknown:
            raise ArtifactError(
                f"the GPU catalogue has aliases of unknown GPUs: {', '.join(sorted(unknown))}"
            )

    @classmethod
    def load(cls) -> GpuCatalogue:
        """The catalogue shipped with the package."""
        return _load()

    def names(self) -> tuple[str, ...]:
        """Names of all GPUs with complete figures."""
        return tuple(self._specs)

    def get(self, name: str) -> GpuSpec:
        """The GPU of this catalogue name or label; raises ``UnknownGpu`` naming near ones."""
        spec = self.match(name)
        if spec is None:
            near = difflib.get_close_matches(name, self._specs, n=3)
            raise UnknownGpu(name, near, self.lookup(name).candidates)
        return spec

    def match(self, label_or_name: str, *, memory_mib: float | None = None) -> GpuSpec | None:
        """The whole GPU a name stands for, or None; see ``lookup`` for slices and sharing."""
        name = self.lookup(label_or_name, memory_mib=memory_mib).gpu_name
        return None if name is None else self._specs.get(name)

    def lookup(self, label_or_name: str, *, memory_mib: float | None = None) -> LabelMatch:
        """Read a name of NVML, GPU feature discovery, a cloud's label, or an instance type.

        ``memory_mib`` (``nvidia.com/gpu.memory``, ``instance-gpu-memory``) decides where a name is
        shared by GPUs of different sizes; it is ignored for MIG slices, whose memory is their own.
        """
        suffix = split_suffix(label_or_name.strip())
        exact = self._aliases.get(normalised(suffix.bare_name)) or self._instance_gpu(suffix.bare_name)
        hint = None if suffix.mig else memory_mib
        candidates = (exact,) if exact else select(suffix.bare_name, self._tokens, hint)
        name = candidates[0] if len(candidates) == 1 else None
        return LabelMatch(
            gpu_name=name if name in self._specs else None,
            candidates=() if name else candidates,
            mig=suffix.mig,
            mig_invalid=suffix.mig_invalid,
            shared=suffix.shared,
            incomplete=self._incomplete.get(name, ()) if name else (),
        )

    def gpus_of_instance(self, instance_type: str) -> tuple[GpuSpec, int] | None:
        """GPU and count of a cloud instance type; None if unknown or if it has a part of a GPU."""
        row = self._instances.get(normalised(instance_type))
        if row is None or row["gpu"] not in self._specs:
            return None
        return self._specs[row["gpu"]], row["count"]

    def _instance_gpu(self, name: str) -> str | None:
        row = self._instances.get(normalised(name))
        return None if row is None else str(row["gpu"])


@cache
def _load() -> GpuCatalogue:
    path = resources.files(__package__) / "gpus.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as broken:
        raise ArtifactError(f"the GPU catalogue can't be read ({broken}); reinstall the package") from broken
    return GpuCatalogue(data)


def _spec(entry: Mapping[str, Any]) -> GpuSpec:
    values = dict(entry["values"])
    return GpuSpec(
        name=entry["name"],
        memory_bytes=round(values.pop("memory_mib") * _MIB),
        sources=entry["sources"],
        **values,
    )


def _tokens(entry: Mapping[str, Any], spec: GpuSpec | None) -> GpuTokens:
    names = [entry["name"], *filter(None, [entry["values"].get("nvml_name")]), *entry.get("details", [])]
    core, details = tokens_of(names, entry["values"].get("memory_nominal_gb"))
    form = str(entry["values"].get("form_factor") or "")
    memory_mib = spec.memory_bytes / _MIB if spec else None
    return GpuTokens(entry["name"], core, details, form.startswith("SXM"), memory_mib)
