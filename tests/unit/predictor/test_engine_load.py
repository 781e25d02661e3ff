"""Batches, capacity, power: what follows from a step under a load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.predictor.samples import L4, LLAMA_8B, gpu_specs, model_specs
from tests.unit.predictor.test_engine_step import PRIOR, WORK, one
from wattkeeper_predictor import GpuSpec, InvalidInput, ModelSpec, ServingConfig, Workload, memory_fit
from wattkeeper_predictor.engine.batch import steady
from wattkeeper_predictor.engine.capacity import capacity
from wattkeeper_predictor.engine.idle import fit_idle
from wattkeeper_predictor.engine.power import (
    POWER_PRIORS,
    PowerParameters,
    active_rise,
    busy_share,
    full_rise,
    soft_cap,
)
from wattkeeper_predictor.engine.tail import PRIOR_MEDIANS, from_vector, itl_p95

POWER = PowerParameters(**{name: prior.median for name, prior in POWER_PRIORS.items()})
TAIL = from_vector(np.log(PRIOR_MEDIANS))


def at_rate(rate: float, model: ModelSpec = LLAMA_8B, gpu: GpuSpec = L4) -> Workload:
    return replace(WORK, requests_per_second=rate)


@given(
    model_specs(),
    gpu_specs(),
    st.integers(1, 4000),
    st.integers(1, 4000),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["none", "fp8", "awq"]),
)
def test_capacity_is_the_memory_accounting(
    model: ModelSpec, gpu: GpuSpec, prompt: int, output: int, parallel: int, quantization: str
) -> None:
    serving = ServingConfig(tensor_parallel_size=parallel, quantization=quantization)
    work = Workload(requests_per_second=1.0, prompt_tokens=prompt, output_tokens=output)
    try:
        fit = memory_fit(model, gpu, serving, work)
    except InvalidInput:
        return
    room = capacity(one(model, gpu, serving, work))
    assert room.whole[0] == pytest.approx(fit.max_sequences, abs=1)
    assert room.running[0] >= max(1, room.whole[0]) - 1


@given(st.integers(1, 100_000), st.integers(1, 100_000), st.integers(1, 5000))
def test_longer_contexts_never_raise_the_sequences_that_fit(prompt: int, output: int, more: int) -> None:
    work = Workload(requests_per_second=1.0, prompt_tokens=prompt, output_tokens=output)
    for longer in (
        replace(work, prompt_tokens=prompt + more),
        replace(work, output_tokens=output + more),
    ):
        assert capacity(one(work=longer)).whole[0] <= capacity(one(work=work)).whole[0]


@given(model_specs(), gpu_specs(), st.floats(1e-3, 50), st.floats(1.001, 5))
def test_more_load_never_lowers_batch_latency_or_power(
    model: ModelSpec, gpu: GpuSpec, rate: float, more: float
) -> None:
    columns = [one(model, gpu, work=at_rate(r)) for r in (rate, rate * more)]
    states = [steady(PRIOR, c) for c in columns]
    idle = np.array([30.0])
    power = [busy_share(c, s) * active_rise(POWER, c, s, idle) for c, s in zip(columns, states, strict=True)]
    assert states[1].running[0] >= states[0].running[0]
    assert states[1].itl[0] >= states[0].itl[0] * (1 - 1e-12)
    assert power[1][0] >= power[0][0] * (1 - 1e-9)
    tails = [itl_p95(TAIL, PRIOR, c, s)[0] for c, s in zip(columns, states, strict=True)]
    assert tails[1] >= tails[0] * (1 - 1e-9)
    assert tails[0] >= states[0].itl[0]


@given(model_specs(), gpu_specs(), st.floats(1e-3, 20), st.floats(1.001, 5))
def test_more_bandwidth_never_slows_a_loaded_server(
    model: ModelSpec, gpu: GpuSpec, rate: float, more: float
) -> None:
    faster = replace(gpu, memory_bandwidth_gb_s=gpu.memory_bandwidth_gb_s * more)
    slow, fast = (steady(PRIOR, one(model, g, work=at_rate(rate))) for g in (gpu, faster))
    assert fast.itl[0] <= slow.itl[0]
    assert fast.running[0] <= slow.running[0]


def test_the_batch_is_littles_law() -> None:
    state = steady(PRIOR, one(work=at_rate(1.0)))
    met = 1 + PRIOR.occupancy * 1.0 * (200 * state.itl[0] + PRIOR.first_token)
    assert state.running[0] == pytest.approx(met, rel=1e-4)


def test_a_load_beyond_the_room_is_an_overload() -> None:
    assert steady(PRIOR, one(work=at_rate(0.1))).overload[0] < 1
    assert steady(PRIOR, one(work=at_rate(100.0))).overload[0] > 1


def test_an_endless_queue_fills_the_room_and_a_finite_one_ends_in_a_tail() -> None:
    work = Workload(scenario="Offline", prompt_tokens=15, output_tokens=150)
    columns = one(work=work)
    room = capacity(columns).running[0]
    assert steady(PRIOR, columns).running[0] == room
    finite = columns.replace(queue=np.array([1000.0]), longest_output=np.array([256.0]))
    assert 1 < steady(PRIOR, finite).running[0] < room
    short = columns.replace(queue=np.array([4.0]), longest_output=np.array([256.0]))
    assert steady(PRIOR, short).running[0] <= 4


def test_throughput_and_latency_are_two_things() -> None:
    state = steady(PRIOR, one(work=Workload(scenario="Offline", prompt_tokens=15, output_tokens=150)))
    assert state.inverse_throughput[0] == pytest.approx(state.itl[0] / state.running[0])


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.floats(1, 10), st.floats(1.0, 3.0))
def test_the_soft_cap_is_below_both_and_rises_in_each(a: float, b: float, sharp: float, more: float) -> None:
    room = max(b, 5.0)
    capped = soft_cap(np.array([a]), np.array([b]), sharp)[0]
    assert 0 < capped <= min(a, room) * (1 + 1e-12)
    assert soft_cap(np.array([a * more]), np.array([b]), sharp)[0] >= capped * (1 - 1e-12)
    assert soft_cap(np.array([a]), np.array([b * more]), sharp)[0] >= capped * (1 - 1e-12)


def test_power_stays_below_the_boards_limit() -> None:
    columns = one(work=at_rate(3.0))
    state = steady(PRIOR, columns)
    idle = np.array([30.0])
    assert 0 < active_rise(POWER, columns, state, idle)[0] < 42
    assert 0 < full_rise(POWER, columns, idle)[0] <= 42


def test_idle_power_follows_its_two_figures() -> None:
    clocks, tdp = np.array([80.0, 160.0, 320.0]), np.array([100.0, 200.0, 400.0])
    model = fit_idle(clocks, tdp, 2.0 * clocks**0.5 * tdp**0.4)
    assert (model.clock_exponent, model.tdp_exponent) == pytest.approx((0.5, 0.4))
    assert model.watts(np.array([1e6]), np.array([100.0]))[0] == 90.0
