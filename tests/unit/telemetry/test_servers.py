"""Every engine's metrics as one reading of each model server."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.telemetry.pages import NOW
from wattkeeper.core.idleness import ModelEvidence, PodEvidence, assess
from wattkeeper.core.readings import ItlBasis, Sample, ServerReading
from wattkeeper.core.witnesses import IdleMemory
from wattkeeper.telemetry.cluster import ClusterView, KnownNode, KnownPod
from wattkeeper.telemetry.engines import (
    ENGINES,
    CustomMetrics,
    Engine,
    EngineMetricsError,
    custom_engine,
    names_of_engines,
)
from wattkeeper.telemetry.exposition import parse
from wattkeeper.telemetry.series import FaultKind, Faults, Series
from wattkeeper.telemetry.servers import attribute_servers

POD = {"namespace": "team", "pod": "llm-0", "instance": "10.1.0.5:8000", "job": "llms"}
CLUSTER = ClusterView(
    [KnownNode("node-1", ("192.0.2.1",))],
    [
        KnownPod("team", "llm-0", "uid-0", "node-1", "10.1.0.5"),
        KnownPod("team", "done-0", "uid-1", "node-1", "10.1.0.6", ended=True),
    ],
)


def read_servers(
    series: list[Series], cluster: ClusterView | None = None, engines: tuple[Engine, ...] = ENGINES
) -> tuple[list[ServerReading], dict[FaultKind, int]]:
    faults = Faults()
    found = attribute_servers(series, engines, cluster, faults)
    return [each for of_pod in found.values() for each in of_pod], {f.kind: f.count for f in faults.found()}


def page_of(text: str, **labels: str) -> list[Series]:
    """A page as Prometheus stores it: the target's labels beside its own."""
    found = parse(text, NOW, Faults())
    return [Series(each.name, dict(each.labels) | POD | labels, each.sample) for each in found]


def known(reading: ServerReading) -> dict[str, object]:
    """All that isn't unknown, without times."""
    shown: dict[str, object] = {}
    for field in ServerReading.__dataclass_fields__:
        value = getattr(reading, field)
        if isinstance(value, Sample):
            shown[field] = value.value
        elif value and field not in ("namespace", "pod", "instance"):
            shown[field] = value
    return shown


