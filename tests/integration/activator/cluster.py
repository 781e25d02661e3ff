"""A cluster in miniature around the activators: a Service with its proxies, a model's pods, an operator.

The operator walks the protocol's own table (`core.parking_states.step`); pods are processes; a change of the
Service's endpoints reaches clients after a delay, as through kube-proxy. Times are a hundredth of real ones.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.integration.activator.engine import KEEP_ALIVE_SECONDS
from tests.integration.activator.harness import HOST, MODEL, EngineProcess, eventually, free_port
from wattkeeper.activator.app import Activator
from wattkeeper.activator.settings import ActivatorSettings
from wattkeeper.core.activation import Address, Route, RoutingTable, Standing
from wattkeeper.core.parking_states import (
    DESIRED,
    ActivatorMode,
    Facts,
    ParkingRecord,
    ParkState,
    Replicas,
    Timing,
    step,
)

PROPAGATION_SECONDS = 0.05
_TIMING = Timing(
    propagation_seconds=PROPAGATION_SECONDS * 1.5,
    keep_alive_seconds=KEEP_ALIVE_SECONDS * 1.5,
    step_limit_seconds=60,
    wake_limit_seconds=60,
)
_TICK_SECONDS = 0.01


class Service:
    """Where a client's new connection leads: `endpoints` follow `told` some time later."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._told: frozenset[Address] = frozenset()
        self.endpoints: frozenset[Address] = frozenset()
        self.told_at = 0.0

    def tell(self, addresses: frozenset[Address]) -> None:
        if addresses != self._told:
            self._told = addresses
            loop = asyncio.get_running_loop()
            self.told_at = loop.time()
            # Later changes never overtake earlier ones: each looks at what is told by then.
            loop.call_later(self._rng.uniform(0, PROPAGATION_SECONDS), self._arrive)

    def _arrive(self) -> None:
        self.endpoints = self._told

    def route(self) -> Address:
        """Raises LookupError when a client meets nobody."""
        if not self.endpoints:
            raise LookupError("a client met an empty Service")
        return self._rng.choice(sorted(self.endpoints))


@dataclass
class Pod:
    engine: EngineProcess
    ready: bool = False
    label: bool = True
    ending: bool = False


class Leader:
    """Takes what the activators tell, and remembers it as the mark on the CR would."""

    def __init__(self) -> None:
        self.demand_since = False
        self.standings: dict[str, Standing] = {}

    def of(self, name: str) -> _LeaderFor:
        return _LeaderFor(self, name)


class _LeaderFor:
    def __init__(self, leader: Leader, name: str) -> None:
        self._leader = leader
        self._name = name

    async def demand(self, model: object, epoch: int) -> None:
        self._leader.demand_since = True

    async def report(self, standings: Sequence[Standing]) -> None:
        for standing in standings:
            self._leader.standings[self._name] = standing


