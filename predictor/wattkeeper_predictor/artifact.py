"""Trained files on disk: a manifest and what it lists. XGBoost's own format and JSON, never a pickle.

Writing is deterministic: equal content gives equal bytes. Reading checks the schema and the hashes of the
manifest and of each file, so that what was changed by hand isn't served, and raises ``ArtifactError`` with
the file's name and the cure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ArtifactError

SCHEMA = 1
MANIFEST = "manifest.json"
_DIGEST = "manifest_sha256"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A manifest (JSON values) and the bytes of the files it lists."""

    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]


def write_artifact(directory: Path, artifact: Artifact) -> None:
    """Write all files; the manifest last, with their hashes, so that a torn write is detected."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in artifact.files.items():
        (directory / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(artifact.files.items())}
    manifest = {"schema": SCHEMA, **artifact.manifest, "files": hashes}
    manifest[_DIGEST] = _digest(manifest)
    (directory / MANIFEST).write_text(to_json(manifest), encoding="utf-8")


def read_artifact(directory: Path) -> Artifact:
    """Read and check a directory that ``write_artifact`` wrote."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as missing:
        raise ArtifactError(
            f"{directory / MANIFEST} is missing; train there first, or give another path"
        ) from missing
    except (OSError, ValueError) as broken:
        raise ArtifactError(f"{directory / MANIFEST} can't be read ({broken}); train again") from broken
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise ArtifactError(f"{directory / MANIFEST} isn't of schema {SCHEMA}; train again with this version")
    if manifest.pop(_DIGEST, None) != _digest(manifest):
        raise ArtifactError(f"{directory / MANIFEST} isn't as it was written; train again or reinstall")
    files = {name: _checked(directory / name, digest) for name, digest in manifest.get("files", {}).items()}
    return Artifact(manifest, files)


def to_json(value: Mapping[str, Any]) -> str:
    """Deterministic, with short lists on one line: readable in review, equal for equal content."""
    return _pretty(value, 0) + "\n"


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(manifest).encode()).hexdigest()


def _checked(path: Path, digest: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as broken:
        raise ArtifactError(f"{path} can't be read ({broken}); train again") from broken
    if hashlib.sha256(content).hexdigest() != digest:
        raise ArtifactError(f"{path} isn't the file its manifest lists; train again or reinstall")
    return content


def _pretty(value: Any, depth: int) -> str:
    if (
        isinstance(value, Mapping)
        and value
        and any(isinstance(inner, (Mapping, list)) for inner in value.values())
    ):
        pad = "  " * (depth + 1)
        lines = [f"{pad}{json.dumps(str(key))}: {_pretty(inner, depth + 1)}" for key, inner in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + "  " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        pad = "  " * (depth + 1)
        return (
            "[\n" + ",\n".join(pad + _pretty(inner, depth + 1) for inner in value) + "\n" + "  " * depth + "]"
        )
    return json.dumps(value, ensure_ascii=False)
