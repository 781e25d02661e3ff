"""A fleet under several policies: each model on the engine that it needs, and all of them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattkeeper.core.break_even import Accounting
from wattkeeper.sim import events, renewal, shared_optimum
from wattkeeper.sim.arrivals import Trace
from wattkeeper.sim.outcome import Outcome, together
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.renewal import LoneModel
from wattkeeper.sim.residents import SharedModel

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What holds for a whole simulation."""

    accounting: Accounting = Accounting.CORRECTED
    horizon: float | None = None  # seconds; None: the whole days that the traces need
    loads_take_time: bool = False
    profiles: bool = False


def simulate(
    models: Sequence[SharedModel],
    policies: Sequence[Policy],
    options: Options,
    progress: Progress | None = None,
) -> list[Outcome]:
    """One outcome a policy, over all models. ValueError where the options don't go together."""
    parts = linked(models)
    horizon = options.horizon
    if horizon is None and len(models) > 1:
        horizon = max(horizon_of(model.trace) for model in models)
    found: list[list[Outcome]] = []
    for part in parts:
        if len(part) == 1 and not options.loads_take_time:
            lone = LoneModel(part[0].name, part[0].trace, part[0].hardware)
            outcomes = renewal.simulate(
                lone, policies, options.accounting, horizon, profiles=options.profiles, progress=progress
            )
        else:
            end = horizon if horizon is not None else horizon_of(part[0].trace)
            outcomes = [_shared(part, policy, options, end, progress) for policy in policies]
        found.append(outcomes)
    if len(found) == 1:
        return found[0]
    return [
        together(f"{len(models)} models", [outcomes[i] for outcomes in found]) for i in range(len(policies))
    ]


def linked(models: Sequence[SharedModel]) -> list[tuple[SharedModel, ...]]:
    """Models joined wherever two hold the same GPU, in their order."""
    parts: dict[int, list[SharedModel]] = {}
    part_of: dict[str, int] = {}  # GPU → number of its part
    for number, model in enumerate(models):
        joined = sorted({part_of[gpu] for gpu in model.gpus if gpu in part_of})
        members = [*(each for part in joined for each in parts.pop(part)), model]
        parts[number] = members
        part_of.update((gpu, number) for each in members for gpu in each.gpus)
    return [tuple(members) for members in parts.values()]


def horizon_of(trace: Trace) -> float:
    """What to simulate of a trace; reads it where it doesn't say."""
    if trace.covers is not None:
        return trace.covers
    end = 0.0
    for chunk in trace.chunks():
        if len(chunk.arrivals):
            end = max(end, float((chunk.arrivals + chunk.services).max()))
    return trace.horizon(end)


def _shared(
    part: Sequence[SharedModel],
    policy: Policy,
    options: Options,
    horizon: float,
    progress: Progress | None,
) -> Outcome:
    if policy.kind is Kind.OPTIMUM:
        if options.loads_take_time or options.accounting is Accounting.TOTAL:
            raise ValueError(
                "Optimum isn't known where loads take time, nor under the published accounting on shared GPUs"
            )
        best = shared_optimum.optimum(part, options.accounting, horizon)
        if best is None:
            raise ValueError(
                "Optimum is known only where the models of a GPU hold the same GPUs: "
                + ", ".join(f"{model.name} on {'+'.join(model.gpus)}" for model in part)
            )
        return best
    rules = events.Rules(policy, options.accounting, horizon, options.loads_take_time)
    return events.simulate(part, rules, profile=options.profiles, progress=progress)