class Cluster:
    """One model, `activators` of them, and an operator that parks whenever it may."""

    def __init__(self, seed: int, activators: int) -> None:
        self.rng = random.Random(seed)
        self.service = Service(self.rng)
        self.leader = Leader()
        self.record = ParkingRecord()
        self.reasons: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.parked = self.scale_ups = 0
        self.wants_park = False
        self._pod: Pod | None = None
        self._spare: EngineProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ends: set[asyncio.Task[None]] = set()
        self._seen_at_withdrawal = 0
        self._moved: tuple[float, object] = (0.0, None)
        self._label_off_since: float | None = None
        self._routed_since: float | None = None
        settings = ActivatorSettings(
            listen_host=HOST, demand_interval_seconds=0.05, propagation_seconds=0, access_log="off"
        )
        self.activators = [Activator(settings, self.leader.of(f"a{i}")) for i in range(activators)]
        self._ports = [free_port() for _ in self.activators]

    # Its life.

    async def start(self) -> None:
        self._spare = await EngineProcess.load()
        self._tell_activators()
        for activator in self.activators:
            await activator.start()

    async def run(self) -> None:
        """Operate until cancelled."""
        while True:
            await self._tick()
            await asyncio.sleep(_TICK_SECONDS)

    async def begin_parking(self) -> None:
        """From here on the model is parked whenever it may be; its first pod is in rotation."""
        await eventually(lambda: self.service.endpoints)
        self.wants_park = True

    async def end(self) -> None:
        for activator in self.activators:
            await activator.stop()
        if self._starting is not None:
            await self._starting
        if self._pod is not None:
            await self._end_pod(self._pod)
        await asyncio.gather(*self._ends)
        if self._spare is not None:
            self._spare.kill()
            await self._spare.process.wait()

    def kill(self) -> None:
        for engine in (self._spare, self._pod.engine if self._pod else None):
            if engine is not None:
                engine.kill()

    # The operator.

    async def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        before = self.record
        self.record, desired = step(self.record, await self._facts(now), now, _TIMING)
        if self.record.state is not before.state:
            self.reasons[f"{before.state} → {self.record.state}: {self.record.reason}"] += 1
            self.parked += self.record.state is ParkState.PARKED
            if self.record.state is ParkState.AWAKE:
                self.leader.demand_since = False
        wanted = {Replicas.SPEC: 1, Replicas.ZERO: 0, Replicas.ZERO_IF_UNCHANGED: 0}.get(desired.replicas)
        if wanted == 1 and self._pod is None and self._starting is None:
            self.scale_ups += 1
            self._starting = asyncio.create_task(self._start_pod())
        if wanted == 0 and self._pod is not None:
            pod, self._pod = self._pod, None
            task = asyncio.create_task(self._end_pod(pod))
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)
        if desired.serving_label is not None and self._pod is not None:
            self._pod.label = desired.serving_label
        self._note_label(now)
        self._tell_service(desired.slice_in_rotation)
        self._tell_activators()

    async def _facts(self, now: float) -> Facts:
        pod = self._pod
        standings = [s for activator in self.activators for s in activator.standings()]
        seen = sum(s.requests_seen for s in standings)
        if self.record.state in (ParkState.AWAKE, ParkState.DRAINING):
            self._seen_at_withdrawal = seen
        await self._scrape(now)
        slice_told = DESIRED[self.record.state].slice_in_rotation
        return Facts(
            wants_park=self.wants_park,
            demand=self.leader.demand_since,
            activator_ready=True,
            child_replicas=int(pod is not None or self._starting is not None),
            pods_ready=int(pod is not None and pod.ready),
            slice_since=self.service.told_at if slice_told else None,
            label_off_since=self._label_off_since,
            pods_routed_since=self._routed_since,
            quiet_since=self._moved[0] if self._moved[1] is not None else None,
            all_hold=all(
                (s := self.leader.standings.get(f"a{i}")) is not None and s.acknowledges(self.record.epoch)
                for i in range(len(self.activators))
            ),
            activator_saw_request=seen > self._seen_at_withdrawal,
            held_requests=sum(s.held.requests for s in standings),
            last_look_clean=pod is not None and all(s.in_flight == 0 for s in standings),
        )

    async def _scrape(self, now: float) -> None:
        """The pod's own counters, asked of it directly. `_moved`: when they last did, and to what."""
        if (
            self._pod is None
            or not self._pod.ready
            or self.record.state
            not in (
                ParkState.WITHDRAWN,
                ParkState.CONFIRMING,
            )
        ):
            self._moved = (now, None)
            return
        counts = await self._pod.engine.counts()
        begun, ended = counts["begun"], Counter(counts["finished"]) + Counter(counts["cancelled"])
        running = sum(begun.values()) - ended.total()
        state = None if running else sum(begun.values())
        if state != self._moved[1]:
            self._moved = (asyncio.get_running_loop().time(), state)

    def _note_label(self, now: float) -> None:
        serving = self._pod is not None and self._pod.label
        routed = serving and self._pod is not None and self._pod.ready
        self._label_off_since = None if serving else (self._label_off_since or now)
        self._routed_since = (self._routed_since or now) if routed else None

    # What it brings about.

    async def _start_pod(self) -> None:
        engine = self._spare or await EngineProcess.load()
        self._spare = None
        await asyncio.sleep(self.rng.uniform(0, 0.2))  # loading
        await engine.listen()
        self._pod = Pod(engine, ready=True)
        self._starting = None
        self._spare = await EngineProcess.load()

    async def _end_pod(self, pod: Pod) -> None:
        counts = await pod.engine.end()
        self.begun += Counter(counts["begun"])
        self.finished += Counter(counts["finished"])

    def _tell_service(self, slice_in_rotation: bool) -> None:
        addresses = {Address(HOST, port) for port in self._ports} if slice_in_rotation else set()
        if self._pod is not None and self._pod.ready and self._pod.label:
            addresses.add(self._pod.engine.address)
        self.service.tell(frozenset(addresses))

    def _tell_activators(self) -> None:
        """Each hears at once or some ticks later."""
        mode = DESIRED[self.record.state].activator
        targets: tuple[Address, ...] = ()
        labelled = self._pod is not None and self._pod.label
        if self._pod is not None and (labelled or mode is ActivatorMode.FORWARD_WITHDRAWN):
            targets = (self._pod.engine.address,)
        for activator, port in zip(self.activators, self._ports, strict=True):
            route = Route(MODEL, port, epoch=self.record.epoch, state=self.record.state, targets=targets)
            known = activator.table.by_port.get(port) if activator.table else None
            if known is None or (route != known and self.rng.random() < 0.5):
                activator.swap(RoutingTable.of([replace(route)]))
