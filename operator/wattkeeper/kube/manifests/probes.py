"""Probes of the model server's container."""

from __future__ import annotations

import math
from typing import Any

from wattkeeper.kube.manifests.engines import Engine

_STARTUP_PERIOD_SECONDS = 10


def probes(engine: Engine, port: int, start_budget_seconds: int) -> dict[str, Any]:
    """Startup for as long as loading may take; then readiness, and liveness that is slow to give up."""

    def asking(**timing: int) -> dict[str, Any]:
        return {"httpGet": {"path": engine.health_path, "port": port}, **timing}

    return {
        "startupProbe": asking(
            periodSeconds=_STARTUP_PERIOD_SECONDS,
            timeoutSeconds=5,
            failureThreshold=math.ceil(start_budget_seconds / _STARTUP_PERIOD_SECONDS),
        ),
        "readinessProbe": asking(periodSeconds=5, timeoutSeconds=5, failureThreshold=3),
        # A restart loads the model again: only an engine that is dead for minutes is worth it.
        "livenessProbe": asking(periodSeconds=20, timeoutSeconds=10, failureThreshold=6),
    }
