"""The words of `wattkeeper simulate`: durations, shares, policies, generators. Bad ones raise InputError."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import fields, replace

from wattkeeper.cli.manifest_files import InputError
from wattkeeper.sim.generators import PROCESSES, SHARES, Process, check
from wattkeeper.sim.policies import Kind, Policy

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|min|[smhdw]?)")
DEFAULT_FIXED_SECONDS = 600.0
DEFAULT_MAX_DELAYED = 0.05
#: Timeouts of seed 002's published table, in minutes.
PUBLISHED_MINUTES = (1, 2, 5, 10, 15, 30, 60)
_ALIASES = {"alwayson": "never", "clairvoyant": "optimum", "ttl": "fixed"}


def duration(text: str, option: str) -> float:
    """Seconds from `90`, `90s`, `5m`, `24h`, `30d` or `1h30m`."""
    parts = _DURATION.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise InputError(f"{option}: {text!r} is no duration: write one such as 270s, 5m, 24h or 30d")
    if len(parts) > 1 and any(not unit for _, unit in parts):
        raise InputError(f"{option}: {text!r} is no duration: give each number its unit, as in 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not math.isfinite(seconds):
        raise InputError(f"{option}: {text!r:.40} is too long")
    return seconds


def share(text: str, option: str) -> float:
    """A share from `5%` or `0.05`."""
    stripped = text.strip()
    try:
        value = float(stripped.removesuffix("%")) / (100.0 if stripped.endswith("%") else 1.0)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise InputError(f"{option}: {text!r} is no share: write one above 0 % and at most 100 %, such as 5%")
    return value


def policies(
    wanted: Sequence[str],
    *,
    fixed_seconds: float | None,
    max_delayed: float | None,
    min_idle_seconds: float,
    group: bool,
) -> list[Policy]:
    """Policies from their words; `all` and `published` stand for several."""
    found: list[Policy] = []
    for text in wanted:
        for policy in _named(text, fixed_seconds, max_delayed):
            given = replace(policy, min_idle_seconds=min_idle_seconds, group=group)
            if given not in found:
                found.append(given)
    return found


def _named(text: str, fixed_seconds: float | None, max_delayed: float | None) -> list[Policy]:
    word, _, argument = text.partition(":")
    key = re.sub(r"[^a-z]", "", word.lower())
    key = _ALIASES.get(key, key)
    fixed = fixed_seconds if fixed_seconds is not None else DEFAULT_FIXED_SECONDS
    if key == "published":
        rows = [Policy(Kind.FIXED, 60.0 * minutes) for minutes in PUBLISHED_MINUTES]
        return [Policy(Kind.NEVER), *rows, Policy(Kind.BREAK_EVEN)]
    if key == "all":
        return [
            Policy(Kind.NEVER),
            Policy(Kind.FIXED, fixed, max_delayed),
            Policy(Kind.BREAK_EVEN, None, max_delayed),
            Policy(Kind.ADAPTIVE, None, max_delayed),
            Policy(Kind.BREAK_EVEN, None, max_delayed or DEFAULT_MAX_DELAYED),
            Policy(Kind.OPTIMUM),
        ]
    if key == "waitingbudget":
        given = share(argument, "--policy WaitingBudget") if argument else max_delayed
        return [Policy(Kind.BREAK_EVEN, None, given or DEFAULT_MAX_DELAYED)]
    kind = next((kind for kind in Kind if kind.value.lower() == key), None)
    if kind is None:
        raise InputError(f"--policy: {text!r} isn't known{_near(key)}")
    if kind is Kind.FIXED:
        seconds = duration(argument, "--policy Fixed") if argument else fixed
        return [Policy(kind, seconds, max_delayed)]
    if argument and kind in (Kind.NEVER, Kind.OPTIMUM):
        raise InputError(f"--policy: {word} takes no argument, got {argument!r}")
    budget = share(argument, f"--policy {word}") if argument else max_delayed
    return [Policy(kind, None, None if kind in (Kind.NEVER, Kind.OPTIMUM) else budget)]


def _near(key: str) -> str:
    words = [*(kind.value for kind in Kind), "AlwaysOn", "WaitingBudget", "published", "all"]
    near = difflib.get_close_matches(key, [word.lower() for word in words], n=1)
    hint = f", did you mean {next(word for word in words if word.lower() == near[0])}?" if near else ":"
    return f"{hint} choose from {', '.join(words)}"


def process(text: str) -> tuple[Process, float | None]:
    """A generator and the mean service, from `KIND:NAME=VALUE,…`; rates are per hour, times are durations."""
    word, _, arguments = text.partition(":")
    kind = PROCESSES.get(word.strip().lower())
    if kind is None:
        raise InputError(f"--generate: {word!r} isn't known: choose from {', '.join(PROCESSES)}")
    names = {field.name.replace("_", "-"): field.name for field in fields(kind)}
    given: dict[str, float] = {}
    service = None
    for part in filter(None, arguments.split(",")):
        name, equals, value = part.partition("=")
        name, where = name.strip(), f"--generate {word}: {name.strip()}"
        if not equals or name not in (*names, "service"):
            raise InputError(
                f"{where} isn't known: {word} takes {', '.join((*names, 'service'))} as NAME=VALUE"
            )
        if name == "service":
            service = duration(value, where)
        else:
            given[names[name]] = _figure(names[name], value, where)
    made = kind(**given)
    try:
        check(made)
    except ValueError as error:
        raise InputError(f"--generate {word}: {error}") from None
    return made, service


#: Fields of generators that are times.
_TIMES = ("quiet_length", "busy_length", "mean_gap", "least_gap", "every", "jitter")


def _figure(name: str, value: str, where: str) -> float:
    if name in _TIMES:
        return duration(value, where)
    text = value.strip()
    percent = name in SHARES and text.endswith("%")
    try:
        return float(text.removesuffix("%") if percent else text) / (100.0 if percent else 1.0)
    except ValueError:
        raise InputError(f"{where}: must be a number, got {value!r}") from None
