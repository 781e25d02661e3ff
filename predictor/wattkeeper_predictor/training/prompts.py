"""Times to read prompts, in the columns of Splitwise's performance model; they judge the first-token bound.

Columns: ``model, hardware, prompt_size, batch_size, tensor_parallel, prompt_time`` (milliseconds for the
whole batch of prompts). Nothing is fitted to them: the engine is an earlier one whose decoding steps are
twice as long, but reading a prompt is mostly matrix products, which haven't changed.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattkeeper_predictor.catalog import GpuCatalogue, ModelCatalogue
from wattkeeper_predictor.engine.batch import steady
from wattkeeper_predictor.engine.columns import Question, columns_of
from wattkeeper_predictor.errors import InvalidInput
from wattkeeper_predictor.recipes.wattkeeper.fitted import Fitted
from wattkeeper_predictor.specs import ServingConfig, Workload

Array = NDArray[np.float64]
PROMPT_COLUMNS = frozenset(
    ("model", "hardware", "prompt_size", "batch_size", "tensor_parallel", "prompt_time")
)
_MODELS = {"llama2-70b": "meta-llama/Llama-2-70b-chat-hf"}
_GPUS = {"a100-80gb": "A100 SXM4 80GB", "h100-80gb": "H100 SXM5"}
# From here on memory ran out and the times are of fewer prompts.
_MOST_BATCH = 32


@dataclass(frozen=True, slots=True)
class PromptTimes:
    """Questions with one prompt of batch × size tokens each, seconds measured, and a group for each row."""

    questions: tuple[Question, ...]
    seconds: Array
    parallel: Array
    group: NDArray[np.str_]
    sha256: str


def read_prompt_times(path: Path) -> PromptTimes:
    """Read a file; rows of unknown models or capped GPUs are passed over."""
    questions, seconds, parallel, groups = [], [], [], []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            known = row["model"] in _MODELS and row["hardware"] in _GPUS
            if not known or int(row["batch_size"]) > _MOST_BATCH:
                continue
            size = int(row["tensor_parallel"])
            questions.append(
                Question(
                    ModelCatalogue.load().get(_MODELS[row["model"]]),
                    GpuCatalogue.load().get(_GPUS[row["hardware"]]),
                    ServingConfig(tensor_parallel_size=size),
                    Workload(
                        scenario="Offline",
                        prompt_tokens=int(row["prompt_size"]) * int(row["batch_size"]),
                        output_tokens=128,
                    ),
                )
            )
            seconds.append(float(row["prompt_time"]) / 1e3)
            parallel.append(float(size))
            groups.append(f"{row['hardware']} × {size}, {row['prompt_size']} × {row['batch_size']}")
    if not questions:
        raise InvalidInput("runs", f"{path.name} has no row of a known model and GPU")
    return PromptTimes(
        tuple(questions),
        np.array(seconds),
        np.array(parallel),
        np.array(groups),
        hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def prompt_errors(fitted: Fitted, times: PromptTimes) -> Array:
    """ln(measured ÷ predicted) of the time to the first token, one sequence at work."""
    columns = columns_of(times.questions)
    columns = columns.replace(fixed_batch=np.ones(len(columns)))
    errors: Array = np.log(times.seconds / steady(fitted.online, columns).first_token)
    return errors
