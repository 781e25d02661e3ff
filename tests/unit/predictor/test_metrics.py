"""Scores: hand-worked figures, and ranking within what competes."""

from __future__ import annotations

import numpy as np
import pytest

from wattkeeper_predictor.levels import Level
from wattkeeper_predictor.training.metrics import score
from wattkeeper_predictor.training.protocols import held_out
from wattkeeper_predictor.training.runs import Run


def _runs(*pairs: tuple[str, str]) -> list[Run]:
    return [Run(model, gpu, Level.HIGH, 15, 200, 1.0, 1.0) for model, gpu in pairs]


RUNS = _runs(("a", "x"), ("b", "x"), ("c", "x"), ("a", "y"), ("b", "y"), ("c", "y"))


def test_errors_and_ranks() -> None:
    truth = np.array([1.0, 2.0, 3.0, 2.0, 4.0, 6.0])
    guess = np.array([1.1, 2.0, 2.7, 2.0, 6.0, 5.0])
    scores = score(RUNS, truth, guess)
    assert scores.mdape_percent == pytest.approx(10)
    assert scores.rmse == pytest.approx(np.sqrt((0.01 + 0.09 + 4 + 1) / 6))
    # On x the LLMs are ranked right, on y one of three pairs is swapped.
    assert scores.kendall_tau_llm == pytest.approx((1 + 1 / 3) / 2)
    assert scores.kendall_tau_gpu == pytest.approx(1.0)
    assert scores.n == 6


def test_equal_guesses_rank_nothing() -> None:
    truth = np.array([1.0, 2.0, 3.0, 2.0, 4.0, 6.0])
    guess = np.array([5.0, 5.0, 5.0, 9.0, 9.0, 9.0])
    assert score(RUNS, truth, guess).kendall_tau_llm is None


def test_levels_do_not_compete() -> None:
    runs = [Run("a", "x", level, 15, 200, 1, 1) for level in (Level.LOW, Level.HIGH)]
    assert score(runs, np.array([1.0, 2.0]), np.array([2.0, 1.0])).kendall_tau_llm is None


@pytest.mark.parametrize(("protocol", "folds"), [("cv", 5), ("logo", 2), ("lolo", 3)])
def test_each_row_is_held_out_once(protocol: str, folds: int) -> None:
    masks = list(held_out(RUNS, protocol))  # type: ignore[arg-type]
    assert len(masks) == folds
    assert np.array(masks).sum(axis=0).tolist() == [1] * len(RUNS)


def test_leaving_one_out_keeps_groups_together() -> None:
    for mask in held_out(RUNS, "logo"):
        assert len({run.gpu for run, out in zip(RUNS, mask, strict=True) if out}) == 1
