"""Where the recipe may speak: what it refuses, and what it answers with a wider bound.

Trained on unquantized dense models, on one NVIDIA GPU, at mean loads of up to some five running sequences
with prompts of about fifteen tokens. What lies elsewhere is refused, never scaled by a guess. Longer
prompts and contexts add work whose least share of a step is known from the model's and the GPU's figures;
the bounds widen by it, and above a limit the question is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattkeeper_predictor.errors import OutOfPredictorRange
from wattkeeper_predictor.memory import kv_bytes
from wattkeeper_predictor.prediction import Query
from wattkeeper_predictor.quantization import (
    UNQUANTIZED,
    check_gpu_runs,
    effective_quantization,
    weight_bytes,
)

from .features import bandwidth_latency_seconds

LEAST_CAPABILITY = (7, 0)
_MEASURED_PROMPT_TOKENS = 15
_MEASURED_CONTEXT_TOKENS = 128
_MOST_EXTRA_WORK_SERVER = 0.25
_MOST_EXTRA_WORK_OFFLINE = 1.0
# Above this many running sequences over the most in training, latency is no longer interpolated.
_RUNNING_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class ExtraWork:
    """Work beyond that of the measured requests, relative to a step.

    ``step_share``: how much longer a step takes; ``prefill_running``: prompts being read on average.
    """

    step_share: float
    prefill_running: float


def check_kind(query: Query) -> None:
    """Refuse what the recipe was never trained on.

    Raises ``InvalidInput`` where the GPU lacks the weight format, else ``OutOfPredictorRange``.
    """
    quantization = effective_quantization(query.model, query.serving)
    check_gpu_runs(quantization, query.gpu)
    model, gpu, serving = query.model, query.gpu, query.serving
    if model.is_mixture_of_experts:
        raise OutOfPredictorRange(
            "model.id", f"{model.id} is a mixture of experts; the recipe is trained on dense models only"
        )
    if quantization != UNQUANTIZED:
        raise OutOfPredictorRange(
            "serving.quantization",
            f"weights in {quantization}; the recipe is trained on 16-bit weights only, so choose an "
            "unquantized checkpoint",
        )
    if serving.tensor_parallel_size != 1:
        raise OutOfPredictorRange(
            "serving.tensor_parallel_size",
            f"{serving.tensor_parallel_size} GPUs a replica; the recipe is trained on one, so choose 1",
        )
    if gpu.vendor != "NVIDIA":
        raise OutOfPredictorRange(
            "gpu", f"{gpu.name} is made by {gpu.vendor}; the recipe is trained on NVIDIA GPUs"
        )
    if gpu.capability is not None and gpu.capability < LEAST_CAPABILITY:
        raise OutOfPredictorRange(
            "gpu",
            f"{gpu.name} has compute capability {gpu.compute_capability}; engines need "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}, so choose a newer GPU",
        )


def extra_work(query: Query, itl_seconds: float, fp16_dense_tflops: float) -> ExtraWork:
    """The least extra work of longer prompts and contexts, at the efficiency the step itself reaches.

    Raises ``OutOfPredictorRange`` if it is too much for the measured figures to mean anything.
    """
    model, work = query.model, query.workload
    context = work.prompt_tokens + work.output_tokens // 2
    longer_cache = kv_bytes(model, context) - kv_bytes(model, min(context, _MEASURED_CONTEXT_TOKENS))
    cache_share = longer_cache / weight_bytes(model, UNQUANTIZED)
    more_prompt = max(0, work.prompt_tokens - _MEASURED_PROMPT_TOKENS)
    prompt_seconds = more_prompt * 2 * model.parameters_active_billion / (fp16_dense_tflops * 1e3)
    if work.scenario == "Offline":
        # Of an inverse throughput each token carries its share of reading the prompt.
        share = cache_share + prompt_seconds / work.output_tokens / itl_seconds
        _check_share(share, _MOST_EXTRA_WORK_OFFLINE)
        return ExtraWork(share, 0.0)
    efficiency = min(1.0, bandwidth_latency_seconds(model, query.gpu) / itl_seconds)
    running = (work.requests_per_second or 0.0) * prompt_seconds / efficiency
    if running >= 1:
        raise OutOfPredictorRange(
            "workload.requests_per_second",
            f"reading the prompts alone would keep the GPU busy {running:.3g} times over; lower the rate, "
            "shorten the prompts or spread the load over more replicas",
        )
    share = (1 + cache_share) / (1 - running) - 1
    _check_share(share, _MOST_EXTRA_WORK_SERVER)
    return ExtraWork(share, running)


def check_running(running: float, most_in_training: float) -> None:
    """Refuse a load that keeps more sequences at work than were ever measured."""
    if running > _RUNNING_MARGIN * most_in_training:
        raise OutOfPredictorRange(
            "workload.requests_per_second",
            f"keeps {running:.1f} requests running at once on average, and the recipe is trained on at most "
            f"{most_in_training:.1f}; spread the load over more replicas",
        )


def _check_share(share: float, most: float) -> None:
    if share > most:
        raise OutOfPredictorRange(
            "workload.prompt_tokens",
            f"prompts and contexts this long add at least {share:.0%} to each step, and the recipe is "
            f"trained on prompts of about {_MEASURED_PROMPT_TOKENS} tokens; shorten them or lower the rate",
        )
