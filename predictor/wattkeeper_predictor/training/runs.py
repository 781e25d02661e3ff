"""Measured runs, from either of two CSV formats.

* *Summary*: a row a run with ``model, gpu_type, lambda_qps`` (−1 is offline), mean ``prompt_tokens`` and
  ``generation_tokens`` a request, ``power_w``, ``e2e_s`` (mean seconds a request), ``tokens_per_s``.
* *Upstream* (WattGPU's own): ``gpu_0_power_draw_watts_mean``, ``generation_tokens_total``,
  ``measurement_duration`` and lists a request as text; ``lambda_qps`` is blank offline.

ITL is the inverse throughput offline. In the server scenario it is, upstream, the mean over requests
of (end-to-end − time to first token) ÷ (tokens − 1), requests of one token left out; the summary has no
first-token times, so there it is end-to-end ÷ tokens.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.levels import Level, level_of_rate

from .tables import open_table

_SUMMARY_COLUMNS = {
    "model",
    "gpu_type",
    "lambda_qps",
    "generation_tokens",
    "power_w",
    "e2e_s",
    "tokens_per_s",
}
_UPSTREAM_COLUMNS = {
    "model",
    "gpu_type",
    "lambda_qps",
    "generation_tokens_total",
    "measurement_duration",
    "gpu_0_power_draw_watts_mean",
    "time_to_first_token_seconds_events",
    "e2e_request_latency_seconds_events",
    "request_generation_tokens",
}
_NAMED_BROKEN_ROWS = 5
# Nothing that is measured here lies beyond, in seconds, watts or tokens; what does is a mistake.
_LEAST, _MOST = 1e-9, 1e12


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run. Token counts are means a request; power is the board's mean.

    ``requests`` is how many the run had, ``requests_per_second`` the rate it was meant to have and
    ``duty`` the mean number of requests in the system that it came to have (Server; NaN where the file
    doesn't tell). ``with_first_token`` says that the ITL counts the wait for the first token.
    """

    model: str
    gpu: str
    level: Level
    prompt_tokens: float
    output_tokens: float
    power_watts: float
    itl_seconds: float
    requests: float = math.nan
    requests_per_second: float = math.nan
    duty: float = math.nan
    with_first_token: bool = False


@dataclass(frozen=True, slots=True)
class RunTable:
    """The sound runs of a file, and what was wrong with the others (line of the file: reason)."""

    runs: tuple[Run, ...]
    broken: tuple[tuple[int, str], ...]

    def complaint(self) -> str | None:
        """One line for the user about broken rows, None if there are none."""
        if not self.broken:
            return None
        named = "; ".join(f"line {line}: {reason}" for line, reason in self.broken[:_NAMED_BROKEN_ROWS])
        return f"{len(self.broken)} broken rows left out ({named})"


def read_runs(path: Path, *, strict: bool = False) -> RunTable:
    """Read a file of either format.

    Raises ``InvalidInput`` if the columns are neither format's, no sound row is left, or, with
    ``strict``, any row is broken.
    """
    runs: list[Run] = []
    broken: list[tuple[int, str]] = []
    with open_table(path) as reader:
        parse = _format(path, set(reader.fieldnames or ()))
        for row in reader:
            try:
                runs.append(parse(row))
            except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError) as wrong:
                broken.append((reader.line_num, str(wrong) or type(wrong).__name__))
    table = RunTable(tuple(runs), tuple(broken))
    if not runs or (strict and broken):
        raise InvalidInput("runs", f"{path.name}: {table.complaint() or 'it has no rows'}; mend the file")
    return table


def _format(path: Path, columns: set[str]) -> Callable[[Mapping[str, str]], Run]:
    if columns >= _SUMMARY_COLUMNS:
        return _summary_run
    if columns >= _UPSTREAM_COLUMNS:
        return _upstream_run
    missing = min(_SUMMARY_COLUMNS - columns, _UPSTREAM_COLUMNS - columns, key=len)
    raise InvalidInput("runs", f"{path.name} lacks the columns {', '.join(sorted(missing))}; add them")


