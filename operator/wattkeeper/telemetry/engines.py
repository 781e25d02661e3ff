"""How each model server tells what it is doing: its metrics' names, as the fields of ServerReading.

Sources are each project's own documentation and metric definitions. Names that look alike are chosen with
care: vLLM's `request_time_per_output_token_seconds` is not the ITL, and its `num_requests_waiting_by_reason`
would count waiting requests twice; Triton's `request_type="max"` is a limit; SGLang's `gen_throughput` holds
its last value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from wattkeeper.core.readings import ItlBasis

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class Term:
    """One metric. Its rows add up: data-parallel ranks, reasons, finish reasons.

    `only` takes rows whose labels have one of these values; "" is an absent label. `copies` are labels whose
    rows repeat one another, as tensor-parallel ranks do: of those the highest counts. `negated` reads 1 where
    the metric is 0, and 0 where it is more.
    """

    metric: str
    only: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    copies: frozenset[str] = frozenset()
    negated: bool = False


#: Terms of one alternative that are there add up; the first alternative that is there is used.
Alternatives = tuple[tuple[Term, ...], ...]


@dataclass(frozen=True, slots=True)
class Latency:
    """A histogram, by its sum and its count, and what it counts."""

    sum: Term
    count: Term
    basis: ItlBasis


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of server. `path` is where it serves its metrics."""

    name: str
    gauges: Mapping[str, Alternatives]  # fields of ServerReading
    counters: Mapping[str, Alternatives]
    latencies: tuple[Latency, ...] = ()  # best first
    path: str = "/metrics"

    @property
    def gauge_names(self) -> frozenset[str]:
        return frozenset(term.metric for each in self.gauges.values() for terms in each for term in terms)

    @property
    def counter_names(self) -> frozenset[str]:
        return frozenset(term.metric for each in self.counters.values() for terms in each for term in terms)

    @property
    def latency_names(self) -> frozenset[str]:
        return frozenset(term.metric for each in self.latencies for term in (each.sum, each.count))

    @property
    def names(self) -> frozenset[str]:
        return self.gauge_names | self.counter_names | self.latency_names


def _any(*metrics: str, copies: frozenset[str] = frozenset()) -> Alternatives:
    """One alternative a metric."""
    return tuple((Term(metric, copies=copies),) for metric in metrics)


def _all(*metrics: str, copies: frozenset[str] = frozenset()) -> Alternatives:
    """One alternative, of all these added up."""
    return (tuple(Term(metric, copies=copies) for metric in metrics),)


def _histogram(name: str, basis: ItlBasis, **labels: str) -> Latency:
    only = {label: frozenset({value}) for label, value in labels.items()}
    return Latency(Term(f"{name}_sum", only), Term(f"{name}_count", only), basis)


VLLM = Engine(
    "vllm",
    gauges={
        "running": _any("vllm:num_requests_running"),
        # Swapped-out requests are V0's.
        "waiting": _all("vllm:num_requests_waiting", "vllm:num_requests_swapped"),
        "asleep": (
            (Term("vllm:engine_sleep_state", {"sleep_state": frozenset({"awake"})}, negated=True),),
            (Term("vllm:engine_sleep_state", {"sleep_state": frozenset({""})}),),  # as first proposed
        ),
    },
    counters={
        "prompt_tokens_total": _any("vllm:prompt_tokens_total"),
        "generation_tokens_total": _any("vllm:generation_tokens_total"),
        "requests_total": _any("vllm:request_success_total"),
    },
    latencies=(
        _histogram("vllm:inter_token_latency_seconds", ItlBasis.TOKEN),
        _histogram(
            "vllm:time_per_output_token_seconds", ItlBasis.TOKEN
        ),  # its name before 0.11, the same data
    ),
)

_SGLANG_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
SGLANG = Engine(
    "sglang",
    gauges={
        "running": _any("sglang:num_running_reqs", copies=_SGLANG_RANKS),
        # With prefill and decode apart, requests also wait between the two.
        "waiting": _all(
            "sglang:num_queue_reqs",
            "sglang:num_grammar_queue_reqs",
            "sglang:num_prefill_bootstrap_queue_reqs",
            "sglang:num_prefill_prealloc_queue_reqs",
            "sglang:num_prefill_inflight_queue_reqs",
            "sglang:num_decode_prealloc_queue_reqs",
            "sglang:num_decode_transfer_queue_reqs",
            copies=_SGLANG_RANKS,
        ),
    },
    counters={
        "prompt_tokens_total": _any("sglang:prompt_tokens_total", copies=_SGLANG_RANKS),
        "generation_tokens_total": _any("sglang:generation_tokens_total", copies=_SGLANG_RANKS),
        "requests_total": _any("sglang:num_requests_total", copies=_SGLANG_RANKS),
    },
    latencies=(
        _histogram("sglang:inter_token_latency_seconds", ItlBasis.TOKEN),
        _histogram("sglang:time_per_output_token_seconds", ItlBasis.REQUEST),
    ),
)

