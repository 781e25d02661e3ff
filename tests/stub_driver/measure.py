"""`wattkeeper tax measure --local` with a clock that only sleeping moves; run in a process over the stubs.

python -m tests.stub_driver.measure [option …]
"""

from __future__ import annotations

import sys

from typer.testing import CliRunner

from wattkeeper.cli import app, tax_local

START = 1_774_400_000.0


class VirtualClock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> float:
        return START + self._seconds

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds


def main() -> int:
    tax_local.SystemClock = VirtualClock
    result = CliRunner().invoke(app, ["tax", "measure", "--local", *sys.argv[1:]])
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
