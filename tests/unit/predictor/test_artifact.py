"""Trained files: equal content gives equal bytes, and damage is told by the file's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper_predictor import ArtifactError, Predictor
from wattkeeper_predictor.artifact import Artifact, read_artifact, to_json, write_artifact
from wattkeeper_predictor.predictor import default_artifacts

SMALL = Artifact({"recipe": "wattgpu", "numbers": [1, 2.5]}, {"a.bin": b"\x00\x01", "b.json": b"[]"})


def edit(directory: Path, **changes: object) -> None:
    """Change the manifest as somebody with an editor does."""
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_artifact(tmp_path / "x", SMALL)
    back = read_artifact(tmp_path / "x")
    assert back.files == SMALL.files
    assert back.manifest["numbers"] == [1, 2.5]


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_artifact(tmp_path / name, SMALL)
    assert (tmp_path / "x/manifest.json").read_bytes() == (tmp_path / "y/manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: (d / "a.bin").write_bytes(b"other"), "a.bin"),
        (lambda d: (d / "a.bin").unlink(), "a.bin"),
        (lambda d: (d / "manifest.json").unlink(), "manifest.json"),
        (lambda d: (d / "manifest.json").write_text("{"), "manifest.json"),
        (lambda d: (d / "manifest.json").write_text('{"schema": 99}'), "schema"),
        (lambda d: edit(d, numbers=[1, 2.6]), "isn't as it was written"),
        (lambda d: edit(d, files=["a.bin"]), "isn't as it was written"),
        (lambda d: edit(d, manifest_sha256=None), "isn't as it was written"),
        (lambda d: (d / "manifest.json").write_bytes(b"\xff\xfe"), "manifest.json"),
        (lambda d: (d / "manifest.json").write_text("[]"), "schema"),
    ],
    ids=[
        "changed",
        "missing file",
        "no manifest",
        "torn manifest",
        "other schema",
        "edited by hand",
        "other files listed",
        "no hash of its own",
        "no text",
        "no object",
    ],
)
def test_damage_is_named(tmp_path: Path, damage, said: str) -> None:  # type: ignore[no-untyped-def]
    write_artifact(tmp_path, SMALL)
    damage(tmp_path)
    with pytest.raises(ArtifactError, match=said):
        Predictor.load(tmp_path)


def test_an_unknown_recipe_is_named(tmp_path: Path) -> None:
    write_artifact(tmp_path, Artifact({"recipe": "crystal-ball"}, {}))
    with pytest.raises(ArtifactError, match="crystal-ball"):
        Predictor.load(tmp_path)


def test_a_manifest_that_lacks_a_part_is_damaged(tmp_path: Path) -> None:
    shipped = read_artifact(default_artifacts("wattgpu"))
    manifest = {key: value for key, value in shipped.manifest.items() if key not in ("intervals", "files")}
    write_artifact(tmp_path, Artifact(manifest, shipped.files))
    with pytest.raises(ArtifactError, match="intervals"):
        Predictor.load(tmp_path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), _JSON, max_size=5))
def test_the_readable_form_is_the_same_json(value: dict[str, object]) -> None:
    assert json.loads(to_json(value)) == value
