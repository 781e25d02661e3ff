"""What keeps telemetry from being evidence. Nothing is evicted while one of these stands.

    TelemetryError
    ├── SourceError              no answer
    │   ├── UnreachableError
    │   ├── TooSlowError
    │   └── AccessRefusedError
    ├── AnswerError              an answer that can't be used
    │   ├── QueryRefusedError
    │   ├── MalformedAnswerError
    │   └── PartialAnswerError
    └── EvidenceError            an answer that proves nothing about this cluster now
        ├── NoGpuMetricsError
        ├── StaleError
        ├── ClockSkewError
        ├── WrongClusterError
        └── AmbiguousClusterError

All are temporary: the next look may succeed. `reason` goes into the TelemetryHealthy condition.
"""

from __future__ import annotations

from typing import ClassVar


class TelemetryError(Exception):
    """Telemetry can't be used now; the message says what was found and what to do."""

    reason: ClassVar[str] = "TelemetryFailed"


class SourceError(TelemetryError):
    """There is no answer."""


class UnreachableError(SourceError):
    reason = "Unreachable"


class TooSlowError(SourceError):
    reason = "TooSlow"


class AccessRefusedError(SourceError):
    reason = "AccessRefused"


class AnswerError(TelemetryError):
    """There is an answer, and it can't be used."""


class QueryRefusedError(AnswerError):
    reason = "QueryRefused"


class MalformedAnswerError(AnswerError):
    reason = "MalformedAnswer"


class PartialAnswerError(AnswerError):
    """Some of the data could not be read: what is missing may be what says busy."""

    reason = "PartialAnswer"


class EvidenceError(TelemetryError):
    """The answer is sound and says nothing about this cluster now."""


class NoGpuMetricsError(EvidenceError):
    reason = "NoGpuMetrics"


class StaleError(EvidenceError):
    reason = "StaleSamples"


class ClockSkewError(EvidenceError):
    reason = "ClockSkew"


class WrongClusterError(EvidenceError):
    reason = "WrongCluster"


class AmbiguousClusterError(EvidenceError):
    reason = "AmbiguousCluster"
