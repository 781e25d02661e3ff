"""Requests to the Kubernetes API as plain dicts, over `kubernetes.aio`.

The official client brings connections, certificates, kubeconfig, exec plugins and token rotation; its
generated models are left aside, because they cost a copy of every object and drop fields that they don't
know. Transient errors are repeated here a few times; everything else is for the caller to decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import aiohttp
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from wattkeeper.kube.errors import ApiError, NotFoundError, TransientError, error_of
from wattkeeper.kube.resources import Resource

logger = logging.getLogger(__name__)

Object = dict[str, Any]

APPLY = "application/apply-patch+yaml"
JSON = "application/json"

_TRIES = 3
_BACKOFF_SECONDS = (0.2, 1.0)
_PAGE = 500
#: What requests need in parallel; each watch holds one more.
_CONNECTIONS = 32


class Observer(Protocol):
    """Told of every answered request: verb, kind, HTTP status (0 without answer), seconds."""

    def __call__(self, verb: str, kind: str, status: int, seconds: float, /) -> None: ...


class KubeConfigError(Exception):
    """No usable way to the API server; the message says where it was looked for."""


async def load_configuration(kubeconfig: Path | None, context: str | None) -> Configuration:
    """The way to the API server: the given kubeconfig, else the pod's ServiceAccount, else the default one.

    Raises KubeConfigError.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and context is None:
            try:
                load_incluster_config(configuration)
                return configuration
            except ConfigException:
                logger.debug("not in a pod; reading the default kubeconfig")
        await load_kube_config(
            config_file=None if kubeconfig is None else str(kubeconfig),
            context=context,
            client_configuration=configuration,
        )
    # The library leaves it to chance what it raises for a file that is no kubeconfig.
    except (
        ConfigException,
        OSError,
        yaml.YAMLError,
        TypeError,
        AttributeError,
        LookupError,
        ValueError,
    ) as error:
        where, why = kubeconfig or "$KUBECONFIG or ~/.kube/config", " ".join(str(error).split())
        raise KubeConfigError(f"no usable kubeconfig at {where}: {why}; pass --kubeconfig FILE") from error
    return configuration


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `kind` is for the metrics; a `query` with dryRun changes nothing."""

    method: str
    path: str
    kind: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = JSON

    @property
    def writes(self) -> bool:
        return self.method != "GET" and "dryRun" not in self.query

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Client:
    """One connection pool to one API server. `fence` is asked before every write and raises to forbid it."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        watches: int = 0,
        request_timeout_seconds: float = 20.0,
        fence: Callable[[], None] | None = None,
        observe: Observer | None = None,
    ) -> None:
        configuration.connection_pool_maxsize = _CONNECTIONS + watches
        configuration.retries = None  # repeated here, where it is known what is safe
        self.configuration = configuration
        self.api = ApiClient(configuration)
        self.api.user_agent = "wattkeeper"
        self.request_timeout_seconds = request_timeout_seconds
        self.fence = fence
        self._observe = observe

    async def close(self) -> None:
        await self.api.close()

    # ---- reading ---------------------------------------------------------------------------------

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """One object. Raises NotFoundError."""
        return await self.send(Request("GET", resource.path(namespace, name), resource.kind))

    async def pages(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncIterator[tuple[list[Object], str]]:
        """All objects, a page at a time, each with the resource version of the whole list."""
        query = {"limit": str(_PAGE)} | ({"labelSelector": label_selector} if label_selector else {})
        while True:
            answer = await self.send(Request("GET", resource.collection(namespace), resource.kind, query))
            metadata = answer["metadata"]
            yield answer["items"], metadata["resourceVersion"]
            if not metadata.get("continue"):
                return
            query = {**query, "continue": metadata["continue"]}

    @contextlib.asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        namespace: str | None,
        query: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """The open answer of a watch, to be read line by line. Raises ApiError when it can't be opened."""
        request = Request("GET", resource.collection(namespace), resource.kind, {**query, "watch": "true"})
        response = await self._open(request, limits)
        try:
            if response.status != 200:
                raise error_of(
                    f"watch {request.path}", response.status, await response.read(), response.headers
                )
            yield response.content
        finally:
            response.close()

    # ---- any request -----------------------------------------------------------------------------

    async def send(self, request: Request) -> Object:
        """Send a request and return the answered object; transient errors are repeated a few times.

        Raises ApiError, and LeadershipLostError before a write that the fence forbids.
        """
        for attempt in range(_TRIES):
            if request.writes and self.fence is not None:
                self.fence()
            try:
                return await self._once(request)
            except TransientError as error:
                # A POST that was cut may have been carried out: repeating it isn't ours to decide.
                if request.method == "POST" or attempt + 1 == _TRIES:
                    raise
                await asyncio.sleep(error.retry_after_seconds or _BACKOFF_SECONDS[attempt])
        raise AssertionError("unreachable")

    async def _once(self, request: Request) -> Object:
        status = 0
        loop = asyncio.get_running_loop()
        started = loop.time()
        limits = aiohttp.ClientTimeout(total=self.request_timeout_seconds)
        try:
            response = await self._open(request, limits)
            status = response.status
            answer = await response.read()
            if status >= 400:
                raise error_of(str(request), status, answer, response.headers)
            return cast(Object, json.loads(answer)) if answer else {}
        except TimeoutError as error:
            message = f"no answer in {self.request_timeout_seconds:g} s"
            raise TransientError(str(request), status, "Timeout", message) from error
        except (aiohttp.ClientError, OSError, json.JSONDecodeError) as error:
            message = str(error) or type(error).__name__
            raise TransientError(str(request), status, "NoConnection", message) from error
        finally:
            if self._observe is not None:
                self._observe(request.method, request.kind, status, loop.time() - started)

    async def _open(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        _, url, headers, _, _ = await self.api.param_serialize(
            request.method,
            request.path,
            query_params=list(request.query.items()),
            header_params={"Accept": JSON, "Content-Type": request.content_type},
            auth_settings=["BearerToken"],
        )
        answer = await self.api.call_api(request.method, url, headers, request.body, _request_timeout=limits)
        return cast(aiohttp.ClientResponse, answer.response)


@dataclass(frozen=True, slots=True)
class Connection:
    """The way to the API server as others need it (kopf has a client of its own)."""

    server: str
    ca_path: str | None
    ca_data: str | None
    insecure: bool
    scheme: str | None
    token: str | None
    certificate_path: str | None
    private_key_path: str | None
    proxy_url: str | None


async def connection_of(configuration: Configuration) -> Connection:
    """The connection as it is now, with a token that was renewed if it had to be."""
    credentials = await configuration.get_api_key_with_prefix("BearerToken") or ""
    scheme, _, token = credentials.rpartition(" ")
    return Connection(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        ca_data=None if configuration.ssl_ca_cert else configuration.ca_cert_data,
        insecure=not configuration.verify_ssl,
        scheme=(scheme or "Bearer").capitalize() if token else None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )


async def serves(client: Client, resource: Resource) -> bool:
    """Whether the API server serves the kind (its CRD is established)."""
    try:
        answer = await client.send(Request("GET", resource.root, "APIResourceList"))
    except NotFoundError:
        return False
    return any(entry.get("name") == resource.plural for entry in answer.get("resources", ()))


def describe(error: ApiError) -> str:
    """The error as users read it in a condition: one line, not too long."""
    return " ".join(error.message.split())[:800]
