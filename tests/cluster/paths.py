"""Where the local cluster keeps things: never inside the work tree."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
GO_MODULES = REPOSITORY / "tools" / "go"


def cache_directory() -> Path:
    """Built programs: they cost minutes to make again and are safe to delete."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "wattkeeper"


def state_directory() -> Path:
    """One folder a cluster: its keys, data, logs and process ids."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "wattkeeper" / "clusters"


def _xdg(variable: str, default: str) -> Path:
    # The XDG specification says to ignore a relative path.
    value = Path(os.environ.get(variable, ""))
    return value if value.is_absolute() else Path.home() / default
