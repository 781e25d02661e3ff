"""The activator's settings: frozen, each with its unit and reason, read once from the environment.

Every field is one environment variable, `WATTKEEPER_ACTIVATOR_` and the field's name in capitals.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from wattkeeper.settings import PREFIX as _PREFIX
from wattkeeper.settings import SettingsError

PREFIX = _PREFIX + "ACTIVATOR_"
#: File descriptors that aren't connections: listeners, the event loop, logs, the operator's connection.
_OTHER_FILES = 256


def _number(default: float, least: float, most: float, doc: str) -> Any:
    return field(default=default, metadata={"range": (least, most), "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivatorSettings:
    """Limits and times of one activator process."""

    listen_host: str = field(default="", metadata={"doc": "Address of the models' ports; empty: all."})
    max_connections: int = _number(
        4096, 1, 1_000_000, "Clients' connections at once; one more is told 503 and closed."
    )
    max_head_bytes: int = _number(
        64 * 1024, 1024, 1024**2, "bytes. Request line and headers, together; trailers too."
    )
    max_header_fields: int = _number(128, 8, 10_000, "Header fields of a request.")
    max_body_bytes: int = _number(
        256 * 1024**2, 0, 2**40, "bytes. One request's body: images and audio come inside it."
    )
    max_held_bytes: int = _number(
        512 * 1024**2, 0, 2**40, "bytes. Waiting requests of all models: bounds the process's memory."
    )
    head_timeout_seconds: float = _number(
        30.0, 0.05, 600, "s. From the first byte of a request to the end of its headers."
    )
    keep_alive_seconds: float = _number(
        120.0,
        0.05,
        3600,
        "s. An idle connection is closed after so long: longer than clients keep one (Go: 90 s), so that it "
        "is they who close and no request meets a closing connection.",
    )
    body_grace_seconds: float = _number(
        60.0, 0.05, 3600, "s. A body may take so long, and longer by min_body_bytes_per_second."
    )
    min_body_bytes_per_second: float = _number(
        1024.0, 1, 1e12, "bytes/s. A body that comes more slowly is refused after the grace."
    )
    stall_seconds: float = _number(
        300.0, 0.1, 86400, "s. A client that takes nothing of its answer for so long is let go."
    )
    connect_timeout_seconds: float = _number(
        3.0, 0.05, 60, "s. A pod that doesn't accept within it gets nothing; another one is tried."
    )
    demand_interval_seconds: float = _number(1.0, 0.02, 60, "s. Between two signals of the same demand.")
    leader_timeout_seconds: float = _number(5.0, 0.05, 60, "s. One call to the leader.")
    gone_port_seconds: float = _number(
        60.0, 0, 3600, "s. A port whose model is gone answers 404 for so long, then nothing listens."
    )
    propagation_seconds: float = _number(
        10.0, 0, 300, "s. After SIGTERM requests still come for so long: until every proxy knows."
    )
    drain_seconds: float = _number(
        600.0, 0, 86400, "s. After that what waits or streams may go on for so long; then it is ended."
    )
    access_log: str = field(
        default="text",
        metadata={
            "choices": ("off", "text", "json"),
            "doc": "A line for each request on standard output: off, text (for people) or json.",
        },
    )

    def __post_init__(self) -> None:
        found = [_problem(setting, getattr(self, setting.name)) for setting in fields(self)]
        if problems := [problem for problem in found if problem]:
            raise SettingsError(problems)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> ActivatorSettings:
        """Read all settings; those not set keep their defaults. Raises SettingsError with every problem."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        problems = []
        for setting in fields(cls):
            text = environment.get(variable_of(setting.name), "").strip()
            if not text:
                continue
            try:
                values[setting.name] = _READERS[type(setting.default)](text)
            except ValueError:
                problems.append(
                    f"{variable_of(setting.name)}: write {_WANTED[type(setting.default)]}; got {text!r:.60}"
                )
        if problems:
            raise SettingsError(problems)
        return cls(**values)


def _problem(setting: Field[Any], value: Any) -> str:
    """What is wrong with a value, with the cure; empty: nothing."""
    cure = ""
    if "range" in setting.metadata:
        least, most = setting.metadata["range"]
        if not (math.isfinite(value) and least <= value <= most):
            cure = f"write a number from {least:g} to {most:g}"
    elif value not in setting.metadata.get("choices", (value,)):
        cure = f"write one of {', '.join(setting.metadata['choices'])}"
    return f"{variable_of(setting.name)}: {cure}; got {value!r:.60}" if cure else ""


_READERS: dict[type, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
}
_WANTED = {int: "a whole number", float: "a number"}


def variable_of(name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + name.upper()


def describe() -> list[tuple[str, str, str]]:
    """Variable, default and purpose of every setting, for `--help` and the docs."""
    return [(variable_of(s.name), str(s.default), s.metadata["doc"]) for s in fields(ActivatorSettings)]


def usable_connections(wanted: int) -> int:
    """How many clients the process's file descriptors allow: two a request. Raises the soft limit first."""
    unlimited = resource.RLIM_INFINITY
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 2 * wanted + _OTHER_FILES
    if soft != unlimited and soft < enough:
        soft = enough if hard == unlimited else min(hard, enough)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else max(1, min(wanted, (soft - _OTHER_FILES) // 2))
