"""Which idle models to evict now, and for each of the others why not and when.

Models that share a GPU are decided as a group: nothing is saved while one context stays, so either all of a
group go or none does, and the group's break-even counts every reload against a tax that is paid once. The
decision is made from values alone, so that it can be made again from fresh ones just before acting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from wattkeeper.core.break_even import BreakEven, group_break_even
from wattkeeper.core.idleness import Idleness
from wattkeeper.core.parking_tax import HeldGpu, Saving, saving
from wattkeeper.core.witnesses import Verdict, Witness


class ParkingPolicy(StrEnum):
    """`parking.policy`."""

    BREAK_EVEN = "BreakEven"
    ADAPTIVE = "Adaptive"
    FIXED = "Fixed"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class ParkingRules:
    """What users set on one model. Seconds."""

    policy: ParkingPolicy = ParkingPolicy.BREAK_EVEN
    min_idle_seconds: float = 60.0
    fixed_seconds: float | None = None  # with Fixed
    min_awake_seconds: float = 0.0  # dwell: since the last wake
    max_cold_starts_per_hour: int | None = None
    excluded_until: float | None = None  # Unix seconds; infinite for ever
    excluded_because: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Something outside the policy that forbids parking: a budget, a Service, a writer of replicas …"""

    reason: str  # CamelCase
    message: str


@dataclass(frozen=True, slots=True)
class ModelState:
    """One model as the sweep found it."""

    name: str  # namespace/name
    pool: str
    rules: ParkingRules
    idleness: Idleness
    break_even: BreakEven | None  # None: too little is known of its GPUs
    gpus: tuple[str, ...]  # UUIDs held by its pods
    awake_since: float | None = None  # when it was last woken; None: it never was
    cold_starts: tuple[float, ...] = ()  # Unix seconds of recent ones
    adaptive_timeout: float | None = None  # with Adaptive, in T*
    waiting_timeout_seconds: float = 0.0  # by the budget for waiting
    waiting_tokens: bool = True
    keep_warm_until: float | None = None  # a keep-warm schedule is active until then
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetState:
    """What holds for all models, and the GPUs they share."""

    telemetry_healthy: bool
    telemetry_message: str = ""
    paused: bool = False
    dry_run: bool = False  # cluster-wide
    parking_in_progress: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({})
    )  # pool → model
    failed_wakes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # pool → model
    # By UUID; `neighbours` are the holders that belong to no model of this decision.
    held_gpus: Mapping[str, HeldGpu] = field(default_factory=lambda: MappingProxyType({}))
    at_rest: Mapping[str, Witness] = field(default_factory=lambda: MappingProxyType({}))  # shared GPUs


class Action(StrEnum):
    """What the operator is to do with a model now."""

    PARK = "Park"
    REPORT = "Report"  # dry-run: it would be parked
    HOLD = "Hold"


@dataclass(frozen=True, slots=True)
class ParkingDecision:
    """One model's decision. `eviction_time` is when it will be due if it stays idle, None where unknown."""

    model: str
    action: Action
    reason: str
    message: str
    group: tuple[str, ...]
    timeout_seconds: float | None
    eviction_time: float | None
    saving: Saving
    kept_hot_by: tuple[str, ...] = ()  # neighbours that keep its GPUs awake


def decide(models: Sequence[ModelState], fleet: FleetState, now: float) -> tuple[ParkingDecision, ...]:
    """One decision a model, in their order. A pool parks one group at a time, the largest saving first."""
    decisions: dict[str, ParkingDecision] = {}
    due: list[tuple[tuple[ModelState, ...], list[ParkingDecision]]] = []
    for group in groups(models):
        decided = _decide_group(group, fleet, now)
        for decision in decided:
            decisions[decision.model] = decision
        if all(decision.action is not Action.HOLD for decision in decided):
            due.append((group, decided))
    taken = dict(fleet.parking_in_progress)
    due.sort(key=lambda each: (-each[1][0].saving.watts, each[1][0].model))
    for group, decided in due:
        if any(decision.action is Action.REPORT for decision in decided):
            continue
        pools = {model.pool for model in group}
        busy = sorted(pool for pool in pools if pool in taken)
        if not busy:
            taken.update(dict.fromkeys(pools, group[0].name))
            continue
        message = f"{taken[busy[0]]} is being parked in pool {busy[0]}: one at a time"
        for decision in decided:
            held = replace(decision, action=Action.HOLD, reason="PoolBusy", message=message)
            decisions[decision.model] = held
    return tuple(decisions[model.name] for model in models)


