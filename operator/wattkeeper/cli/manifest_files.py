"""Manifests from files: YAML or JSON, several documents, Lists as `kubectl get -o yaml` prints them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from wattkeeper.api.errors import shorten

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
        return _text(self.resource.get("kind"))

    @property
    def namespace(self) -> str:
        return _text(self._metadata.get("namespace")) or "default"

    @property
    def name(self) -> str:
        return _text(self._metadata.get("name"))

    @property
    def _metadata(self) -> Mapping[str, Any]:
        metadata = self.resource.get("metadata")
        return metadata if isinstance(metadata, Mapping) else {}

    def error(self, problem: object) -> InputError:
        """An error of this resource; `problem` begins with the field."""
        named = f"{self.kind} {self.name}".strip()
        return InputError(f"{self.where}{f' ({named})' if named else ''}: {problem}")


def _text(value: Any) -> str:
    """A name as it stands there; what isn't a text is spelled, for the error that it will give."""
    return value if isinstance(value, str) else shorten(value) if value else ""


def read_manifests(source: str) -> list[Manifest]:
    """All resources of a file, `-` being standard input. Raises InputError."""
    name = "standard input" if source == STDIN else source
    return [
        manifest
        for number, document in enumerate(read_documents(source), start=1)
        if document is not None
        for manifest in _resources(f"{name}: document {number}", document)
    ]


def read_documents(source: str) -> list[Any]:
    """All documents of a YAML or JSON file, `-` being standard input. Raises InputError."""
    name = "standard input" if source == STDIN else source
    try:
        return list(yaml.load_all(_read(source), _Loader))
    except yaml.YAMLError as error:
        raise InputError(f"{name}: no valid YAML: {_in_one_line(error)}") from None
    except RecursionError:
        raise InputError(f"{name}: nested too deep: check the indentation") from None


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
    manifest = _resource(where, document)
    if not _is_list(manifest):
        yield manifest
        return
    items = manifest.resource["items"] or []
    if not isinstance(items, list):
        raise manifest.error("items: must be a list")
    # The API server leaves out of a typed list's items what the list says for all of them.
    said = {"apiVersion": manifest.resource.get("apiVersion"), "kind": manifest.kind.removesuffix("List")}
    for number, item in enumerate(items, start=1):
        each = _resource(f"{where}, item {number}", {**said, **item} if isinstance(item, Mapping) else item)
        if _is_list(each):
            # A few aliases would make Lists of Lists stand for any number of resources.
            raise each.error("kind: is a List within a List: put its items into the outer one")
        yield each


def _resource(where: str, document: Any) -> Manifest:
    if not isinstance(document, Mapping):
        raise InputError(f"{where}: is no resource: write a map with apiVersion, kind and metadata")
    manifest = Manifest(where, document)
    if not manifest.kind:
        raise manifest.error("kind: is missing: write it, such as kind: LLMDeployment")
    return manifest


def _is_list(manifest: Manifest) -> bool:
    return manifest.kind.endswith("List") and "items" in manifest.resource


def _in_one_line(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} at line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that leaves times as text, refuses a key that is written twice, and names the place."""

    yaml_implicit_resolvers: ClassVar[Mapping[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError):
            # PyYAML's own constructors stumble over values that their tag doesn't fit, such as !!int x.
            tag = node.tag.removeprefix("tag:yaml.org,2002:")
            raise _at(node, f"{shorten(node.value)} can't be read as {tag}: correct it or quote it") from None


def _mapping(loader: Any, node: yaml.Node) -> dict[Any, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise _at(node, "a map is needed here")
    seen: set[str] = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise _at(key_node, "a key must be a text")
        if key_node.value in seen and key_node.tag != "tag:yaml.org,2002:merge":
            raise _at(key_node, f"the key {key_node.value!r} is there twice: keep one of them")
        seen.add(key_node.value)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


def _at(node: yaml.Node, problem: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
