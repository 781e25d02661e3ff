"""A progress bar for long simulations, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from wattkeeper.sim.residents import SharedModel


@contextmanager
def reported(models: Sequence[SharedModel], *, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """What to call with the number of requests just simulated; None where nobody looks."""
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  for terminals only
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    hints = [model.trace.size_hint for model in models]
    total = sum(hints) if all(hints) else None
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn("requests"))
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("simulating", total=total)
        yield lambda requests: bar.advance(task, requests)
