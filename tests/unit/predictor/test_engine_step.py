"""The step simulator: units, limits, and monotonicity of every term."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.predictor.samples import L4, LLAMA_8B, gpu_specs, model_specs
from wattkeeper_predictor import GpuSpec, ModelSpec, ServingConfig, Workload
from wattkeeper_predictor.engine.columns import Columns, Question, columns_of
from wattkeeper_predictor.engine.gpu_columns import filled_in, gpu_row
from wattkeeper_predictor.engine.model_columns import model_row
from wattkeeper_predictor.engine.parameters import (
    NAMES,
    OFFLINE_PRIORS,
    ONLINE_PRIORS,
    from_vector,
    prior_vectors,
)
from wattkeeper_predictor.engine.step import (
    prompt_seconds,
    step_terms,
    weight_gb_per_gpu,
)

PRIOR = from_vector(prior_vectors(ONLINE_PRIORS)[0])
WORK = Workload(requests_per_second=0.3, prompt_tokens=100, output_tokens=200)
MIXTURE = replace(
    LLAMA_8B,
    parameters_total_billion=30.0,
    parameters_active_billion=3.0,
    experts_total=128,
    experts_active=8,
)


def one(
    model: ModelSpec = LLAMA_8B,
    gpu: GpuSpec = L4,
    serving: ServingConfig = ServingConfig(),  # noqa: B008 - immutable
    work: Workload = WORK,
) -> Columns:
    return columns_of([Question(model, gpu, serving, work)])


def seconds(columns: Columns, batch: float) -> float:
    return float(step_terms(PRIOR, columns, np.array([batch])).total()[0])


def test_a_weightbound_step_is_near_the_time_to_read_the_weights() -> None:
    # 16 bits of 8.03 − 0.53 (input table) billion parameters at 300 GB/s are 50 ms.
    terms = step_terms(PRIOR, one(), np.array([1.0]))
    assert float(terms.weights[0]) == pytest.approx(1.15 * 2 * (8.03 - 0.525) / 300.1, rel=0.01)
    assert 0.9 < float(terms.weights[0] / terms.total()[0]) < 1


def test_priors_cover_exactly_the_parameters() -> None:
    assert set(ONLINE_PRIORS) == set(OFFLINE_PRIORS) == set(NAMES)
    assert all(prior.median > 0 and prior.width > 0 for prior in ONLINE_PRIORS.values())


@given(model_specs(), gpu_specs(), st.floats(1, 2000), st.floats(1.001, 4))
def test_no_term_falls_with_the_batch(model: ModelSpec, gpu: GpuSpec, batch: float, more: float) -> None:
    columns = one(model, gpu)
    few, many = (step_terms(PRIOR, columns, np.array([b])) for b in (batch, batch * more))
    for field in fields(few):
        assert getattr(many, field.name)[0] >= getattr(few, field.name)[0] * (1 - 1e-12)


@given(model_specs(), gpu_specs(), st.floats(1, 500), st.floats(1.001, 10))
def test_more_bandwidth_never_slows_a_step(model: ModelSpec, gpu: GpuSpec, batch: float, more: float) -> None:
    faster = replace(gpu, memory_bandwidth_gb_s=gpu.memory_bandwidth_gb_s * more)
    assert seconds(one(model, faster), batch) <= seconds(one(model, gpu), batch)


@given(st.floats(1, 500))
def test_a_mixture_touches_between_its_active_and_all_weights(batch: float) -> None:
    columns = one(MIXTURE)
    read = float(weight_gb_per_gpu(columns, np.array([batch]))[0])
    table = 2 * MIXTURE.vocab_size * MIXTURE.hidden_size / 1e9
    assert 2 * 3.0 - table <= read * (1 + 1e-9)
    assert read <= 2 * 30.0 - table + 1e-9


def test_the_share_of_touched_experts_follows_chance() -> None:
    columns = one(MIXTURE)
    row = model_row(MIXTURE, "none")
    assert row.expert_share == pytest.approx(8 / 128)
    assert row.dense_billion + row.expert_billion * row.expert_share == pytest.approx(row.active_billion)
    two = float(weight_gb_per_gpu(columns, np.array([2.0]))[0])
    expected = 2 * (row.dense_billion + row.expert_billion * (1 - (1 - 8 / 128) ** 2))
    assert two == pytest.approx(expected)


@pytest.mark.parametrize(("quantization", "share"), [("fp8", 0.5), ("awq", 0.26), ("mxfp4", 0.27)])
def test_narrow_weights_are_read_sooner(quantization: str, share: float) -> None:
    wide, narrow = one(), one(serving=ServingConfig(quantization=quantization))
    matrices = (wide.dense_billion - wide.head_billion)[0]
    head = 2 * wide.head_billion[0]
    read = weight_gb_per_gpu(narrow, np.ones(1))[0]
    assert read == pytest.approx(2 * matrices * share + head, rel=0.03)


def test_more_gpus_split_the_work_and_pay_for_the_exchange() -> None:
    h100 = replace(L4, name="NVLink GPU", nvlink_gb_s=900)
    alone, four = one(gpu=h100), one(gpu=h100, serving=ServingConfig(tensor_parallel_size=4))
    ones = np.ones(1)
    assert step_terms(PRIOR, four, ones).weights[0] == pytest.approx(
        step_terms(PRIOR, alone, ones).weights[0] / 4
    )
    assert step_terms(PRIOR, alone, ones).link[0] == 0 < step_terms(PRIOR, four, ones).link[0]
    pcie = one(gpu=L4, serving=ServingConfig(tensor_parallel_size=4))
    assert step_terms(PRIOR, pcie, ones).link[0] > step_terms(PRIOR, four, ones).link[0]


def test_reading_a_prompt_grows_faster_than_its_length() -> None:
    short, long = (one(work=replace(WORK, prompt_tokens=n)) for n in (1000, 10_000))
    assert prompt_seconds(PRIOR, long)[0] > 10 * prompt_seconds(PRIOR, short)[0]


def test_blanks_are_filled_from_the_generation_and_named() -> None:
    bare = GpuSpec(
        name="Some GPU",
        memory_bytes=48 * 1024**3,
        memory_bandwidth_gb_s=900,
        tdp_watts=300,
        compute_capability="8.9",
    )
    row = gpu_row(bare)
    assert (row.process_nm, row.gddr, row.fp8_speedup) == (5, 1, 2)
    assert row.tflops == pytest.approx(300)
    assert set(filled_in(bare)) == {"fp16_dense_tflops", "boost_clock_mhz", "sm_count", "memory_type"}
    assert filled_in(replace(L4, sm_count=60)) == ()


def test_equal_questions_give_equal_rows_whatever_stands_beside_them() -> None:
    question = Question(LLAMA_8B, L4, ServingConfig(), WORK)
    other = Question(MIXTURE, replace(L4, name="Other", tdp_watts=300), ServingConfig(), WORK)
    many = columns_of([other, question, other, question])
    alone = columns_of([question])
    for field in fields(Columns):
        values = getattr(many, field.name)
        assert np.array_equal(values[[1]], getattr(alone, field.name), equal_nan=True)
        assert np.array_equal(values[[1]], values[[3]], equal_nan=True)
