"""Learning from telemetry: shrinkage, outliers, drift, persistence."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper_predictor import InvalidInput
from wattkeeper_predictor.anchoring import AnchorState, Priors, Quantity
from wattkeeper_predictor.observation import Observed

PRIORS: dict[Quantity, Priors] = {
    "itl": Priors(gpu=0.05, gpu_seen=0.01, model=0.02, pair=0.02, noise=0.02),
    "idle": Priors(gpu=0.2, gpu_seen=0.03, model=0.005, pair=0.02, noise=0.03),
}
FRESH = AnchorState(PRIORS, frozenset({"A30"}))


def learnt(state: AnchorState, errors: list[float], gpu: str = "L4", model: str = "m") -> AnchorState:
    for error in errors:
        state = state.learn("itl", gpu, model, error)
    return state


def test_nothing_is_believed_without_evidence() -> None:
    shift = FRESH.shift("itl", "L4", "m")
    assert (shift.mean, shift.share) == (0.0, 1.0)
    assert shift.deviation == pytest.approx(math.hypot(0.05, 0.02, 0.02))
    assert FRESH.shift("itl", "A30", "m").deviation < shift.deviation
    assert FRESH.explain("L4", "m") == ()


def test_one_reading_shrinks_towards_the_prior_and_many_don_t() -> None:
    one = learnt(FRESH, [0.10]).shift("itl", "L4", "m")
    many = learnt(FRESH, [0.10] * 40).shift("itl", "L4", "m")
    assert 0.07 < one.mean < 0.10
    assert many.mean == pytest.approx(0.10, abs=0.005)
    assert many.share < one.share < 1


def test_a_gpus_other_models_profit_and_other_gpus_hardly() -> None:
    state = FRESH
    for model in ("a", "b", "c", "d"):
        state = learnt(state, [0.10] * 5, model=model)
    unheard = state.shift("itl", "L4", "e")
    assert 0.07 < unheard.mean < 0.10
    assert abs(state.shift("itl", "H100", "e").mean) < 1e-9
    assert 0 < state.shift("itl", "H100", "a").mean < 0.03


def test_one_odd_model_doesnt_correct_the_gpu() -> None:
    state = FRESH
    for model in ("a", "b", "c"):
        state = learnt(state, [0.0] * 10, model=model)
    state = learnt(state, [0.2] * 10, model="odd")
    assert state.shift("itl", "L4", "odd").mean > 0.15
    assert abs(state.shift("itl", "L4", "unheard").mean) < 0.05


def test_an_outlier_moves_little_and_a_drift_is_told() -> None:
    settled = learnt(FRESH, [0.02, 0.03, 0.01, 0.02, 0.02, 0.03])
    hit = learnt(settled, [1.5])
    assert hit.shift("itl", "L4", "m").mean < 0.06 or hit.drifts()
    back = learnt(settled, [0.25] * 6)
    assert [drift.quantity for drift in back.drifts()] == ["itl"]
    assert back.shift("itl", "L4", "m").mean == pytest.approx(0.25, abs=0.05)
    assert "has left what was learnt" in back.drifts()[0].message
    assert settled.drifts() == ()


def test_what_cant_be_learnt_changes_nothing() -> None:
    assert FRESH.learn("itl", "L4", "m", math.nan) is FRESH
    assert FRESH.learn("rise", "L4", "m", 0.1) is FRESH


@given(
    st.lists(st.tuples(st.sampled_from(["L4", "A30"]), st.sampled_from("ab"), st.floats(-3, 3)), max_size=25)
)
def test_states_go_to_json_and_back(readings: list[tuple[str, str, float]]) -> None:
    state = FRESH
    for gpu, model, error in readings:
        state = state.learn("itl", gpu, model, error)
    again = FRESH.with_json(state.to_json())
    assert again.to_json() == state.to_json()
    for gpu, model, _ in readings:
        assert again.shift("itl", gpu, model) == state.shift("itl", gpu, model)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": 2, "evidence": []}', '{"schema": 1, "evidence": [["itl", "g", "m", 1]]}',
     '{"schema": 1, "evidence": [["speed", "g", "m", 1, 0, 0, 0, 0]]}',
     '{"schema": 1, "evidence": [["itl", "g", "m", -1, 0, 0, 0, 0]]}',
     '{"schema": 1, "evidence": [["itl", "g", "m", "x", 0, 0, 0, 0]]}'],
)  # fmt: skip
def test_a_damaged_state_is_refused_with_the_cure(text: str) -> None:
    with pytest.raises(InvalidInput, match="learn afresh"):
        FRESH.with_json(text)


@given(st.floats(-0.5, 0.5), st.integers(1, 40))
def test_more_evidence_never_leaves_more_doubt(error: float, count: int) -> None:
    fewer = learnt(FRESH, [error] * count).shift("itl", "L4", "m")
    more = learnt(FRESH, [error] * (count + 1)).shift("itl", "L4", "m")
    assert more.deviation <= fewer.deviation * (1 + 1e-9)
    assert abs(fewer.mean) <= abs(error) + 1e-12


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"context_idle_watts": 0.0}, "context_idle_watts"),
        ({"itl_seconds": math.nan}, "itl_seconds"),
        ({"duty": -1.0}, "duty"),
        ({"samples": 0}, "samples"),
        ({"active_watts": True}, "active_watts"),
        ({"context_idle_watts": 50.0, "active_watts": 40.0}, "active_watts"),
    ],
)
def test_absurd_readings_are_named(values: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidInput, match=f"observed.{field}"):
        Observed(**values)  # type: ignore[arg-type]