def _summary_run(row: Mapping[str, str]) -> Run:
    level = _level(row["lambda_qps"])
    tokens = _positive(row, "generation_tokens")
    offline = level is Level.OFFLINE
    itl = 1 / _positive(row, "tokens_per_s") if offline else _positive(row, "e2e_s") / tokens
    prompt = row.get("prompt_tokens")
    return Run(
        model=_name(row, "model"),
        gpu=_name(row, "gpu_type"),
        level=level,
        prompt_tokens=_positive(row, "prompt_tokens") if prompt else math.nan,
        output_tokens=tokens,
        power_watts=_positive(row, "power_w"),
        itl_seconds=itl,
        requests=_positive(row, "requests") if row.get("requests") else math.nan,
        requests_per_second=math.nan if offline else float(row["lambda_qps"]),
        # Requests finished a second, times how long each stayed.
        duty=math.nan if offline else _positive(row, "tokens_per_s") / tokens * _positive(row, "e2e_s"),
        with_first_token=not offline,
    )


def _upstream_run(row: Mapping[str, str]) -> Run:
    level = _level(row["lambda_qps"])
    tokens = _numbers(row, "request_generation_tokens")
    if level is Level.OFFLINE:
        itl = _positive(row, "measurement_duration") / _positive(row, "generation_tokens_total")
    else:
        itl = _mean(_request_itls(row, tokens))
    offline = level is Level.OFFLINE
    prompts = _numbers(row, "request_prompt_tokens") if row.get("request_prompt_tokens") else [math.nan]
    stays = [] if offline else _numbers(row, "e2e_request_latency_seconds_events")
    return Run(
        model=_name(row, "model"),
        gpu=_name(row, "gpu_type"),
        level=level,
        prompt_tokens=_mean(prompts),
        output_tokens=_mean(tokens),
        power_watts=_positive(row, "gpu_0_power_draw_watts_mean"),
        itl_seconds=itl,
        requests=float(len(tokens)),
        requests_per_second=math.nan if offline else float(row["lambda_qps"]),
        duty=math.nan if offline else sum(stays) / _positive(row, "measurement_duration"),
    )


def _request_itls(row: Mapping[str, str], tokens: list[float]) -> Iterator[float]:
    ends = _numbers(row, "e2e_request_latency_seconds_events")
    firsts = _numbers(row, "time_to_first_token_seconds_events")
    for end, first, count in zip(ends, firsts, tokens, strict=True):
        if count >= 2:
            yield (end - first) / (count - 1)


def _level(text: str | None) -> Level:
    if text is None:
        raise ValueError("the row is cut short")
    rate = float(text) if text.strip() else math.nan
    if rate > _MOST:
        raise ValueError(f"lambda_qps is {text}, not a rate")
    return level_of_rate(None if math.isnan(rate) or rate < 0 else rate)


def _positive(row: Mapping[str, str], column: str) -> float:
    value = float(row[column])
    if not _LEAST <= value <= _MOST:
        raise ValueError(f"{column} is {row[column]!r}, not a number from {_LEAST:g} to {_MOST:g}")
    return value


def _name(row: Mapping[str, str], column: str) -> str:
    if not row[column]:
        raise ValueError(f"{column} is empty")
    return row[column]


def _numbers(row: Mapping[str, str], column: str) -> list[float]:
    values = ast.literal_eval(row[column])
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{column} isn't a list")
    numbers = [float(value) for value in values]
    if not all(0 <= number <= _MOST for number in numbers):
        raise ValueError(f"{column} holds what isn't a number from 0 to {_MOST:g}")
    return numbers


def _mean(values: Iterator[float] | list[float]) -> float:
    listed = list(values)
    if not listed:
        raise ValueError("no request has two tokens or more")
    mean = sum(listed) / len(listed)
    if mean <= 0:
        raise ValueError("the mean over its requests isn't above 0")
    return mean
