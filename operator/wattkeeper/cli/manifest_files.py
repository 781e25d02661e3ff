"""Manifests from files: YAML or JSON, several documents, Lists as `kubectl get -o yaml` prints them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

STDIN = "-"
_MOST_BYTES = 256 * 1024 * 1024


class InputError(ValueError):
    """Input that can't be used: where it stands, what is wrong and what to do, on one line."""


class BadInputError(ValueError):
    """All that is wrong with the input."""

    def __init__(self, errors: Iterable[InputError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(map(str, self.errors)))


@dataclass(frozen=True, slots=True)
class Manifest:
    """One resource and where it was read."""

    where: str  # file and document, and the item of a List
    resource: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.resource.get("kind") or "")

    @property
    def namespace(self) -> str:
        return str(self._metadata.get("namespace") or "default")

    @property
    def name(self) -> str:
        return str(self._metadata.get("name") or "")

    @property
    def _metadata(self) -> Mapping[str, Any]:
        metadata = self.resource.get("metadata")
        return metadata if isinstance(metadata, Mapping) else {}

    def error(self, problem: object) -> InputError:
        """An error of this resource; `problem` begins with the field."""
        named = f"{self.kind} {self.name}".strip()
        return InputError(f"{self.where}{f' ({named})' if named else ''}: {problem}")


def read_manifests(source: str) -> list[Manifest]:
    """All resources of a file, `-` being standard input. Raises InputError."""
    name = "standard input" if source == STDIN else source
    try:
        documents = list(yaml.load_all(_read(source), _Loader))
    except yaml.YAMLError as error:
        raise InputError(f"{name}: no valid YAML: {_in_one_line(error)}") from None
    except RecursionError:
        raise InputError(f"{name}: nested too deep: check the indentation") from None
    return [
        manifest
        for number, document in enumerate(documents, start=1)
        if document is not None
        for manifest in _resources(f"{name}: document {number}", document)
    ]


def _read(source: str) -> bytes:
    try:
        if source == STDIN:
            return _bounded(sys.stdin.buffer.read(_MOST_BYTES + 1), "standard input")
        with Path(source).open("rb") as file:
            return _bounded(file.read(_MOST_BYTES + 1), source)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            f"{source}: can't be read ({reason}): name a file, or - for standard input"
        ) from None


def _bounded(content: bytes, name: str) -> bytes:
    if len(content) > _MOST_BYTES:
        raise InputError(f"{name}: larger than {_MOST_BYTES >> 20} MiB: leave out what isn't needed")
    return content


def _resources(where: str, document: Any) -> Iterator[Manifest]:
    if not isinstance(document, Mapping):
        raise InputError(f"{where}: is no resource: write a map with apiVersion, kind and metadata")
    manifest = Manifest(where, document)
    if not manifest.kind:
        raise manifest.error("kind: is missing: write it, such as kind: LLMDeployment")
    if not manifest.kind.endswith("List") or "items" not in document:
        yield manifest
        return
    items = document["items"] or []
    if not isinstance(items, list):
        raise manifest.error("items: must be a list")
    for number, item in enumerate(items, start=1):
        yield from _resources(f"{where}, item {number}", item)


def _in_one_line(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} at line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that leaves times as text and refuses a key that is written twice."""

    yaml_implicit_resolvers: ClassVar[Mapping[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key in seen and key_node.tag != "tag:yaml.org,2002:merge":
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is there twice: keep one of them", key_node.start_mark
            )
        if key is not None:
            seen.add(key)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
