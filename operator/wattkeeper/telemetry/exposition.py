"""The Prometheus text exposition format, as dcgm-exporter and model servers write it.

`prometheus_client.parser` reads it, with three cares:

* It is given sample lines only. With the TYPE comments it renames every counter whose name doesn't end in
  `_total`, such as DCGM's energy counter and all of TGI's.
* It raises for the whole page at the first line that it can't read, so it is given one line at a time: one
  value that an exporter failed to convert mustn't hide the others.
* It takes 0.1 ms for a line of dcgm-exporter, nearly all of it for the labels, and an exporter writes the
  same labels beside each of its metrics. So each label block is read once a page.

A page that was cut off is refused, for its last number may be cut off too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from prometheus_client.parser import text_fd_to_metric_families

from wattkeeper.core.readings import Sample
from wattkeeper.telemetry.series import FaultKind, Faults, Series

# Name, label block, value, and perhaps a timestamp in ms. What doesn't look like this is left to the library.
_LINE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*+)"
    r'(\{(?:[^"{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+\})?'
    r"[ \t]+([^ \t_]++)(?:[ \t]+(-?[0-9]++))?"
)
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class ExpositionError(ValueError):
    """The page as a whole can't be used."""


def parse(
    text: str, scraped_at: float, faults: Faults, wanted: Callable[[str], bool] | None = None
) -> list[Series]:
    """The page's series, each with its sample; its value may be NaN.

    `scraped_at` (Unix seconds) dates the samples that carry no timestamp of their own. `wanted` says by name
    which metrics to read: histogram buckets make up most of a model server's page. Raises ExpositionError.
    """
    if text and not text.endswith("\n"):
        raise ExpositionError("the page is cut off: its last line doesn't end")
    found = []
    blocks: dict[str, Mapping[str, str]] = {"": {}}
    for ended in text.split("\n"):  # splitlines would also split at characters that labels may hold
        line = ended.strip()
        if not line or line.startswith("#"):
            continue
        name = _NAME.match(line)
        if wanted is not None and name is not None and not wanted(name.group()):
            continue
        try:
            found.append(_parse_line(line, scraped_at, blocks))
        except (ValueError, IndexError, OverflowError):
            faults.note(FaultKind.UNPARSABLE, line[:200])
    return found


def _parse_line(line: str, scraped_at: float, blocks: dict[str, Mapping[str, str]]) -> Series:
    match = _LINE.fullmatch(line)
    if match is None:
        return _parse_by_library(line, scraped_at)
    name, block, value, timestamp = match.groups(default="")
    labels = blocks.get(block)
    if labels is None:
        labels = blocks[block] = _parse_by_library(f"{name}{block} 0", scraped_at).labels
    return Series(name, labels, Sample(float(value), int(timestamp) / 1000 if timestamp else scraped_at))


def _parse_by_library(line: str, scraped_at: float) -> Series:
    for family in text_fd_to_metric_families(iter((line,))):  # type: ignore[arg-type]  # any iterable of lines
        for sample in family.samples:
            if not _NAME.fullmatch(sample.name):
                raise ValueError("not a metric's name")
            at = scraped_at if sample.timestamp is None else float(sample.timestamp)
            return Series(sample.name, sample.labels, Sample(float(sample.value), at))
    raise ValueError("no sample in the line")
