"""Writing catalogue files: one entry a line, so that a change shows as a line in review."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Write ``data``; each list element and each key of a second-level object gets its own line."""
    parts = [f"{json.dumps(key)}: {_block(value)}" for key, value in data.items()]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _block(value: Any) -> str:
    if isinstance(value, Mapping):
        lines = [f"  {_line(key)}: {_line(inner)}" for key, inner in value.items()]
        return "{\n" + ",\n".join(lines) + "\n}" if lines else "{}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"  {_line(inner)}" for inner in value) + "\n]" if value else "[]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