VLLM_V1 = """
vllm:num_requests_running{engine="0",model_name="org/model-a"} 2.0
vllm:num_requests_running{engine="1",model_name="org/model-a"} 1.0
vllm:num_requests_waiting{engine="0",model_name="org/model-a"} 4.0
vllm:num_requests_waiting{engine="1",model_name="org/model-a"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="org/model-a",reason="capacity"} 4.0
vllm:prompt_tokens_total{engine="0",model_name="org/model-a"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="org/model-a"} 50.0
vllm:generation_tokens_total{engine="0",model_name="org/model-a"} 30.0
vllm:generation_tokens_total{engine="1",model_name="org/model-a"} 20.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="org/model-a"} 7.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="org/model-a"} 2.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="org/model-a"} 0.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="org/model-a"} 40.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="org/model-a"} 0.9
vllm:inter_token_latency_seconds_count{engine="0",model_name="org/model-a"} 48.0
vllm:time_per_output_token_seconds_sum{engine="0",model_name="org/model-a"} 0.9
vllm:time_per_output_token_seconds_count{engine="0",model_name="org/model-a"} 48.0
vllm:request_time_per_output_token_seconds_sum{engine="0",model_name="org/model-a"} 9.0
vllm:request_time_per_output_token_seconds_count{engine="0",model_name="org/model-a"} 9.0
vllm:engine_sleep_state{engine="0",model_name="org/model-a",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="org/model-a",sleep_state="weights_offloaded"} 0.0
vllm:engine_sleep_state{engine="0",model_name="org/model-a",sleep_state="discard_all"} 0.0
vllm:iteration_tokens_total_sum{engine="0",model_name="org/model-a"} 5.0
"""
VLLM_V0 = """
vllm:num_requests_running{model_name="facebook/opt-125m"} 1.0
vllm:num_requests_waiting{model_name="facebook/opt-125m"} 2.0
vllm:num_requests_swapped{model_name="facebook/opt-125m"} 3.0
vllm:prompt_tokens_total{model_name="facebook/opt-125m"} 7.0
vllm:generation_tokens_total{model_name="facebook/opt-125m"} 16.0
vllm:time_per_output_token_seconds_sum{model_name="facebook/opt-125m"} 0.3
vllm:time_per_output_token_seconds_count{model_name="facebook/opt-125m"} 15.0
"""
SGLANG = """
sglang:num_running_reqs{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"} 3
sglang:num_running_reqs{model_name="m",engine_type="unified",tp_rank="1",pp_rank="0"} 3
sglang:num_queue_reqs{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"} 5
sglang:num_queue_reqs{model_name="m",engine_type="unified",tp_rank="1",pp_rank="0"} 5
sglang:num_decode_transfer_queue_reqs{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"} 1
sglang:gen_throughput{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"} 86.5
sglang:prompt_tokens_total{model_name="m"} 1000
sglang:generation_tokens_total{model_name="m"} 7.557572e+06
sglang:num_requests_total{model_name="m"} 12
sglang:time_per_output_token_seconds_sum{model_name="m"} 2.0
sglang:time_per_output_token_seconds_count{model_name="m"} 100
"""
TGI = """
# TYPE tgi_request_count counter
tgi_request_count 9
tgi_queue_size 2
tgi_batch_current_size 3
tgi_request_input_length_sum 700
tgi_request_generated_tokens_sum 400
tgi_batch_forward_duration_sum{method="prefill"} 5.0
tgi_batch_forward_duration_count{method="prefill"} 9
tgi_batch_forward_duration_sum{method="decode"} 8.0
tgi_batch_forward_duration_count{method="decode"} 400
tgi_request_mean_time_per_token_duration_sum 1.5
tgi_request_mean_time_per_token_duration_count 9
"""
LLAMA_CPP = """
llamacpp:prompt_tokens_total 120
llamacpp:tokens_predicted_total 80
llamacpp:tokens_predicted_seconds_total 4.0
llamacpp:predicted_tokens_seconds nan
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
"""
TRTLLM = """
trtllm_num_requests_running{model_name="m",engine_type="trtllm"} 1
trtllm_num_requests_waiting{model_name="m",engine_type="trtllm"} 0
trtllm_request_success_total{model_name="m",engine_type="trtllm",finished_reason="stop"} 3
trtllm_request_success_total{model_name="m",engine_type="trtllm",finished_reason="length"} 1
trtllm_prompt_tokens_total{model_name="m",engine_type="trtllm"} 10
trtllm_generation_tokens_total{model_name="m",engine_type="trtllm"} 20
trtllm_time_per_output_token_seconds_sum{model_name="m",engine_type="trtllm"} 0.5
trtllm_time_per_output_token_seconds_count{model_name="m",engine_type="trtllm"} 4
"""
TRITON = """
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 3
nv_inference_request_success{model="tensorrt_llm",version="1"} 40
nv_inference_request_failure{model="tensorrt_llm",version="1",reason="OTHER"} 2
nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 6
"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            VLLM_V1,
            {
                "engine": "vllm",
                "model": "org/model-a",
                "running": 3.0,
                "waiting": 4.0,
                "prompt_tokens_total": 150.0,
                "generation_tokens_total": 50.0,
                "requests_total": 9.0,
                "itl_seconds_sum": 0.9,
                "itl_count": 48.0,
                "itl_basis": ItlBasis.TOKEN,
                "asleep": 0.0,
            },
        ),
        (
            VLLM_V0,
            {
                "engine": "vllm",
                "model": "facebook/opt-125m",
                "running": 1.0,
                "waiting": 5.0,
                "prompt_tokens_total": 7.0,
                "generation_tokens_total": 16.0,
                "itl_seconds_sum": 0.3,
                "itl_count": 15.0,
                "itl_basis": ItlBasis.TOKEN,
            },
        ),
        (
            SGLANG,
            {
                "engine": "sglang",
                "model": "m",
                "running": 3.0,
                "waiting": 6.0,
                "prompt_tokens_total": 1000.0,
                "generation_tokens_total": 7557572.0,
                "requests_total": 12.0,
                "itl_seconds_sum": 2.0,
                "itl_count": 100.0,
                "itl_basis": ItlBasis.REQUEST,
            },
        ),
        (
            TGI,
            {
                "engine": "tgi",
                "running": 3.0,
                "waiting": 2.0,
                "prompt_tokens_total": 700.0,
                "generation_tokens_total": 400.0,
                "requests_total": 9.0,
                "itl_seconds_sum": 8.0,
                "itl_count": 400.0,
                "itl_basis": ItlBasis.STEP,
            },
        ),
        (
            LLAMA_CPP,
            {
                "engine": "llama.cpp",
                "running": 1.0,
                "waiting": 0.0,
                "prompt_tokens_total": 120.0,
                "generation_tokens_total": 80.0,
                "itl_seconds_sum": 4.0,
                "itl_count": 80.0,
                "itl_basis": ItlBasis.TOKEN,
            },
        ),
        (
            TRTLLM,
            {
                "engine": "tensorrt-llm",
                "model": "m",
                "running": 1.0,
                "waiting": 0.0,
                "prompt_tokens_total": 10.0,
                "generation_tokens_total": 20.0,
                "requests_total": 4.0,
                "itl_seconds_sum": 0.5,
                "itl_count": 4.0,
                "itl_basis": ItlBasis.REQUEST,
            },
        ),
        (
            TRTLLM.replace("trtllm_num", "trtllm:num").replace("trtllm_time", "trtllm:time"),
            {
                "engine": "tensorrt-llm",
                "model": "m",
                "running": 1.0,
                "waiting": 0.0,
                "prompt_tokens_total": 10.0,
                "generation_tokens_total": 20.0,
                "requests_total": 4.0,
                "itl_seconds_sum": 0.5,
                "itl_count": 4.0,
                "itl_basis": ItlBasis.REQUEST,
            },
        ),
        (
            TRITON,
            {
                "engine": "triton",
                "model": "tensorrt_llm",
                "running": 4.0,
                "waiting": 7.0,
                "requests_total": 42.0,
            },
        ),
    ],
)
def test_each_engine_in_its_own_words(page: str, expected: dict[str, object]) -> None:
    (reading,), faults = read_servers(page_of(page))
    assert known(reading) == expected
    assert reading.key == ("team", "llm-0") and reading.instance == "10.1.0.5:8000"
    assert faults == {}


class TestSleep:
    def page(self, *states: tuple[str, str, int]) -> list[Series]:
        return page_of(
            "".join(
                f'vllm:engine_sleep_state{{engine="{engine}",model_name="m",sleep_state="{state}"}} {value}\n'
                for engine, state, value in states
            )
        )

    def test_asleep_at_either_level_or_at_none(self) -> None:
        for levels in ((1, 0), (0, 1), (0, 0)):
            rows = self.page(
                ("0", "awake", 0), ("0", "weights_offloaded", levels[0]), ("0", "discard_all", levels[1])
            )
            (reading,), _ = read_servers(rows)
            assert known(reading)["asleep"] == 1.0

    def test_awake_while_any_engine_is(self) -> None:
        (reading,), _ = read_servers(self.page(("0", "awake", 0), ("1", "awake", 1)))
        assert known(reading)["asleep"] == 0.0

    def test_a_sleeping_server_isnt_thereby_idle(self) -> None:
        (reading,), _ = read_servers(self.page(("0", "awake", 0)))
        assert reading.running is None and reading.counters == (None, None, None)


class TestWhichServer:
    def page(self, **labels: str) -> list[Series]:
        return [Series("vllm:num_requests_running", {"model_name": "m"} | labels, Sample(1, NOW))]

    @pytest.mark.parametrize(
        "labels",
        [
            {"namespace": "team", "pod": "llm-0"},
            POD,
            {"kubernetes_namespace": "team", "kubernetes_pod_name": "llm-0", "instance": "10.1.0.5:8000"},
            {"pod_namespace": "team", "pod_name": "llm-0"},
            {"instance": "10.1.0.5:8000"},  # by address alone
            {"namespace": "team", "pod": "llm-0", "node": "node-1"},
            {"namespace": "team", "pod": "llm-0", "instance": "llm.team.svc:8000"},
        ],
    )
    def test_by_whatever_names_it(self, labels: dict[str, str]) -> None:
        (reading,), faults = read_servers(self.page(**labels), CLUSTER)
        assert reading.key == ("team", "llm-0") and faults == {}

    @pytest.mark.parametrize(
        ("labels", "fault"),
        [
            ({}, FaultKind.NO_SERVER_IDENTITY),
            ({"instance": "llm.team.svc:8000"}, FaultKind.NO_SERVER_IDENTITY),
            ({"instance": "10.9.9.9:8000"}, FaultKind.NO_SERVER_IDENTITY),
            ({"instance": "192.0.2.1:8000"}, FaultKind.NO_SERVER_IDENTITY),  # a node's: any of its pods
            ({"namespace": "team", "pod": "gone-0"}, FaultKind.UNKNOWN_POD),
            ({"namespace": "team", "pod": "done-0"}, FaultKind.STALE_POD),
            # Another cluster's pod of the same name, or this one before it was made anew.
            ({"namespace": "team", "pod": "llm-0", "instance": "10.9.9.9:8000"}, FaultKind.STALE_POD),
            ({"namespace": "team", "pod": "llm-0", "node": "elsewhere"}, FaultKind.FOREIGN_CLUSTER),
        ],
    )
    def test_never_by_a_guess(self, labels: dict[str, str], fault: FaultKind) -> None:
        readings, faults = read_servers(self.page(**labels), CLUSTER)
        assert readings == [] and faults == {fault: 1}


class TestRepeatedRows:
    def test_two_jobs_that_scrape_one_server_are_one_server(self) -> None:
        rows = page_of(VLLM_V1) + [
            Series(
                each.name, dict(each.labels) | {"job": "annotations"}, Sample(each.sample.value + 9, NOW - 7)
            )
            for each in page_of(VLLM_V1)
        ]
        (reading,), _ = read_servers(rows)
        assert known(reading)["running"] == 3.0 and reading.running == Sample(3.0, NOW)
        assert reading.notes == ("2 jobs scrape it",)

    def test_several_servers_in_one_pod_add_up(self) -> None:
        rows = page_of(VLLM_V1) + page_of(VLLM_V1, instance="10.1.0.5:8001")
        (reading,), _ = read_servers(rows, CLUSTER)
        assert known(reading)["running"] == 6.0 and known(reading)["prompt_tokens_total"] == 300.0

    def test_what_one_of_them_doesnt_tell_is_unknown(self) -> None:
        rows = page_of(VLLM_V1) + page_of(
            'vllm:prompt_tokens_total{engine="0",model_name="m"} 1\n', instance="10.1.0.5:8001"
        )
        (reading,), _ = read_servers(rows)
        assert reading.running is None and known(reading)["prompt_tokens_total"] == 151.0

    def test_a_series_that_ended_is_left_out(self) -> None:
        rows = page_of('vllm:num_requests_running{engine="0",model_name="m"} 0\n')
        rows.append(
            Series(
                "vllm:num_requests_running", {"engine": "0", "model_name": "old"} | POD, Sample(5, NOW - 60)
            )
        )
        (reading,), _ = read_servers(rows)
        assert reading.running == Sample(0, NOW)

    def test_a_sum_is_as_old_as_its_oldest_part_and_stands_since_its_last_move(self) -> None:
        rows = [
            Series("vllm:num_requests_running", POD | {"instance": instance}, sample)
            for instance, sample in (
                ("10.1.0.5:1", Sample(1, NOW - 10, NOW - 70)),
                ("10.1.0.5:2", Sample(2, NOW, NOW - 30)),
            )
        ]
        (reading,), _ = read_servers(rows)
        assert reading.running == Sample(3, NOW - 10, NOW - 30)


class TestBadValues:
    @pytest.mark.parametrize(
        ("value", "fault"),
        [
            (math.nan, FaultKind.NOT_A_NUMBER),
            (math.inf, FaultKind.NOT_A_NUMBER),
            (-1.0, FaultKind.OUT_OF_RANGE),
        ],
    )
    def test_one_bad_part_makes_the_sum_unknown(self, value: float, fault: FaultKind) -> None:
        rows = [
            Series("vllm:num_requests_running", POD | {"engine": "0"}, Sample(0, NOW)),
            Series("vllm:num_requests_running", POD | {"engine": "1"}, Sample(value, NOW)),
        ]
        (reading,), faults = read_servers(rows)
        assert reading.running is None and faults == {fault: 1}

    def test_the_newest_hides_an_older_zero(self) -> None:
        rows = [
            Series("vllm:num_requests_running", POD | {"model_name": "a"}, Sample(0, NOW - 30)),
            Series("vllm:num_requests_running", POD | {"model_name": "b"}, Sample(math.nan, NOW)),
        ]
        assert read_servers(rows)[0][0].running is None

    def test_an_unreadable_queue_leaves_nothing_running_unproved(self) -> None:
        def rows(running: float, waiting: float) -> list[Series]:
            return [
                Series("vllm:num_requests_running", POD, Sample(running, NOW)),
                Series("vllm:num_requests_waiting", POD, Sample(waiting, NOW)),
            ]

        for running, waiting, expected in (
            (0.0, 0.0, Sample(0.0, NOW)),
            (0.0, math.nan, None),
            (2.0, math.nan, Sample(2.0, NOW)),  # busy all the same
        ):
            (reading,), _ = read_servers(rows(running, waiting))
            assert reading.running == expected
        (reading,), _ = read_servers(rows(0.0, 0.0)[:1])  # an engine without a queue of its own
        assert reading.running == Sample(0.0, NOW) and reading.waiting is None

    def test_a_server_with_no_known_metric_is_no_server(self) -> None:
        assert read_servers(page_of("vllm:request_params_n_count 1\nup 1\n")) == ([], {})


class TestCustomEngine:
    METRICS = CustomMetrics(running="app_in_flight", requests_total="app_requests", itl_seconds="app_itl")

    def test_by_the_names_of_its_metrics(self) -> None:
        page = 'app_in_flight{worker="1"} 1\napp_in_flight{worker="2"} 2\napp_requests 9\n'
        page += "app_itl_sum 0.5\napp_itl_count 25\n"
        engine = custom_engine("mine", self.METRICS)
        (reading,), _ = read_servers(page_of(page), engines=(*ENGINES, engine))
        assert known(reading) == {
            "engine": "mine",
            "running": 3.0,
            "requests_total": 9.0,
            "itl_seconds_sum": 0.5,
            "itl_count": 25.0,
            "itl_basis": ItlBasis.TOKEN,
        }

    def test_every_problem_at_once_each_with_the_cure(self) -> None:
        with pytest.raises(EngineMetricsError) as raised:
            custom_engine("mine", CustomMetrics(running="", waiting='a{b="c"}', path="metrics"))
        text = str(raised.value)
        for part in (
            "running: name the gauge",
            "waiting: 'a{b=",
            "prompt_tokens_total: name",
            "path: 'metrics'",
        ):
            assert part in text

    @pytest.mark.parametrize("name", ["a b", "1a", "a{}", "a|b", ".*", 'a"', "é"])
    def test_nothing_but_a_name_gets_into_a_query(self, name: str) -> None:
        with pytest.raises(EngineMetricsError):
            custom_engine("mine", CustomMetrics(running=name, requests_total="x"))


def test_no_two_engines_share_a_metric() -> None:
    names = [name for engine in ENGINES for name in engine.names]
    assert len(names) == len(set(names)) == len(names_of_engines(ENGINES))


@pytest.mark.parametrize("page", [VLLM_V1, VLLM_V0, SGLANG, TGI, LLAMA_CPP, TRTLLM])
def test_what_engines_tell_is_enough_to_prove_idleness_but_for_the_gpu(page: str) -> None:
    """The core needs the gauge and a counter of each engine; without a GPU it then misses only that."""
    for zero in ("running", "waiting", "processing", "deferred", "queue", "batch_current", "swapped"):
        page = "".join(
            line.rpartition(" ")[0] + " 0\n" if zero in line.partition(" ")[0] else line + "\n"
            for line in page.splitlines()
        )
    (reading,), _ = read_servers(page_of(page))
    evidence = ModelEvidence((PodEvidence("llm-0", NOW - 600, reading),))
    memory = assess(evidence, IdleMemory(), NOW).memory
    assert assess(evidence, memory, NOW + 1).reason == "GpuTelemetryMissing"


_ROWS = st.builds(
    lambda name, labels, value, age: Series(name, labels, Sample(value, NOW - age)),
    st.sampled_from([*sorted(names_of_engines(ENGINES)), "other"]),
    st.fixed_dictionaries(
        {"pod": st.sampled_from(["llm-0", "llm-1"]), "namespace": st.just("team")},
        optional={
            "instance": st.sampled_from(["10.1.0.5:8000", "10.1.0.5:8001"]),
            "job": st.sampled_from(["a", "b"]),
            "engine": st.sampled_from(["0", "1"]),
            "tp_rank": st.sampled_from(["0", "1"]),
            "sleep_state": st.sampled_from(["awake", "discard_all"]),
            "request_type": st.sampled_from(["max", "active", "waiting"]),
        },
    ),
    st.sampled_from([0.0, 1.0, 7.25, 1e9, math.nan]),
    st.sampled_from([0.0, 15.0]),
)


@given(st.lists(_ROWS, max_size=10), st.data())
def test_order_and_repetition_make_no_difference(rows: list[Series], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert read_servers(shuffled)[0] == read_servers(rows)[0]
