"""The simulator: one day, a fleet's month, and a plain loop over seconds beside it.

The fleet is of FLEET_MODELS models for 30 days under five policies; what a thousand take is scaled from it.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

from tests.bench.timing import measure
from wattkeeper.core.break_even import Accounting
from wattkeeper.sim.arrivals import DAY, Trace, from_arrays
from wattkeeper.sim.generators import Poisson, generate
from wattkeeper.sim.hardware import Hardware, hardware
from wattkeeper.sim.policies import Kind, Policy
from wattkeeper.sim.renewal import LoneModel, simulate

FLEET_MODELS = 60
FIVE = (
    Policy(Kind.NEVER),
    Policy(Kind.BREAK_EVEN),
    Policy(Kind.FIXED, 600.0),
    Policy(Kind.ADAPTIVE),
    Policy(Kind.BREAK_EVEN, max_delayed=0.05),
)
BUSY_REQUESTS, QUIET_PER_HOUR = 10_000, 100 / 24


def benchmarks() -> dict[str, dict[str, object]]:
    figures = hardware("H100")
    busy = _at_hand("busy", Poisson(BUSY_REQUESTS / 24), 1)
    quiet = _at_hand("quiet", Poisson(QUIET_PER_HOUR), 30)
    results: dict[str, dict[str, object]] = {}
    for policy in (*FIVE, Policy(Kind.OPTIMUM)):
        results[f"a day of 10,000 requests, {policy.label}"] = dict(
            measure(lambda p=policy: _run(busy, figures, [p], 1), runs=10)
        )
    in_events = measure(lambda: _run(quiet, figures, FIVE[1:2], 30), runs=30)
    in_seconds = measure(lambda: by_seconds(quiet, figures, 30), runs=2, warm_up=0)
    results["a month of 100 requests a day, BreakEven, by events"] = dict(in_events)
    results["the same by a plain loop over seconds"] = {
        **in_seconds,
        "times_slower": in_seconds["median_seconds"] / in_events["median_seconds"],
    }
    results[f"a fleet of {FLEET_MODELS} models for 30 days, five policies"] = _fleet(figures)
    results["memory, from 100,000 requests to 2,000,000"] = _memory(figures)
    return results


def _run(trace: Trace, figures: Hardware, policies: Sequence[Policy], days: int) -> object:
    return simulate(LoneModel(trace.name, trace, figures), policies, Accounting.CORRECTED, days * DAY)


def _at_hand(name: str, process: Poisson, days: int) -> Trace:
    """Generated once, so that the simulation alone is timed."""
    chunks = list(generate(name, process, days * DAY, seed=1).chunks())
    return from_arrays(
        name,
        [at for chunk in chunks for at in chunk.arrivals.tolist()],
        [service for chunk in chunks for service in chunk.services.tolist()],
    )


def by_seconds(trace: Trace, figures: Hardware, days: int) -> tuple[float, int]:
    """Joules and cold starts under BreakEven, looking at every second: as a plain simulator would."""
    timeout = figures.break_even(Accounting.CORRECTED).seconds
    requests = [
        (at, service)
        for chunk in trace.chunks()
        for at, service in zip(chunk.arrivals.tolist(), chunk.services.tolist(), strict=True)
    ]
    requests.append((float("inf"), 0.0))
    context, bare = figures.context_watts, figures.bare_watts
    loaded, busy_until, joules, cold, following = False, 0.0, 0.0, 0, 0
    for second in range(round(days * DAY)):
        while requests[following][0] < second + 1:
            at, service = requests[following]
            if not loaded:
                loaded, cold = True, cold + 1
                joules += figures.load.total_joules
            busy_until = max(busy_until, at + service)
            following += 1
        if loaded and second - busy_until > timeout:
            loaded = False
        joules += context if loaded else bare
    return joules, cold


def _fleet(figures: Hardware) -> dict[str, object]:
    began = time.perf_counter()
    used = time.process_time()
    for number in range(FLEET_MODELS):
        trace = generate(f"model-{number}", Poisson(QUIET_PER_HOUR), 30 * DAY, seed=(7, number))
        _run(trace, figures, FIVE, 30)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "cpu_seconds_for_1000_models": 1000 / FLEET_MODELS * cpu,
    }


def _memory(figures: Hardware) -> dict[str, object]:
    """The peak of the whole process before and after a trace twenty times as long; it never falls."""
    peaks = []
    for requests in (100_000, 2_000_000):
        days = requests / (600 * 24)
        trace = generate("long", Poisson(600.0), days * DAY, seed=3)
        _run(trace, figures, FIVE[:3], round(days + 1))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return {"peak_mib_short": peaks[0], "peak_mib_long": peaks[1]}
