"""The operator, put together: wait for the Lease, learn the cluster, then work until told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kopf

from wattkeeper.core.forecast import Forecaster
from wattkeeper.handlers import watch
from wattkeeper.handlers.allocator import Allocator
from wattkeeper.handlers.children import Children
from wattkeeper.handlers.metrics import Metrics
from wattkeeper.handlers.pools import PoolKeeper
from wattkeeper.handlers.probes import Endpoint, Health, serve
from wattkeeper.handlers.reconciler import Reconciler
from wattkeeper.handlers.reporter import Reporter
from wattkeeper.handlers.standing import Standings
from wattkeeper.handlers.sweep import Sweep, relist
from wattkeeper.handlers.tools import Tools
from wattkeeper.handlers.workqueue import WorkQueue
from wattkeeper.kube.client import Client, connection_of, load_configuration, serves
from wattkeeper.kube.errors import ApiError, LeadershipLostError
from wattkeeper.kube.events import EventRecorder
from wattkeeper.kube.executor import Executor
from wattkeeper.kube.leadership import Leadership, seconds_now
from wattkeeper.kube.manifests.labels import CHILDREN_SELECTOR
from wattkeeper.kube.reflector import Reflector, Scope
from wattkeeper.kube.resources import (
    DEPLOYMENTS,
    GPU_NODE_POOLS,
    LLM_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
    Resource,
)
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import Claim, Key, child_value, node_value, pod_value, service_value
from wattkeeper.settings import EXIT_LEADERSHIP_LOST, Settings, SettingsError

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
_LAST_GRACE_SECONDS = 10.0
_COALESCE_SECONDS = 0.1


async def run(
    settings: Settings, forecaster: Forecaster, kubeconfig: Path | None = None, context: str | None = None
) -> int:
    """Run the operator until SIGTERM or SIGINT; returns the exit status.

    Raises KubeConfigError when there is no way to an API server, SettingsError for a port that is taken.
    """
    configuration = await load_configuration(kubeconfig, context)
    metrics, health = Metrics(), Health()
    client = Client(
        configuration,
        watches=2 + 2 * max(1, len(settings.namespaces)),
        request_timeout_seconds=settings.request_timeout_seconds,
        observe=metrics.observe_request,
    )
    leadership = Leadership(client.api, settings)
    client.fence = leadership.fence
    endpoint = await _listen(settings, health, metrics)
    health.started = True
    leader = Leader(settings, client, forecaster, metrics, health)
    try:
        return await _until_told(leadership.lead(leader.work))
    except LeadershipLostError as error:
        logger.error("ending, so that nothing acts on a Lease that isn't held: %s", error)
        _end_in_any_case()
        return EXIT_LEADERSHIP_LOST
    finally:
        await endpoint.close()
        await client.close()


async def _listen(settings: Settings, health: Health, metrics: Metrics) -> Endpoint:
    host, port = settings.listen_host, settings.listen_port
    try:
        return await serve(health, metrics.registry, host, port)
    except OSError as error:
        cure = f"choose another WATTKEEPER_LISTEN_PORT or WATTKEEPER_LISTEN_HOST: {error.strerror}"
        raise SettingsError(
            [f"{host or 'every address'}, port {port} can't be listened on, {cure}"]
        ) from error


def _end_in_any_case() -> None:
    """Whatever still hangs on to the process after a while, a connection or a thread, ends with it."""
    timer = threading.Timer(_LAST_GRACE_SECONDS, os._exit, [EXIT_LEADERSHIP_LOST])
    timer.daemon = True
    timer.start()


async def _until_told(work: Coroutine[Any, Any, None]) -> int:
    """Run the work until it ends or a signal ends it; 0 for the latter."""
    task = asyncio.create_task(work, name="operator")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logger.info("told to end")
    return 0


class Leader:
    """Everything that only the leader does."""

    def __init__(
        self, settings: Settings, client: Client, forecaster: Forecaster, metrics: Metrics, health: Health
    ) -> None:
        self._settings = settings
        self._client = client
        self._metrics = metrics
        self._health = health
        self._snapshot = Snapshot()
        self._queue: WorkQueue[Key] = WorkQueue()
        executor = Executor(client, validate_pods=settings.validate_pods)
        self._events = EventRecorder(client, settings.own_identity, seconds_now)
        tools = Tools(
            executor,
            self._snapshot,
            Children(executor, self._snapshot, forecaster, settings.endpoint_propagation_seconds),
            Reporter(executor, self._events, self._snapshot, _now),
            metrics,
            seconds_now,
        )
        self._children = tools.children
        settling = settings.capacity_settling_seconds
        self._standings = Standings(self._snapshot, tools.children, seconds_now, settling)
        self._allocator = Allocator(tools, self._standings, forecaster, settling_seconds=settling)
        self._reconciler = Reconciler(
            tools,
            self._standings,
            self._allocator,
            self._queue,
            conflict_hold_seconds=settings.replicas_conflict_seconds,
        )
        self._allocator.answered = self._reconciler.recheck
        self._pools = PoolKeeper(tools, forecaster, _now)
        self._sweep = Sweep(client, tools, self._reconciler, self._allocator, self._pools)

    async def work(self) -> None:
        """Lead until told to end or cancelled. Raises what ends any of its parts."""
        self._health.leading = True
        self._metrics.leading.set(1)
        logger.info("leading")
        await self._wait_for_crds()
        reflectors = self._reflectors()
        watching = [reflector.run() for reflector in reflectors]
        await supervise(*watching, self._lead(reflectors))

    async def _lead(self, reflectors: list[Reflector[Any]]) -> None:
        for reflector in reflectors:
            await reflector.synced.wait()
        await self._learn()
        settled = Debounce(self._settings.settle_seconds, self._capacity_settled)
        self._snapshot.capacity_changed = settled.call
        # One step of a rollout changes Deployment, pods and counts: look once, when it is through.
        self._snapshot.touched = lambda key: self._queue.add_after(key, _COALESCE_SECONDS)
        self._snapshot.gone = self._forget
        for claim in self._snapshot.in_creation_order():
            self._queue.add(claim.key)
        self._capacity_settled()
        await supervise(
            self._allocator.work(),
            self._pools.work(),
            self._events.work(),
            self._sweep.work(self._settings.sweep_interval_seconds, self._settings.namespaces),
            *(self._reconciler.work() for _ in range(self._settings.workers)),
            self._kopf(),
        )

    async def _wait_for_crds(self) -> None:
        """A chart installs CRDs and operator at the same time; kopf would ignore what isn't there yet."""
        said = False
        while not all([await self._served(resource) for resource in (LLM_DEPLOYMENTS, GPU_NODE_POOLS)]):
            if not said:
                logger.warning("waiting for the CRDs of wattkeeper.dev: install the chart, or apply crds/")
                said = True
            await asyncio.sleep(_RETRY_SECONDS)

    async def _served(self, resource: Resource) -> bool:
        try:
            return await serves(self._client, resource)
        except ApiError as error:
            logger.warning("the API server doesn't tell what it serves: %s", error)
            return False

    def _reflectors(self) -> list[Reflector[Any]]:
        client, snapshot = self._client, self._snapshot
        reflectors: list[Reflector[Any]] = [
            Reflector(client, NODES, node_value, snapshot.nodes),
            Reflector(client, PODS, pod_value, snapshot.pods),
        ]
        for namespace in self._settings.namespaces or (None,):
            scope = Scope(namespace, CHILDREN_SELECTOR)
            reflectors += [
                Reflector(client, DEPLOYMENTS, child_value, snapshot.child_store(), scope),
                Reflector(client, SERVICES, service_value, snapshot.service_store(), scope),
            ]
        return reflectors

    async def _learn(self) -> None:
        """Know every promise before the first decision, whatever order kopf's events come in."""
        snapshot = self._snapshot
        while True:
            try:
                await relist(self._client, snapshot, self._settings.namespaces)
                break
            except ApiError as error:
                logger.warning("can't list LLMDeployments and GPUNodePools yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
        counts = (len(snapshot.claims), len(snapshot.nodes), len(snapshot.pods))
        logger.info("know %d LLMDeployments, %d nodes with GPUs, %d pods that matter", *counts)
        self._metrics.watch(snapshot, lambda: len(self._queue))
        self._health.synced = True

    async def _kopf(self) -> None:
        """Returns when a signal told kopf to end."""
        handlers = watch.registry(self._snapshot, self._queue)
        watch.login(handlers, lambda: connection_of(self._client.configuration))
        await kopf.operator(
            registry=handlers,
            settings=watch.settings(),
            standalone=True,
            clusterwide=not self._settings.namespaces,
            namespaces=self._settings.namespaces,
        )

    def _forget(self, claim: Claim) -> None:
        self._allocator.forget(claim.uid)
        self._children.forget(claim.uid)
        self._standings.forget(claim.uid)

    def _capacity_settled(self) -> None:
        self._allocator.capacity_settled()
        self._pools.capacity_settled()


async def supervise(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all parts until one of them ends; the others are cancelled then. Raises what ended it."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Debounce:
    """Calls once for all calls within some seconds, at the end of them."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._seconds = seconds
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    def call(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._call()


def _now() -> datetime:
    return datetime.now(UTC)
