"""One run of ``go build`` with progress shown and its errors made readable."""

import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import BuildError

PROGRESS_SECONDS = 15.0
TAIL_LINES = 20


@dataclass(frozen=True)
class GoBuild:
    """How to build packages of the module in folder ``module``."""

    go: Path
    module: Path
    flags: Sequence[str]
    environment: Mapping[str, str]
    say: Callable[[str], None]

    def run(self, programs: Mapping[str, str], output: Path) -> None:
        """Builds each package (program name → import path) into folder ``output``.

        Raises BuildError.
        """
        names = ", ".join(programs)
        self.say(f"Building {names} (once; kept in the cache)")
        started = time.monotonic()
        packages = list(programs.values())
        total = len(self._lines("list", "-deps", "-mod=readonly", *packages))
        target = f"{output}/" if len(packages) > 1 else str(output / next(iter(programs)))
        command = [str(self.go), "build", "-v", *self.flags, "-o", target, *packages]
        process = subprocess.Popen(
            command,
            cwd=self.module,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            tail = self._follow(process.stderr, names, total, started)
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()
        if process.returncode != 0:
            raise self._failure(names, tail)
        self.say(f"Built {names} in {duration(time.monotonic() - started)}")

    def module_directory(self, module: str) -> Path:
        """Where Go keeps the source of ``module``."""
        return Path(self._lines("list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module)[0])

    def _follow(self, output: Iterable[str], names: str, total: int, started: float) -> deque[str]:
        """Shows how far the build is; returns the last lines that are not package names."""
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        compiled, shown = 0, time.monotonic()
        for line in output:
            if is_package(line):
                compiled += 1
            else:
                tail.append(line.rstrip())
            if time.monotonic() - shown >= PROGRESS_SECONDS:
                shown = time.monotonic()
                self.say(f"  {names}: {compiled} of {total} packages, {duration(shown - started)}")
        return tail

    def _lines(self, *arguments: str) -> list[str]:
        # Downloads whatever is missing, so this is where an absent network shows.
        result = subprocess.run(
            [self.go, *arguments],
            cwd=self.module,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise self._failure(self.module.name, result.stderr.splitlines()[-TAIL_LINES:])
        return result.stdout.splitlines()

    def _environment(self) -> dict[str, str]:
        # The caller's own flags and workspaces must not change what is built; proxies and caches are theirs.
        return {**os.environ, **self.environment, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}

    def _failure(self, names: str, tail: Iterable[str]) -> BuildError:
        return BuildError(
            f"Go could not build {names} from {self.module}:\n"
            + "\n".join(f"    {line}" for line in tail)
            + "\nA download error: check the network and `go env GOPROXY`. "
            "No space: about 6 GB are needed for Go's caches (`go clean -cache` frees some). "
            "Killed: set WATTKEEPER_BUILD_JOBS=1 to use less memory. "
            "Then run again: what was compiled is kept."
        )


def is_package(line: str) -> bool:
    """Whether a line of ``go build -v`` names a package that was compiled."""
    return re.fullmatch(r"[\w.~-]+(?:/[\w.~+-]+)*", line.strip()) is not None


def duration(seconds: float) -> str:
    """``95.2`` as ``1 min 35 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
