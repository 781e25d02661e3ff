"""What the operator must know of a model server: its arguments, its endpoints, and its request counters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattkeeper.api.v1alpha1.llmdeployment import LLMDeploymentSpec


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """The names by which an engine tells what it is doing, in the Prometheus text format.

    `in_flight` are gauges of requests that run or wait; `progress` are counters that move while it works
    (a frozen gauge is told from a busy engine by them).
    """

    path: str
    in_flight: tuple[str, ...]
    progress: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of model server."""

    name: str
    health_path: str
    metrics: RequestMetrics
    arguments: Callable[[LLMDeploymentSpec, int, int | None], list[str]]


def _vllm_arguments(spec: LLMDeploymentSpec, gpus: int, max_context_tokens: int | None) -> list[str]:
    """Arguments for the entrypoint of vLLM's images.

    `--model` rather than a positional name: the images' entrypoint is the API server up to 0.11 and
    `vllm serve` later, and only the option is understood by both (vllm#32294). `--max-model-len` is what
    the memory accounting says fits: vLLM refuses to start with the model's own limit when the cache can't
    hold it.
    """
    arguments = ["--model", spec.model.id, "--port", str(spec.server.port)]
    arguments += ["--tensor-parallel-size", str(gpus)]
    if max_context_tokens and not _has_flag(spec.server.args, "max-model-len"):
        arguments += ["--max-model-len", str(max_context_tokens)]
    if spec.model.quantization == "fp8" and not _has_flag(spec.server.args, "quantization", "q"):
        # Of a 16-bit checkpoint; the other formats are named by the checkpoint itself.
        arguments += ["--quantization", "fp8"]
    return [*arguments, *spec.server.args]


def _has_flag(arguments: Sequence[str], *flags: str) -> bool:
    """Whether one of the flags is among the arguments, in any spelling that argparse takes."""
    names = {match[1].replace("_", "-") for match in map(_FLAG.match, arguments) if match}
    return not names.isdisjoint(flags)


_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=|$)")

VLLM = Engine(
    name="vllm",
    health_path="/health",
    # vLLM's docs/design/metrics.md; the gauges freeze when all requests are cancelled at once (vllm#22545).
    metrics=RequestMetrics(
        path="/metrics",
        in_flight=("vllm:num_requests_running", "vllm:num_requests_waiting"),
        progress=("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    ),
    arguments=_vllm_arguments,
)

_ENGINES = {engine.name: engine for engine in (VLLM,)}


def engine_of(spec: LLMDeploymentSpec) -> Engine:
    """The engine that the spec names (the API admits no other)."""
    return _ENGINES[spec.server.engine]
