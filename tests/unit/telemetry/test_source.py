"""What one look gives to those who ask it, and how the cluster is matched to it."""

from __future__ import annotations

import pytest

from tests.unit.telemetry.pages import MEMORY, NOW, POWER, UTIL, row
from wattkeeper.core.readings import Sample, ServerReading
from wattkeeper.telemetry.attribution import gpu_rows
from wattkeeper.telemetry.cluster import ClusterView, KnownNode, KnownPod
from wattkeeper.telemetry.engines import ENGINES
from wattkeeper.telemetry.errors import NoGpuMetricsError, StaleError
from wattkeeper.telemetry.labels import LabelReader
from wattkeeper.telemetry.series import Series
from wattkeeper.telemetry.source import MAX_AGE_SECONDS, Rows, Telemetry, telemetry_of

CLUSTER = ClusterView(
    [KnownNode(f"node-{i}", has_gpus=True) for i in range(6)] + [KnownNode("cpu-only")],
    [KnownPod("team", "llm-0", node="node-0")],
)


def look(
    series: list[Series], cluster: ClusterView | None = CLUSTER, servers: list[Series] | None = None
) -> Telemetry:
    rows = Rows(servers=servers or [])
    rows.gpus.extend(gpu_rows(series, LabelReader(), rows.faults))
    return telemetry_of(rows, ENGINES, cluster, NOW)


def test_nodes_with_gpus_of_which_nothing_is_known_are_named() -> None:
    telemetry = look([row(POWER, 70, Hostname="node-0"), row(UTIL, 808334905, Hostname="node-0")])
    assert telemetry.silent_nodes == ("node-1", "node-2", "node-3", "node-4", "node-5")
    assert telemetry.summary() == (
        "1 GPUs, 0 model servers; 5 GPU nodes without telemetry (node-1, node-2, node-3 …); "
        "OutOfRange × 1, e.g. DCGM_FI_DEV_GPU_UTIL of GPU-a is 808334905"
    )


def test_the_gpus_of_a_pod_are_all_that_it_holds() -> None:
    labels = {"Hostname": "node-0", "namespace": "team", "pod": "llm-0"}
    telemetry = look(
        [row(POWER, 70, UUID=f"GPU-{i}", **labels) for i in range(3)] + [row(POWER, 60, Hostname="node-0")]
    )
    assert [gpu.uuid for gpu in telemetry.gpus_of("team", "llm-0")] == ["GPU-0", "GPU-1", "GPU-2"]
    assert telemetry.gpus_of("team", "llm-1") == ()


def test_of_two_engines_in_a_pod_the_one_that_tells_most_or_the_one_named() -> None:
    pod = {"namespace": "team", "pod": "llm-0"}
    servers = [
        Series("nv_inference_request_success", pod, Sample(3, NOW)),
        Series("vllm:num_requests_running", pod, Sample(1, NOW)),
    ]
    telemetry = look([row(POWER, 70, Hostname="node-0")], servers=servers)

    def engine(reading: ServerReading | None) -> str:
        return reading.engine if reading is not None else ""

    assert engine(telemetry.server_of("team", "llm-0")) == "vllm"
    assert engine(telemetry.server_of("team", "llm-0", "triton")) == "triton"
    assert telemetry.server_of("team", "llm-0", "tgi") is None
    assert telemetry.server_of("team", "llm-9") is None


def test_no_gpu_metrics_is_an_error_where_there_are_gpus() -> None:
    for cluster in (None, CLUSTER):
        with pytest.raises(NoGpuMetricsError):
            look([], cluster)
    assert look([], ClusterView([KnownNode("cpu-only")], [])).gpus == {}


def test_values_none_of_which_can_be_true_are_none() -> None:
    with pytest.raises(NoGpuMetricsError, match="no GPU has a metric"):
        look([row(POWER, -1.0, Hostname="node-0")])


def test_old_values_are_told_by_the_newest_of_all() -> None:
    old = row(POWER, 70, NOW - MAX_AGE_SECONDS - 1, Hostname="node-0")
    with pytest.raises(StaleError, match="91 s old"):
        look([old])
    fresh = row(MEMORY, 70, NOW, UUID="GPU-b", Hostname="node-1")
    power = look([old, fresh]).gpus["GPU-a"].power_watts
    assert power is not None and power.age_seconds(NOW) == MAX_AGE_SECONDS + 1


class TestClusterView:
    VIEW = ClusterView(
        [
            KnownNode("a.example.org", ("192.0.2.1", "2001:db8::1")),
            KnownNode("b"),
            KnownNode("c.x"),
            KnownNode("c.y"),
        ],
        [
            KnownPod("one", "exporter-1", node="b", address="10.0.0.1"),
            KnownPod("one", "twin", node="a.example.org", address="10.0.0.2"),
            KnownPod("two", "twin", node="b", address="10.0.0.2"),
            KnownPod("one", "host-network", node="a.example.org", address="192.0.2.1"),
            KnownPod("one", "ended", node="b", address="10.0.0.3", ended=True),
        ],
    )

    @pytest.mark.parametrize(
        ("name", "node"),
        [
            ("a.example.org", "a.example.org"),
            ("a", "a.example.org"),
            ("b", "b"),
            ("b.example.org", "b"),
            ("c", None),  # of two
            ("exporter-1", "b"),
            ("twin", None),  # of two
            ("z", None),
            ("", None),
        ],
    )
    def test_nodes_by_name(self, name: str, node: str | None) -> None:
        assert self.VIEW.node_called(name) == node

    @pytest.mark.parametrize(
        ("address", "node", "pod"),
        [
            ("192.0.2.1", "a.example.org", None),  # any pod in the host's network
            ("2001:db8::1", "a.example.org", None),
            ("10.0.0.1", "b", "exporter-1"),
            ("10.0.0.2", None, None),  # of two
            ("10.0.0.3", None, None),  # given back
            ("10.9.9.9", None, None),
        ],
    )
    def test_nodes_and_pods_by_address(self, address: str, node: str | None, pod: str | None) -> None:
        found = self.VIEW.pod_at(address)
        assert self.VIEW.node_at(address) == node
        assert (found.name if found else None) == pod