def groups(models: Sequence[ModelState]) -> tuple[tuple[ModelState, ...], ...]:
    """Models joined wherever two hold the same GPU; each model is in exactly one group."""
    parent = {model.name: model.name for model in models}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    first_on: dict[str, str] = {}
    for model in models:
        for gpu in model.gpus:
            parent[root(model.name)] = root(first_on.setdefault(gpu, model.name))
    joined: dict[str, list[ModelState]] = {}
    for model in models:
        joined.setdefault(root(model.name), []).append(model)
    return tuple(tuple(members) for members in joined.values())


def _decide_group(group: tuple[ModelState, ...], fleet: FleetState, now: float) -> list[ParkingDecision]:
    names = tuple(model.name for model in group)
    uuids = sorted({gpu for model in group for gpu in model.gpus})
    held = [fleet.held_gpus.get(uuid, HeldGpu(uuid, None, neighbours_known=False)) for uuid in uuids]
    saved = saving(held)
    timeout = _timeout(group, saved.watts)
    holds = {model.name: _hold(model, fleet, now, timeout) for model in group}
    group_hold = _hold_group(group, fleet, saved)
    due = None
    if timeout is not None and all(model.idleness.idle_since is not None for model in group):
        due = max(model.idleness.idle_since or now for model in group) + timeout
    outsiders = tuple(sorted({name for names in saved.kept_hot_by.values() for name in names}))
    decided = []
    for model in group:
        hold = holds[model.name] or group_hold
        holding = tuple(other for other in names if other != model.name and holds[other] is not None)
        if hold is None and holding:
            hold = Block("NeighbourHolds", f"{', '.join(holding)} keeps its GPU awake")
        if hold is not None:
            action, reason, message = Action.HOLD, hold.reason, hold.message
        else:
            dry = fleet.dry_run or any(member.rules.dry_run for member in group)
            action = Action.REPORT if dry else Action.PARK
            reason = "DryRun" if dry else "IdleBeyondBreakEven"
            message = f"idle {now - (model.idleness.idle_since or now):.0f} s, timeout {timeout:.0f} s"
        kept = (*outsiders, *holding) if len(group) > 1 or outsiders else ()
        decided.append(
            ParkingDecision(
                model.name, action, reason, message, names, _finite(timeout), _finite(due), saved, kept
            )
        )
    return decided


def _timeout(group: tuple[ModelState, ...], watts: float) -> float | None:
    """The timeout of a group, in seconds: the longest that any of its members asks for."""
    parts = [model.break_even for model in group if model.break_even is not None]
    if len(parts) < len(group):
        return None
    together = group_break_even(parts, watts)
    return max(_own_timeout(model, together) for model in group)


def _own_timeout(model: ModelState, break_even_seconds: float) -> float:
    return own_timeout_seconds(
        model.rules, break_even_seconds, model.adaptive_timeout, model.waiting_timeout_seconds
    )


def own_timeout_seconds(
    rules: ParkingRules,
    break_even_seconds: float,
    adaptive_timeout: float | None = None,
    waiting_timeout_seconds: float = 0.0,
) -> float:
    """The timeout that a model's rules ask for, given T*; `adaptive_timeout` is in T*."""
    wanted = break_even_seconds
    if rules.policy is ParkingPolicy.NEVER:
        wanted = math.inf
    elif rules.policy is ParkingPolicy.FIXED and rules.fixed_seconds is not None:
        wanted = rules.fixed_seconds
    elif rules.policy is ParkingPolicy.ADAPTIVE and adaptive_timeout is not None:
        wanted = adaptive_timeout * break_even_seconds
    return max(wanted, rules.min_idle_seconds, waiting_timeout_seconds)