TGI = Engine(
    "tgi",
    gauges={
        "running": _any("tgi_batch_current_size"),
        "waiting": _any("tgi_queue_size"),
    },
    counters={
        "prompt_tokens_total": _any("tgi_request_input_length_sum"),
        "generation_tokens_total": _any("tgi_request_generated_tokens_sum"),
        "requests_total": _any("tgi_request_count"),
    },
    latencies=(
        _histogram("tgi_batch_forward_duration", ItlBasis.STEP, method="decode"),
        # Inference time over tokens: includes the prefill.
        _histogram("tgi_request_mean_time_per_token_duration", ItlBasis.REQUEST),
    ),
)

LLAMA_CPP = Engine(
    "llama.cpp",
    gauges={
        "running": _any("llamacpp:requests_processing"),
        "waiting": _any("llamacpp:requests_deferred"),
    },
    counters={
        "prompt_tokens_total": _any("llamacpp:prompt_tokens_total"),
        "generation_tokens_total": _any("llamacpp:tokens_predicted_total"),
    },
    latencies=(
        Latency(
            Term("llamacpp:tokens_predicted_seconds_total"),
            Term("llamacpp:tokens_predicted_total"),
            ItlBasis.TOKEN,
        ),
    ),
)


def _trtllm(name: str) -> Alternatives:
    return _any(f"trtllm_{name}", f"trtllm:{name}")  # Dynamo wrote a colon at first


TENSORRT_LLM = Engine(
    "tensorrt-llm",
    gauges={
        "running": _trtllm("num_requests_running"),
        "waiting": _trtllm("num_requests_waiting"),
    },
    counters={
        "prompt_tokens_total": _trtllm("prompt_tokens_total"),
        "generation_tokens_total": _trtllm("generation_tokens_total"),
        "requests_total": _trtllm("request_success_total"),
    },
    latencies=(
        _histogram("trtllm_time_per_output_token_seconds", ItlBasis.REQUEST),
        _histogram("trtllm:time_per_output_token_seconds", ItlBasis.REQUEST),
    ),
    path="/prometheus/metrics",
)

# One gauge whose request_type mixes states that overlap, and a limit.
_TRITON_STATES = frozenset({"active", "scheduled", "context", "generation"})
TRITON = Engine(
    "triton",
    gauges={
        "running": (
            (
                Term(
                    "nv_trt_llm_request_metrics",
                    {"request_type": _TRITON_STATES},
                    copies=frozenset({"request_type"}),
                ),
            ),
        ),
        "waiting": (
            (
                Term("nv_trt_llm_request_metrics", {"request_type": frozenset({"waiting"})}),
                Term("nv_inference_pending_request_count"),
            ),
        ),
    },
    # A pipeline counts a request once in each of its models.
    counters={"requests_total": _all("nv_inference_request_success", "nv_inference_request_failure")},
)

#: Those with metrics of their own. Ollama has none: it parks only where all traffic passes the activator.
ENGINES: tuple[Engine, ...] = (VLLM, SGLANG, TGI, LLAMA_CPP, TENSORRT_LLM, TRITON)


class EngineMetricsError(ValueError):
    """The metrics named for a custom engine can't be used; one line a problem, with the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetrics:
    """The metrics of a server that isn't one of ENGINES, by name; "" where it has none.

    Needed are the gauge of running requests and one counter: without them nothing proves idleness.
    """

    running: str
    waiting: str = ""
    prompt_tokens_total: str = ""
    generation_tokens_total: str = ""
    requests_total: str = ""
    itl_seconds: str = ""  # a histogram, without _sum or _count
    path: str = "/metrics"


def custom_engine(name: str, metrics: CustomMetrics) -> Engine:
    """An engine by the names of its metrics. Raises EngineMetricsError with every problem."""
    named = {key: str(getattr(metrics, key)) for key in CustomMetrics.__dataclass_fields__ if key != "path"}
    problems = [
        f"{key}: {value!r} isn't a metric's name: write letters, digits, _ and : (no labels, no braces)"
        for key, value in named.items()
        if value and not _NAME.fullmatch(value)
    ]
    if not metrics.running:
        problems.append("running: name the gauge of running requests")
    counters = ("prompt_tokens_total", "generation_tokens_total", "requests_total")
    if not any(named[key] for key in counters):
        problems.append(f"{counters[0]}: name this or another counter ({', '.join(counters[1:])})")
    if not metrics.path.startswith("/"):
        problems.append(f"path: {metrics.path!r} must begin with /")
    if problems:
        raise EngineMetricsError("\n".join(problems))
    return Engine(
        name,
        gauges={key: _any(named[key]) for key in ("running", "waiting") if named[key]},
        counters={key: _any(named[key]) for key in counters if named[key]},
        latencies=(_histogram(metrics.itl_seconds, ItlBasis.TOKEN),) if metrics.itl_seconds else (),
        path=metrics.path,
    )


def names_of_engines(engines: Iterable[Engine]) -> frozenset[str]:
    """Every metric that tells something of a server."""
    return frozenset(name for engine in engines for name in engine.names)
