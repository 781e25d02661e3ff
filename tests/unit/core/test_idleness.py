"""Idleness: busy models are never idle, missing evidence is never idleness, and the clock is right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.idleness import Idleness, ModelEvidence, PodEvidence, assess
from wattkeeper.core.readings import GpuReading, Holder, Sample, ServerReading
from wattkeeper.core.witnesses import (
    ActivatorReport,
    IdleLevel,
    IdleMemory,
    IdlenessLimits,
    PodMemory,
    Verdict,
    gpu_at_rest,
)

NOW = 10_000.0
UUID = "GPU-1"
LEVEL = IdleLevel(121.7, 0.2, measured=True)


def at(value: float | None, age: float = 5.0, since: float | None = None) -> Sample | None:
    return None if value is None else Sample(value, NOW - age, since)


def gpu(
    watts: float | None = 121.9,
    util: float | None = 0.0,
    engine: float | None = 0.0,
    age: float = 5.0,
    **more: object,
) -> GpuReading:
    holders = more.pop("holders", (Holder("team", "llm-0"),))
    return GpuReading(
        UUID,
        power_watts=at(watts, age),
        gpu_util_ratio=at(util, age),
        engine_active_ratio=at(engine, age),
        holders=holders,  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


def server(
    running: float | None = 0.0,
    waiting: float | None = 0.0,
    prompt: float | None = 500.0,
    generated: float | None = 900.0,
    requests: float | None = 7.0,
    age: float = 5.0,
) -> ServerReading:
    return ServerReading(
        "team",
        "llm-0",
        "vllm",
        running=at(running, age),
        waiting=at(waiting, age),
        prompt_tokens_total=at(prompt, age),
        generation_tokens_total=at(generated, age),
        requests_total=at(requests, age),
    )


def evidence(
    of: ServerReading | None, *gpus: GpuReading, ready_at: float | None = 1000.0, **more: object
) -> ModelEvidence:
    pod = PodEvidence("llm-0", ready_at, of, gpus, max(1, len(gpus)))
    levels = {each.uuid: LEVEL for each in gpus}
    return ModelEvidence((pod,), levels, **more)  # type: ignore[arg-type]


def seen(
    active_at: float = 9000.0,
    counters: tuple[float | None, float | None, float | None] = (500.0, 900.0, 7.0),
    gauges: tuple[float | None, float | None] = (0.0, 0.0),
) -> IdleMemory:
    return IdleMemory({"llm-0": PodMemory(counters, NOW - 35, active_at, gauges)})


def look(of: ModelEvidence, memory: IdleMemory | None = None) -> Idleness:
    return assess(of, seen() if memory is None else memory, NOW)


def test_idle_since_the_last_movement() -> None:
    found = look(evidence(server(), gpu()))
    assert (found.verdict, found.idle_since, found.gpu_confirmed) == (Verdict.IDLE, 9000.0, True)
    assert found.memory.pods["llm-0"].active_at == 9000.0
    assert found.memory.pods["llm-0"].seen_at == NOW - 5


BUSY = {
    "running": (server(running=1), gpu(), "RequestsInFlight"),
    "waiting": (server(waiting=2), gpu(), "RequestsInFlight"),
    "prompt tokens": (server(prompt=501), gpu(), "CountersMoved"),
    "generated tokens": (server(generated=901), gpu(), "CountersMoved"),
    "a request": (server(requests=8), gpu(), "CountersMoved"),
    "a restart": (server(prompt=0, generated=0, requests=0), gpu(), "CountersMoved"),
    "a long stream": (server(running=1, generated=950), gpu(watts=400, util=1.0), "CountersMoved"),
}


@pytest.mark.parametrize("case", BUSY)
def test_busy(case: str) -> None:
    of, board, reason = BUSY[case]
    found = look(evidence(of, board))
    assert (found.verdict, found.idle_since, found.reason) == (Verdict.BUSY, None, reason)


UNKNOWN = {
    "no server metrics": (None, (gpu(),), "ServerMetricsMissing"),
    "stale server metrics": (server(age=91), (gpu(),), "ServerMetricsMissing"),
    "server metrics from the future": (server(age=-6), (gpu(),), "ServerMetricsMissing"),
    "no gauges": (server(running=None, waiting=None), (gpu(),), "ServerMetricsMissing"),
    "no counters": (server(prompt=None, generated=None, requests=None), (gpu(),), "ServerMetricsMissing"),
    "a counter is gone": (server(generated=None), (gpu(),), "ServerMetricsMissing"),
    "no GPU telemetry": (server(), (), "GpuTelemetryMissing"),
    "stale GPU telemetry": (server(), (gpu(age=91),), "GpuTelemetryMissing"),
    "no power": (server(), (gpu(watts=None),), "GpuTelemetryMissing"),
    "no utilisation": (server(), (gpu(util=None, engine=None),), "GpuTelemetryMissing"),
    "only a profiling field that may be stuck": (server(), (gpu(util=None),), "GpuTelemetryMissing"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_missing_evidence_is_never_idleness(case: str) -> None:
    of, gpus, reason = UNKNOWN[case]
    found = look(evidence(of, *gpus))
    assert (found.verdict, found.idle_since, found.reason) == (Verdict.UNKNOWN, None, reason)


def test_one_gpu_of_two_without_telemetry_is_unknown() -> None:
    pod = PodEvidence("llm-0", 1000.0, server(), (gpu(),), gpus_expected=2)
    found = look(ModelEvidence((pod,), {UUID: LEVEL}))
    assert (found.verdict, found.message) == (Verdict.UNKNOWN, "llm-0: 1 of 2 GPUs have telemetry")


def test_an_unknown_idle_level_is_unknown() -> None:
    found = look(replace(evidence(server(), gpu()), idle_levels={}))
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "GpuTelemetryMissing")


def test_the_first_look_only_remembers() -> None:
    first = look(evidence(server(), gpu()), IdleMemory())
    assert (first.verdict, first.idle_since) == (Verdict.UNKNOWN, None)
    later = assess(evidence(server(age=-20), gpu(age=-20)), first.memory, NOW + 25)
    assert (later.verdict, later.idle_since) == (Verdict.IDLE, NOW - 5)


@pytest.mark.parametrize(
    ("board", "words"),
    [
        (gpu(watts=412.0), ("412.0 W against 121.7 W idle", "running 0, waiting 0")),
        (gpu(util=0.97), ("utilisation 97%", "counters unmoved")),
        (gpu(engine=0.3), ("engine 30.0%", "counters unmoved")),
        # Profiling fields stuck at zero on a busy GPU, and the server's metrics with them.
        (gpu(watts=300.0, util=1.0, engine=0.0), ("300.0 W", "utilisation 100%")),
    ],
)
def test_what_disagrees_is_told_with_both_values(board: GpuReading, words: tuple[str, ...]) -> None:
    found = look(evidence(server(), board))
    assert (found.verdict, found.reason, found.idle_since) == (Verdict.DISAGREE, "GpuDisagrees", None)
    assert len(found.disagreements) == 1
    assert all(word in found.disagreements[0] for word in words)
    # It was at work: the clock starts anew.
    later = assess(evidence(server(age=-25), gpu(age=-25)), found.memory, NOW + 30)
    assert (later.verdict, later.idle_since) == (Verdict.IDLE, NOW - 5)


def test_a_frozen_gauge_is_overruled_after_a_while_and_told() -> None:
    frozen = evidence(server(running=106, waiting=15), gpu())
    assert look(frozen, seen(NOW - 299, gauges=(106.0, 15.0))).verdict is Verdict.BUSY
    found = look(frozen, seen(NOW - 301, gauges=(106.0, 15.0)))
    assert (found.verdict, found.reason, found.idle_since) == (Verdict.IDLE, "FrozenGauge", NOW - 301)
    assert "running 106, waiting 15" in found.disagreements[0]
    assert "121.9 W against 121.7 W idle" in found.disagreements[0]


@pytest.mark.parametrize(
    ("board", "of"),
    [
        (gpu(watts=300.0), server(running=106)),
        (gpu(watts=None), server(running=106)),
        (gpu(), server(running=106, prompt=None, generated=None, requests=None)),
    ],
)
def test_a_gauge_is_not_overruled_without_proof(board: GpuReading, of: ServerReading) -> None:
    assert look(evidence(of, board), seen(0.0, gauges=(106.0, 0.0))).verdict is Verdict.BUSY


def test_a_request_that_just_came_is_no_frozen_gauge() -> None:
    # Its prompt isn't counted yet, and the GPU was last read before it came.
    found = look(evidence(server(running=1), gpu(age=29)), seen(0.0))
    assert (found.verdict, found.reason) == (Verdict.BUSY, "RequestsInFlight")
    # Nor is a gauge that still changes, whatever the counters.
    found = look(evidence(server(running=105), gpu()), seen(0.0, gauges=(106.0, 0.0)))
    assert found.verdict is Verdict.BUSY
    assert found.memory.pods["llm-0"].active_at == NOW - 5


def test_the_end_of_a_request_is_dated_by_its_gauge() -> None:
    ended = replace(server(), running=at(0.0, since=9970.0))
    found = look(evidence(ended, gpu()), seen(9000.0, gauges=(1.0, 0.0)))
    assert (found.verdict, found.idle_since) == (Verdict.IDLE, 9970.0)


def test_the_clock_starts_at_ready_and_not_before() -> None:
    assert look(evidence(server(), gpu(), ready_at=9500.0)).idle_since == 9500.0
    loading = look(evidence(server(), gpu(), ready_at=None))
    assert (loading.verdict, loading.idle_since, loading.memory) == (Verdict.NOT_READY, None, IdleMemory())
    assert look(ModelEvidence(())).verdict is Verdict.NOT_READY


def test_movement_is_dated_by_the_scrape_that_first_showed_it() -> None:
    moved = replace(server(), generation_tokens_total=at(950, since=9950.0))
    found = look(evidence(moved, gpu()))
    assert found.verdict is Verdict.BUSY
    later = assess(evidence(replace(server(generated=950, age=-25)), gpu(age=-25)), found.memory, NOW + 30)
    assert later.idle_since == 9950.0


def test_telemetry_lost_for_a_while_proves_nothing_and_costs_nothing() -> None:
    blind = look(evidence(None, gpu()))
    assert blind.verdict is Verdict.UNKNOWN
    again = look(evidence(server(), gpu()), blind.memory)
    assert (again.verdict, again.idle_since) == (Verdict.IDLE, 9000.0)


def test_the_worst_word_of_any_replica_counts() -> None:
    def pod(name: str, of: ServerReading) -> PodEvidence:
        return PodEvidence(name, 1000.0, of, (replace(gpu(), uuid=name),), 1)

    memory = IdleMemory(
        {
            name: PodMemory((500.0, 900.0, 7.0), 9000.0, since)
            for name, since in (("a", 8000.0), ("b", 9000.0))
        }
    )
    levels = {"a": LEVEL, "b": LEVEL}
    both = assess(ModelEvidence((pod("a", server()), pod("b", server())), levels), memory, NOW)
    assert (both.verdict, both.idle_since) == (Verdict.IDLE, 9000.0)
    one = assess(ModelEvidence((pod("a", server()), pod("b", server(running=1))), levels), memory, NOW)
    assert (one.verdict, one.message) == (Verdict.BUSY, "b: running 1, waiting 0")


def report(
    in_flight: int = 0, last: float | None = None, since: float = 0.0, age: float = 1.0
) -> ActivatorReport:
    return ActivatorReport(in_flight, last, since, NOW - age)


def test_requests_at_the_activator_count() -> None:
    busy = look(evidence(server(), gpu(), activator=report(in_flight=1)))
    assert (busy.verdict, busy.reason) == (Verdict.BUSY, "RequestsAtActivator")
    recent = look(evidence(server(), gpu(), activator=report(last=9800.0)))
    assert (recent.verdict, recent.idle_since) == (Verdict.IDLE, 9800.0)
    stale = look(evidence(server(), gpu(), activator=report(age=200.0)))
    assert (stale.verdict, stale.reason) == (Verdict.UNKNOWN, "ActivatorUnknown")


def test_an_engine_without_counters_parks_only_behind_the_activator() -> None:
    blind = {"counters_exported": False}
    found = look(evidence(None, gpu(), **blind), IdleMemory())
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "NoRequestCounters")
    assert "parking.activation.path: Always" in found.message

    always = {**blind, "always_through_activator": True}
    assert look(evidence(None, gpu(), **always), IdleMemory()).reason == "ActivatorUnknown"
    watched = look(evidence(None, gpu(), activator=report(since=4000.0, last=7000.0), **always), IdleMemory())
    assert (watched.verdict, watched.idle_since) == (Verdict.IDLE, 7000.0)
    # It began to watch only now: before that there may have been requests.
    anew = look(evidence(None, gpu(), activator=report(since=9990.0), **always), IdleMemory())
    assert anew.idle_since == 9990.0
    assert look(evidence(None, gpu(util=0.5), activator=report(), **always)).verdict is Verdict.DISAGREE


SHARED = (Holder("team", "llm-0"), Holder("team", "other-0"))


def test_on_a_shared_gpu_the_neighbours_work_is_not_held_against_a_model() -> None:
    found = look(evidence(server(), gpu(watts=400.0, util=1.0, holders=SHARED)))
    assert (found.verdict, found.reason, found.gpu_confirmed) == (Verdict.IDLE, "IdleOnSharedGpu", False)
    assert found.idle_since == 9000.0
    # But its own gauge can't be overruled by a GPU that is at work.
    busy = look(evidence(server(running=9), gpu(watts=400.0, holders=SHARED)), seen(0.0, gauges=(9.0, 0.0)))
    assert busy.verdict is Verdict.BUSY


def test_mig_has_only_the_profiling_field_and_then_power_must_agree() -> None:
    assert look(evidence(server(), gpu(util=None, mig=True))).verdict is Verdict.IDLE
    assert look(evidence(server(), gpu(util=None, mig=True, watts=300.0))).verdict is Verdict.DISAGREE


@pytest.mark.parametrize(
    ("level", "ceiling"),
    [
        (IdleLevel(120.0, 0.1, measured=True), 126.0),  # five percent
        (IdleLevel(40.0, 0.1, measured=True), 45.0),  # five watts
        (IdleLevel(102.0, 3.0, measured=True), 114.0),  # four sigmas
        (IdleLevel(120.0, 3.0, measured=False), 156.0),  # production boards idle at up to 155 W
    ],
)
def test_how_near_to_idle_is_near(level: IdleLevel, ceiling: float) -> None:
    assert level.ceiling_watts(IdlenessLimits()) == pytest.approx(ceiling)
    assert gpu_at_rest(gpu(watts=ceiling - 0.01), level, NOW).verdict is Verdict.IDLE
    assert gpu_at_rest(gpu(watts=ceiling + 0.01), level, NOW).verdict is Verdict.BUSY


VALUE = st.one_of(st.none(), st.floats(0, 1e6))
AGE = st.one_of(st.floats(0, 80), st.floats(91, 1e5), st.floats(-1e5, -6))


@given(
    running=VALUE,
    waiting=VALUE,
    counters=st.tuples(VALUE, VALUE, VALUE),
    before=st.tuples(VALUE, VALUE, VALUE),
    watts=st.one_of(st.none(), st.floats(20, 700)),
    util=st.one_of(st.none(), st.floats(0, 1)),
    engine=st.one_of(st.none(), st.floats(0, 1)),
    ages=st.tuples(AGE, AGE),
    active_at=st.floats(0, NOW - 5),
    ready_at=st.one_of(st.none(), st.floats(0, NOW)),
)
def test_idle_only_with_all_the_evidence(
    running: float | None,
    waiting: float | None,
    counters: tuple[float | None, float | None, float | None],
    before: tuple[float | None, float | None, float | None],
    watts: float | None,
    util: float | None,
    engine: float | None,
    ages: tuple[float, float],
    active_at: float,
    ready_at: float | None,
) -> None:
    of = server(running, waiting, *counters, age=ages[0])
    found = look(
        evidence(of, gpu(watts, util, engine, age=ages[1]), ready_at=ready_at), seen(active_at, before)
    )
    if found.verdict is not Verdict.IDLE:
        assert found.idle_since is None
        return
    assert found.idle_since is not None and found.idle_since >= max(ready_at or 0.0, active_at)
    assert min(ages) >= -5 and max(ages) <= 90
    assert watts is not None and watts <= LEVEL.ceiling_watts(IdlenessLimits())
    assert util is not None and util <= 0.01
    assert engine is None or engine <= 0.005
    known = [(old, new) for old, new in zip(before, counters, strict=True) if new is not None]
    assert known and all(new == (old or 0.0) for old, new in known)
    # Every gauge above zero is a change from the last look here, so none counts as frozen.
    assert running == 0 and not waiting