def _hold(model: ModelState, fleet: FleetState, now: float, timeout: float | None) -> Block | None:
    """Why this model can't be evicted now, or None. The first reason that binds is told."""
    for check in (_held_by_fleet, _held_by_user, _held_by_evidence):
        if block := check(model, fleet, now):
            return block
    if timeout is None:
        return Block("BreakEvenUnknown", "too little is known of its GPUs to compute T*")
    idle = now - (model.idleness.idle_since or now)
    if idle < timeout:
        return Block("WithinBreakEven", f"idle {idle:.0f} s of {_seconds(timeout)}")
    return None


def _held_by_fleet(model: ModelState, fleet: FleetState, _now: float) -> Block | None:
    if fleet.paused:
        return Block("Paused", "parking is paused in the whole cluster")
    if not fleet.telemetry_healthy:
        return Block("TelemetryUnhealthy", fleet.telemetry_message or "telemetry isn't healthy")
    if failed := fleet.failed_wakes.get(model.pool):
        return Block("WakeFailed", f"{failed} couldn't be woken in pool {model.pool}: clear that first")
    return None


def _held_by_user(model: ModelState, _fleet: FleetState, now: float) -> Block | None:
    rules = model.rules
    if rules.policy is ParkingPolicy.NEVER:
        return Block("PolicyNever", "parking.policy is Never")
    if rules.excluded_until is not None and now < rules.excluded_until:
        until = (
            "for ever" if math.isinf(rules.excluded_until) else f"for {rules.excluded_until - now:.0f} s more"
        )
        return Block("Excluded", f"excluded {until}: {rules.excluded_because or 'no reason given'}")
    if model.keep_warm_until is not None and now < model.keep_warm_until:
        return Block("KeepWarm", f"a schedule keeps it warm for {model.keep_warm_until - now:.0f} s more")
    awake = now - model.awake_since if model.awake_since is not None else math.inf
    if awake < rules.min_awake_seconds:
        return Block("Dwell", f"woken {awake:.0f} s ago, stays at least {rules.min_awake_seconds:.0f} s")
    recent = sum(1 for at in model.cold_starts if now - at < 3600)
    if rules.max_cold_starts_per_hour is not None and recent >= rules.max_cold_starts_per_hour:
        return Block("ColdStartsLimited", f"{recent} cold starts in the last hour, the limit")
    return model.blocks[0] if model.blocks else None


def _held_by_evidence(model: ModelState, _fleet: FleetState, _now: float) -> Block | None:
    idleness = model.idleness
    if idleness.verdict is not Verdict.IDLE or idleness.idle_since is None:
        return Block(idleness.reason, idleness.message)
    if not model.waiting_tokens:
        return Block("WaitingBudgetSpent", "another cold start would exceed maxDelayedRequests")
    return None


def _hold_group(group: tuple[ModelState, ...], fleet: FleetState, saved: Saving) -> Block | None:
    """What forbids parking the group as a whole."""
    if saved.unknown:
        return Block("GpuUnknown", f"not known who else holds {', '.join(saved.unknown)}, or its tax")
    if saved.kept_hot_by:
        hot = "; ".join(f"{uuid} by {', '.join(names)}" for uuid, names in saved.kept_hot_by.items())
        return Block("GpuKeptHot", f"nothing would be saved: {hot}")
    if saved.watts <= 0:
        return Block("NoTax", "an idle context costs nothing on its GPUs")
    for model in group:
        if model.idleness.gpu_confirmed:
            continue
        for uuid in model.gpus:
            witness = fleet.at_rest.get(uuid, Witness(Verdict.UNKNOWN, f"{uuid} wasn't looked at"))
            if witness.verdict is Verdict.BUSY:
                return Block("GpuDisagrees", f"all its models say idle, yet {witness.message}")
            if witness.verdict is not Verdict.IDLE:
                return Block("GpuTelemetryMissing", witness.message)
    return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _seconds(value: float) -> str:
    return "for ever" if math.isinf(value) else f"{value:.0f} s"
