"""Series as both sources give them, and what was wrong on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from wattkeeper.core.readings import Sample


@dataclass(frozen=True, slots=True)
class Series:
    """A metric's name, its labels, and its newest sample, in the exporter's own unit.

    The value may be NaN or infinite: a newest value that says nothing must hide the older ones of a series
    that ended, so it is judged where rows meet.
    """

    name: str
    labels: Mapping[str, str]
    sample: Sample


class FaultKind(StrEnum):
    """What can be wrong with single values. None of them is ever read as zero."""

    UNPARSABLE = "Unparsable"
    NOT_A_NUMBER = "NotANumber"
    BLANK = "Blank"  # DCGM's marks for missing, unsupported or forbidden values
    OUT_OF_RANGE = "OutOfRange"
    NO_GPU_IDENTITY = "NoGpuIdentity"
    STALE_POD = "StalePod"  # the labels name a pod that ended, or an earlier one of the same name
    UNKNOWN_POD = "UnknownPod"  # the labels name a pod that the cluster doesn't show
    NO_SERVER_IDENTITY = "NoServerIdentity"
    FOREIGN_CLUSTER = "ForeignCluster"  # of a node or pod that isn't in this cluster
    TARGET_FAILED = "TargetFailed"  # a page could not be scraped


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault: how often, and an example."""

    kind: FaultKind
    count: int
    example: str

    def __str__(self) -> str:
        return f"{self.kind} × {self.count}, e.g. {self.example}"


class Faults:
    """Collects faults while reading; one example of each kind is kept, the first in the alphabet, so that
    the order of series doesn't show."""

    def __init__(self) -> None:
        self._counts: Counter[FaultKind] = Counter()
        self._examples: dict[FaultKind, str] = {}

    def note(self, kind: FaultKind, example: str) -> None:
        self._counts[kind] += 1
        self._examples[kind] = min(example, self._examples.get(kind, example))

    def found(self) -> tuple[Fault, ...]:
        return tuple(Fault(kind, count, self._examples[kind]) for kind, count in sorted(self._counts.items()))
