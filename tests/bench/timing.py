"""How a benchmark measures: many runs after a warm-up, percentiles, in seconds of wall time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def measure(
    action: Callable[[], object], *, runs: int, warm_up: int = 1, before: Callable[[], object] | None = None
) -> dict[str, float | int]:
    """Time `action` alone; `before` is called ahead of each run, untimed."""
    seconds = []
    gc.collect()
    for run in range(warm_up + runs):
        if before is not None:
            before()
        began = time.perf_counter()
        action()
        elapsed = time.perf_counter() - began
        if run >= warm_up:
            seconds.append(elapsed)
    seconds.sort()
    return {
        "runs": runs,
        "min_seconds": seconds[0],
        "median_seconds": percentile(seconds, 50),
        "p99_seconds": percentile(seconds, 99),
        "max_seconds": seconds[-1],
    }


def percentile(ordered: list[float], percent: float) -> float:
    """The nearest-rank percentile of ascending values."""
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]
