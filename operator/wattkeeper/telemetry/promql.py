"""Queries to Prometheus by prometheus-api-client, with what it leaves out.

The library returns what it finds under `result`. It doesn't show the `warnings` by which Prometheus says that
a part of the data could not be read; its timeout starts anew with each packet; it retries by itself; and any
size of answer is taken. All of that is mended where `requests` offers it, at the response (ADR 0005).
"""

from __future__ import annotations

import io
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from wattkeeper.telemetry.errors import (
    AccessRefusedError,
    MalformedAnswerError,
    PartialAnswerError,
    QueryRefusedError,
    TooSlowError,
    UnreachableError,
)

_CHUNK_BYTES = 1 << 16
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class PrometheusOptionsError(ValueError):
    """The options can't be used; one line a problem, with the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions:
    """How Prometheus, or what speaks as it does (Thanos, Mimir, VictoriaMetrics), is asked.

    `selector` is put into every query, such as {"cluster": "eu"} where several clusters share one.
    `token_file` is read anew for each query, for it is rotated.
    """

    url: str
    selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    window_seconds: int = 120  # a little more than the age at which values stop being evidence
    query_timeout_seconds: float = 10.0
    look_timeout_seconds: float = 30.0  # all queries together
    max_ahead_seconds: float = 5.0  # samples later than our clock by more than this: clocks disagree
    check_future: bool = True  # False for recorded data that reaches beyond `now`
    max_answer_bytes: int = 64 << 20
    ca_file: str = ""
    token_file: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        problems = []
        address = urlsplit(self.url)
        if address.scheme not in ("http", "https") or not address.netloc:
            problems.append(f"url: {self.url!r} isn't an address: write http://HOST:PORT or https://HOST")
        problems += [
            f"selector: {label!r} isn't a label: write letters, digits and _, as in cluster=eu"
            for label in self.selector
            if not _LABEL.fullmatch(label)
        ]
        if self.window_seconds < 30:
            problems.append(
                f"window_seconds: {self.window_seconds} is less than two scrapes: write 30 or more"
            )
        if self.query_timeout_seconds <= 0 or self.look_timeout_seconds < self.query_timeout_seconds:
            problems.append("query_timeout_seconds: write seconds above 0, up to look_timeout_seconds")
        problems += [
            f"{name}: there is no file {getattr(self, name)}"
            for name in ("ca_file", "token_file")
            if getattr(self, name) and not Path(getattr(self, name)).is_file()
        ]
        if problems:
            raise PrometheusOptionsError("\n".join(problems))


class PromQl:
    """Instant queries, one at a time; for one thread. Each is bounded in time and in size."""

    def __init__(self, options: PrometheusOptions) -> None:
        self._options = options
        self._deadline = 0.0
        session = requests.Session()
        session.verify = False if options.insecure else (options.ca_file or True)
        session.hooks["response"].append(self._read)
        if options.token_file:
            session.auth = self._authorize
        # No retry by itself: the next look is the retry, with a `time` of its own.
        self._connect = PrometheusConnect(
            options.url.rstrip("/"), session=session, retry=Retry(0, read=False, redirect=3)
        )

    def query(self, query: str, at: float, deadline: float) -> Sequence[Mapping[str, Any]]:
        """The series of the answer at `at` (Unix seconds); `deadline` is on time.monotonic().

        Raises SourceError or AnswerError.
        """
        seconds = min(self._options.query_timeout_seconds, deadline - time.monotonic())
        if seconds <= 0:
            raise TooSlowError(f"Prometheus took longer than {self._options.look_timeout_seconds:g} s in all")
        self._deadline = time.monotonic() + seconds
        params = {"time": f"{at:.3f}", "timeout": f"{math.ceil(seconds * 1000)}ms"}
        try:
            # The library's type is narrower than what it hands on to requests.
            found = self._connect.custom_query(query, params=params, timeout=seconds)
        except requests.exceptions.Timeout as error:
            raise TooSlowError(self._slow(seconds)) from error
        except requests.exceptions.SSLError as error:
            raise UnreachableError(f"{self._options.url}: {_innermost(error)}: check ca_file") from error
        except ValueError as error:  # JSONDecodeError is a RequestException too
            raise MalformedAnswerError(f"{self._options.url} answers no JSON: is it Prometheus?") from error
        except (requests.exceptions.RequestException, HTTPError, OSError) as error:
            raise UnreachableError(f"{self._options.url}: {_innermost(error)}") from error
        except (KeyError, TypeError, PrometheusApiClientException) as error:
            raise MalformedAnswerError(f"{self._options.url} answers otherwise than Prometheus") from error
        if not isinstance(found, list):
            raise MalformedAnswerError(f"{self._options.url} answers otherwise than Prometheus")
        return found

    def close(self) -> None:
        self._connect.close()

    def _read(self, response: requests.Response, **_: Any) -> None:
        """Reads the body within time and size, and refuses what isn't a whole answer."""
        if response.is_redirect:
            return
        body = bytearray()
        # read1 gives what has come; stream and read would wait for a whole chunk, however long it takes.
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            body += chunk
            if len(body) > self._options.max_answer_bytes:
                response.close()
                raise MalformedAnswerError(
                    f"an answer of more than {self._options.max_answer_bytes >> 20} MiB: narrow the selector"
                )
            if time.monotonic() > self._deadline:
                response.close()
                raise TooSlowError(self._slow(self._options.query_timeout_seconds))
        response.raw = io.BytesIO(bytes(body))
        if response.status_code != requests.codes.ok:
            _refuse(response.status_code, bytes(body))
        if b'"warnings":' in body and (warnings := json.loads(bytes(body)).get("warnings")):
            raise PartialAnswerError(f"Prometheus could read only a part: {str(warnings[0])[:200]}")

    def _authorize(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = Path(self._options.token_file).read_text().strip()
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    def _slow(self, seconds: float) -> str:
        return f"{self._options.url} took longer than {seconds:.3g} s for a query"


def _refuse(status: int, body: bytes) -> None:
    kind, text = _error_of(body)
    if status in (401, 403):
        raise AccessRefusedError(f"Prometheus refuses access ({status}): check token_file")
    if status in (400, 422) and kind:
        raise QueryRefusedError(f"Prometheus refuses the query: {text}")
    if kind == "timeout" or status in (408, 504):
        raise TooSlowError(f"Prometheus gave the query up ({status}): {text}")
    raise UnreachableError(f"Prometheus answers with status {status}: {text}")


def _error_of(body: bytes) -> tuple[str, str]:
    """Prometheus' errorType and its words; "" and the beginning of anything else."""
    try:
        answer = json.loads(body)
        return str(answer["errorType"]), str(answer["error"])[:300]
    except (ValueError, KeyError, TypeError):
        return "", body[:100].decode(errors="replace")


def _innermost(error: BaseException) -> str:
    """The cause in few words: requests wraps it in urllib3's, which repeats the address."""
    reason = error
    while True:
        inner = getattr(reason, "reason", None) or next(
            (arg for arg in reason.args if isinstance(arg, BaseException)), None
        )
        if not isinstance(inner, BaseException):
            return str(reason)[-200:]
        reason = inner
