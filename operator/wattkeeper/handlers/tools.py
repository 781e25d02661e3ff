"""What everyone at work shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wattkeeper.handlers.children import Children
from wattkeeper.handlers.metrics import Metrics
from wattkeeper.handlers.reporter import Reporter
from wattkeeper.kube.executor import Executor
from wattkeeper.kube.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Tools:
    """The leader's connections to the cluster. `clock` counts seconds from any moment."""

    executor: Executor
    snapshot: Snapshot
    children: Children
    reporter: Reporter
    metrics: Metrics
    clock: Callable[[], float]
