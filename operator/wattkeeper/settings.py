"""The operator's settings: frozen, each with its unit and reason, read once from the environment.

Every field is one environment variable, `WATTKEEPER_` and the field's name in capitals. Anything that
can't be read is reported at once, all variables together, each with the cure (`SettingsError`).
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

PREFIX = "WATTKEEPER_"

#: Exit status when the Lease was lost: the process ends so that nothing acts on stale leadership, and
#: its supervisor starts it anew as a follower (EX_TEMPFAIL of sysexits.h).
EXIT_LEADERSHIP_LOST = 75
#: Exit status for settings or a kubeconfig that can't be used (EX_CONFIG of sysexits.h).
EXIT_CONFIGURATION = 78


class SettingsError(ValueError):
    """One or more settings can't be used; the message has a line for each, with the cure."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _NotUsableError(ValueError):
    """What a reader raises: the cure, without the variable's name."""


def _text(value: str) -> str:
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", value):
        raise _NotUsableError("write a Kubernetes name: lower-case letters, digits, dashes and dots")
    return value


def _names(value: str) -> tuple[str, ...]:
    return tuple(_name(part.strip()) for part in value.split(",") if part.strip())


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in choices:
            raise _NotUsableError(f"write one of {', '.join(choices)}")
        return value

    return read


def _seconds(least: float, most: float) -> Callable[[str], float]:
    def read(value: str) -> float:
        cure = f"write seconds from {least:g} to {most:g}, as a plain number such as {least:g}"
        try:
            seconds = float(value)
        except ValueError:
            raise _NotUsableError(cure) from None
        if not math.isfinite(seconds) or not least <= seconds <= most:
            raise _NotUsableError(cure)
        return seconds

    return read


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
            raise _NotUsableError(f"write a whole number from {least} to {most}")
        return int(value)

    return read


def _yes_no(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise _NotUsableError("write true or false")
    return value.lower() == "true"


def _setting(read: Callable[[str], Any], default: Any, doc: str) -> Any:
    """A field with how it is read from text, and what it is for."""
    return field(default=default, metadata={"read": read, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set from outside. `describe()` prints the table of it."""

    namespaces: tuple[str, ...] = _setting(
        _names, (), "Namespaces whose LLMDeployments are served, comma-separated; none: all of the cluster."
    )
    lease_namespace: str = _setting(
        _name,
        "wattkeeper-system",
        "Namespace of the leader Lease: the operator's own.",
    )
    lease_name: str = _setting(_name, "wattkeeper-operator", "Name of the leader Lease.")
    identity: str = _setting(
        _text,
        "",
        "This process's name in the Lease; empty: host name and process id.",
    )
    lease_duration_seconds: float = _setting(
        _seconds(2, 600),
        15.0,
        "s. A follower takes over when the Lease wasn't renewed for so long: the pause after a crash.",
    )
    renew_deadline_seconds: float = _setting(
        _seconds(1.5, 590),
        10.0,
        "s. A leader that couldn't renew for so long stops writing and exits; below lease_duration_seconds, "
        "so that it stops before another one begins.",
    )
    retry_period_seconds: float = _setting(
        _seconds(1, 60), 2.0, "s. Between two attempts on the Lease; below renew_deadline_seconds / 1.2."
    )
    listen_port: int = _setting(
        _whole(0, 65535), 8080, "TCP port of /healthz, /readyz and /metrics; 0: any free one (it is logged)."
    )
    listen_host: str = _setting(_text, "", "Address that the port is bound to; empty: all.")
    log_level: str = _setting(
        _one_of("debug", "info", "warning", "error"), "info", "Lowest severity that is logged."
    )
    log_format: str = _setting(
        _one_of("text", "json"), "text", "text for people, json (one object a line) for collectors."
    )
    workers: int = _setting(
        _whole(1, 64), 8, "LLMDeployments reconciled at the same time; placement itself is serial."
    )
    sweep_interval_seconds: float = _setting(
        _seconds(1, 3600),
        60.0,
        "s. How often everything is compared anew: what no event tells (quotas, webhooks, ConfigMaps).",
    )
    settle_seconds: float = _setting(
        _seconds(0, 60),
        1.0,
        "s. Changes of nodes, pods and pools within so long count as one: a rollout changes many at once.",
    )
    capacity_settling_seconds: float = _setting(
        _seconds(0, 600),
        30.0,
        "s. Longest wait for promised GPUs to be bound before the best of what is free is taken.",
    )
    endpoint_propagation_seconds: float = _setting(
        _seconds(0, 300),
        10.0,
        "s. Until every proxy has learned that a pod left its Service; only then may it stop answering.",
    )
    replicas_conflict_seconds: float = _setting(
        _seconds(1, 86400),
        300.0,
        "s. ReplicasConflict is shown so long after another writer last changed a child's replicas.",
    )
    request_timeout_seconds: float = _setting(
        _seconds(1, 300), 20.0, "s. One request to the Kubernetes API; a hanging one is tried anew."
    )
    validate_pods: bool = _setting(
        _yes_no,
        True,
        "Whether a pod of the rendered template is dry-run too: finds quotas and pod security before "
        "anything is created. Needs the right to create pods.",
    )

    def __post_init__(self) -> None:
        problems = []
        if self.renew_deadline_seconds >= self.lease_duration_seconds:
            problems.append(
                f"{PREFIX}RENEW_DEADLINE_SECONDS: {self.renew_deadline_seconds:g} isn't below "
                f"{PREFIX}LEASE_DURATION_SECONDS, {self.lease_duration_seconds:g}: raise the latter"
            )
        if self.renew_deadline_seconds <= 1.2 * self.retry_period_seconds:
            problems.append(
                f"{PREFIX}RETRY_PERIOD_SECONDS: {self.retry_period_seconds:g} leaves no second try within "
                f"{PREFIX}RENEW_DEADLINE_SECONDS, {self.renew_deadline_seconds:g}: lower it below "
                f"{self.renew_deadline_seconds / 1.2:g}"
            )
        if problems:
            raise SettingsError(problems)

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
    ) -> Settings:
        """Read all settings; those not set keep their defaults, `overrides` win.

        Raises SettingsError with every problem.
        """
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        problems: list[str] = []
        for setting in fields(cls):
            variable = variable_of(setting)
            text = environment.get(variable)
            if text is None or (text == "" and setting.default in ("", ())):
                continue
            try:
                values[setting.name] = setting.metadata["read"](text.strip())
            except _NotUsableError as error:
                problems.append(f"{variable}: {error}; got {text!r:.60}")
        if problems:
            raise SettingsError(problems)
        return cls(**values | dict(overrides or {}))

    @property
    def own_identity(self) -> str:
        return self.identity or f"{socket.gethostname()}_{os.getpid()}"


def variable_of(setting: Field[Any]) -> str:
    """The environment variable of a field."""
    return PREFIX + setting.name.upper()


def describe() -> list[tuple[str, str, str]]:
    """Variable, default and purpose of every setting, for `--help` and the docs."""
    return [
        (variable_of(setting), _shown(setting.default), setting.metadata["doc"])
        for setting in fields(Settings)
        if setting.default is not MISSING
    ]


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default or "")
