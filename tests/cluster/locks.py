"""A lock between processes, released by the kernel even when its holder is killed."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds ``path`` locked; says so when it has to wait for another process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if say is not None:
                say(f"Waiting for another process that holds {path}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
