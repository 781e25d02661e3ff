"""Rows of dcgm-exporter in every variant that is known, attributed to GPUs and pods."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.telemetry.pages import MEMORY, MIB, NOW, POWER, UTIL, Holder, pods, read_series, row, shown
from wattkeeper.core.readings import Sample
from wattkeeper.telemetry.cluster import ClusterView, KnownNode, KnownPod
from wattkeeper.telemetry.errors import AmbiguousClusterError, WrongClusterError
from wattkeeper.telemetry.series import FaultKind, Series

ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
LLM = {"namespace": "team", "pod": "llm-0", "container": "server"}
EXPORTER = {
    "namespace": "gpu-operator",
    "pod": "nvidia-dcgm-exporter-x7k2p",
    "container": "nvidia-dcgm-exporter",
}
SCRAPED = {"job": "dcgm", "instance": "10.1.0.9:9400"}

CLUSTER = ClusterView(
    [
        KnownNode("node-1.internal", ("192.0.2.1",), has_gpus=True),
        KnownNode("node-2.internal", ("192.0.2.2",), has_gpus=True),
    ],
    [
        KnownPod("team", "llm-0", "uid-0", "node-1.internal", "10.1.0.5", uses_gpus=True),
        KnownPod("team", "llm-1", "uid-1", "node-1.internal", "10.1.0.6", uses_gpus=True),
        KnownPod("team", "done-0", "uid-2", "node-1.internal", "10.1.0.7", ended=True, uses_gpus=True),
        KnownPod("gpu-operator", "nvidia-dcgm-exporter-x7k2p", "uid-3", "node-1.internal", "10.1.0.9"),
        KnownPod("team", "sidecar-0", "uid-4", "node-1.internal", "10.1.0.8", uses_gpus=False),
    ],
)


class TestWhichNode:
    @pytest.mark.parametrize(
        "labels",
        [
            {"Hostname": "node-1.internal"},
            {"hostname": "node-1.internal"},
            {"hostname": "node-1"},
            {"hostname": "node-1.internal.example.org"} | {"node": "node-1.internal"},
            {"node": "node-1.internal", "Hostname": "whatever"},
            {"nodename": "node-1.internal"},
            {"kubernetes_node": "node-1.internal"},
            {"Hostname": EXPORTER["pod"]},  # NODE_NAME isn't set
            SCRAPED,
            {"job": "dcgm", "instance": "192.0.2.1:9400"},  # host network
            {"dra_pool_name": "node-1.internal"},
            EXPORTER | {"exported_pod": "llm-0", "exported_namespace": "team", "job": "x"},
        ],
    )
    def test_by_whatever_names_it(self, labels: dict[str, str]) -> None:
        readings, _ = read_series([row(POWER, 70, **labels)], CLUSTER)
        assert readings["GPU-a"].node == "node-1.internal"

    def test_without_a_cluster_to_compare_with_relabelling_wins_over_the_exporter(self) -> None:
        readings, _ = read_series([row(POWER, 70, Hostname="nvidia-dcgm-exporter-x", node="n")])
        assert readings["GPU-a"].node == "n"

    def test_localhost_is_no_name(self) -> None:
        readings, _ = read_series([row(POWER, 70, Hostname="localhost")], CLUSTER)
        assert readings["GPU-a"].node == ""

    def test_after_the_rename_it_is_still_one_gpu(self) -> None:
        rows = [
            row(POWER, 300, NOW - 60, Hostname="node-1.internal"),
            row(POWER, 70, hostname="node-1.internal"),
        ]
        readings, _ = read_series(rows, CLUSTER)
        assert readings["GPU-a"].power_watts == Sample(70, NOW)


class TestWhichPod:
    @pytest.mark.parametrize(
        "labels",
        [
            LLM,
            {"pod_name": "llm-0", "pod_namespace": "team", "container_name": "server"},
            {"exported_pod": "llm-0", "exported_namespace": "team", "exported_container": "server"},
            {"exported_pod": "llm-0", "exported_namespace": "team", "exported_container": "server"}
            | EXPORTER
            | SCRAPED,
            LLM | SCRAPED,  # honorLabels, or a target without a pod label
            {"pod_name": "llm-0", "pod_namespace": "team", "container_name": "server"} | EXPORTER | SCRAPED,
        ],
    )
    @pytest.mark.parametrize("cluster", [None, CLUSTER])
    def test_by_whatever_label(self, labels: dict[str, str], cluster: ClusterView | None) -> None:
        readings, faults = read_series([row(POWER, 121, Hostname="node-1.internal", **labels)], cluster)
        (holder,) = readings["GPU-a"].holders
        assert (holder.namespace, holder.pod, holder.container) == ("team", "llm-0", "server")
        assert holder.uid == ("uid-0" if cluster else "")
        assert faults == {}

    @pytest.mark.parametrize(
        "labels",
        [
            {},
            {"pod": "", "namespace": "", "container": ""},
            {"pod_name": "", "pod_namespace": "", "container_name": ""},
            EXPORTER | SCRAPED,  # a free GPU: there is no exported_pod, and `pod` is the exporter
            {"pod": "exporter-abc", "namespace": "gpu", "Hostname": "exporter-abc"} | SCRAPED,
        ],
    )
    def test_none_where_none_is_named(self, labels: dict[str, str]) -> None:
        readings, _ = read_series([row(POWER, 70, **labels)])
        assert readings["GPU-a"].holders == ()

    def test_a_pod_beside_exported_pod_on_another_gpu_is_the_exporter_here_too(self) -> None:
        exporter = {"pod": "metrics-7", "namespace": "gpu"} | SCRAPED
        rows = [
            row(POWER, 121, exported_pod="llm-0", exported_namespace="team", **exporter),
            row(POWER, 70, UUID="GPU-b", **exporter),
        ]
        readings, _ = read_series(rows)
        assert pods(readings["GPU-a"]) == [("team", "llm-0")]
        assert pods(readings["GPU-b"]) == []

    def test_a_pod_that_asks_for_no_gpu_is_the_exporter(self) -> None:
        rows = [row(POWER, 70, namespace="team", pod="sidecar-0", **SCRAPED)]
        assert read_series(rows, CLUSTER)[0]["GPU-a"].holders == ()

    def test_the_exporters_own_word_is_taken_where_no_prometheus_came_between(self) -> None:
        rows = [row(POWER, 70, namespace="team", pod="sidecar-0", Hostname="node-1.internal")]
        assert pods(read_series(rows, CLUSTER)[0]["GPU-a"]) == [("team", "sidecar-0")]

    @pytest.mark.parametrize(
        ("labels", "fault"),
        [
            ({"namespace": "team", "pod": "done-0"}, FaultKind.STALE_POD),
            # A StatefulSet's pod of the same name, before it was made anew.
            ({"namespace": "team", "pod": "llm-0", "pod_uid": "uid-old"}, FaultKind.STALE_POD),
            # It was moved to another node.
            ({"namespace": "team", "pod": "llm-0", "Hostname": "node-2"}, FaultKind.STALE_POD),
        ],
    )
    def test_a_pod_that_ended_holds_nothing(self, labels: dict[str, str], fault: FaultKind) -> None:
        readings, faults = read_series([row(POWER, 70, **{"Hostname": "node-1"} | labels)], CLUSTER)
        assert readings["GPU-a"].holders == ()
        assert faults == {fault: 1}

    def test_an_unknown_pod_still_holds_its_gpu(self) -> None:
        rows = [row(POWER, 121, namespace="unwatched", pod="x", Hostname="node-1")]
        readings, faults = read_series(rows, CLUSTER)
        assert pods(readings["GPU-a"]) == [("unwatched", "x")]
        assert faults == {FaultKind.UNKNOWN_POD: 1}

    def test_the_series_of_an_earlier_holder_tell_nothing(self) -> None:
        rows = [
            row(POWER, 400, NOW - 30, namespace="team", pod="llm-1"),
            row(POWER, 121, NOW, namespace="team", pod="llm-0"),
            row(UTIL, 99, NOW - 30, namespace="team", pod="llm-1"),
        ]
        readings, _ = read_series(rows)
        assert pods(readings["GPU-a"]) == [("team", "llm-0")]
        assert readings["GPU-a"].power_watts == Sample(121, NOW)
        # Nothing newer is known of its utilisation, and it says when it was measured.
        assert readings["GPU-a"].gpu_util_ratio == Sample(0.99, NOW - 30)

    def test_several_gpus_of_one_pod_are_each_its(self) -> None:
        rows = [row(POWER, 121, UUID=f"GPU-{i}", gpu=str(i), **LLM) for i in range(4)]
        readings, _ = read_series(rows)
        assert [pods(reading) for reading in readings.values()] == [[("team", "llm-0")]] * 4

    def test_dra_rows_name_the_pod_without_its_uid(self) -> None:
        labels = LLM | {"dra_driver_name": "gpu.nvidia.com", "dra_pool_name": "node-1.internal"}
        (holder,) = read_series([row(POWER, 121, **labels)], CLUSTER)[0]["GPU-a"].holders
        assert holder.uid == "uid-0"


class TestRepeatedRows:
    def test_mig_repeats_the_boards_power(self) -> None:
        rows = [
            row(POWER, watts, GPU_I_PROFILE="1g.6gb", GPU_I_ID=str(i), namespace="team", pod=f"llm-{i}")
            for i, watts in enumerate((52.636, 52.636, 52.746, 52.746))
        ]
        reading = read_series(rows)[0]["GPU-a"]
        assert reading.power_watts == Sample(52.746, NOW)
        assert reading.mig and not reading.virtual and reading.shared
        assert [holder.mig_instance for holder in reading.holders] == [f"1g.6gb/{i}" for i in range(4)]

    def test_memory_of_mig_instances_adds_up_for_each_shows_its_own(self) -> None:
        rows = [row(MEMORY, 4000 + i, GPU_I_PROFILE="1g.6gb", GPU_I_ID=str(i)) for i in range(4)]
        assert shown(read_series(rows)[0]["GPU-a"])["memory_used_bytes"] == 16006 * MIB

    def test_utilisation_is_unknown_with_mig_though_old_exporters_print_0(self) -> None:
        rows = [
            row(UTIL, 0, GPU_I_PROFILE="1g.6gb", GPU_I_ID="3"),
            row(ENGINE, 0.4, GPU_I_PROFILE="1g.6gb", GPU_I_ID="3"),
            row(ENGINE, 0.0, GPU_I_PROFILE="1g.6gb", GPU_I_ID="4"),
        ]
        reading = read_series(rows)[0]["GPU-a"]
        assert reading.gpu_util_ratio is None
        assert reading.engine_active_ratio == Sample(0.4, NOW)  # the busiest instance's

    def test_virtual_gpus_repeat_the_devices_value(self) -> None:
        rows = [
            row(name, value, namespace="team", pod=f"llm-{i}", vgpu=str(i))
            for i in range(3)
            for name, value in ((POWER, 300), (UTIL, 99), (MEMORY, 9000))
        ]
        reading = read_series(rows)[0]["GPU-a"]
        assert shown(reading) | {"holders": None} == {
            "index": "0",
            "power_watts": 300,
            "gpu_util_ratio": 0.99,
            "memory_used_bytes": 9000 * MIB,
            "virtual": True,
            "holders": None,
        }
        # Copies of the device's value are nobody's own share.
        assert [holder.memory_bytes for holder in reading.holders] == [None] * 3

    def test_rows_by_process_stand_beside_the_devices_own(self) -> None:
        rows = [
            row(MEMORY, 18200),
            row(MEMORY, 9100, namespace="team", pod="llm-0", pod_uid="u0", vgpu="0"),
            row(MEMORY, 0, namespace="team", pod="llm-1", pod_uid="u1", vgpu="1"),  # the mapping failed
            row(UTIL, 40),
            row(UTIL, 0, namespace="team", pod="llm-0", pod_uid="u0", vgpu="0"),
            row(UTIL, 0, namespace="team", pod="llm-1", pod_uid="u1", vgpu="1"),
        ]
        reading = read_series(rows)[0]["GPU-a"]
        assert shown(reading)["memory_used_bytes"] == 18200 * MIB
        assert shown(reading)["gpu_util_ratio"] == 0.4
        assert reading.holders == (
            Holder("team", "llm-0", "", "u0", memory_bytes=9100 * MIB),
            Holder("team", "llm-1", "", "u1", memory_bytes=None),
        )

    def test_the_devices_own_row_may_carry_the_exporters_pod(self) -> None:
        """Scraped with honor_labels: false, where the row itself has no pod."""
        target = EXPORTER | SCRAPED
        rows = [
            row(MEMORY, 18200, **target),
            row(MEMORY, 9100, exported_pod="llm-0", exported_namespace="team", vgpu="0", **target),
        ]
        reading = read_series(rows)[0]["GPU-a"]
        assert reading.holders == (Holder("team", "llm-0", memory_bytes=9100 * MIB),)

    def test_batch_jobs_repeat_a_row_and_are_no_pods(self) -> None:
        reading = read_series([row(POWER, 240, hpc_job=job) for job in ("1002", "1001")])[0]["GPU-a"]
        assert reading.power_watts == Sample(240, NOW)
        assert reading.other_jobs == ("1001", "1002") and reading.holders == () and reading.shared

    def test_two_scrape_jobs_of_one_exporter_are_one_gpu(self) -> None:
        rows = [
            row(POWER, 120, NOW - 7, job="annotations", instance="10.1.0.9:9400", **LLM),
            row(POWER, 121, NOW - 2, job="service-monitor", instance="10.1.0.9:9400", **LLM),
        ]
        reading = read_series(rows)[0]["GPU-a"]
        assert reading.power_watts == Sample(121, NOW - 2)
        assert "scraped more than once" in reading.notes[0]

    def test_two_exporters_on_a_node_one_of_which_knows_no_pods(self) -> None:
        rows = [
            row(MEMORY, 9000, NOW - 1, job="a", instance="10.1.0.9:9400"),
            row(MEMORY, 9001, NOW - 9, job="b", instance="10.1.0.10:9400", vgpu="0", **LLM),
        ]
        reading = read_series(rows)[0]["GPU-a"]
        assert pods(reading) == [("team", "llm-0")]
        assert reading.holders[0].memory_bytes is None  # another exporter's row is no device row of this one
        assert reading.memory_used_bytes == Sample(9000 * MIB, NOW - 1)


class TestValues:
    def test_the_newest_scrape_counts_even_where_it_says_nothing(self) -> None:
        for bad in (math.nan, math.inf, 808334905.0, 2147483632.0):
            rows = [row(UTIL, 0, NOW - 30, **LLM), row(UTIL, bad, NOW)]
            reading = read_series(rows)[0]["GPU-a"]
            assert reading.gpu_util_ratio is None
            assert reading.notes and reading.notes[0].startswith("gpu_util_ratio")

    def test_a_bad_copy_does_not_hide_a_good_one_of_the_same_scrape(self) -> None:
        rows = [row(UTIL, 4294967295, vgpu="0"), row(UTIL, 40, vgpu="1")]
        readings, faults = read_series(rows)
        assert readings["GPU-a"].gpu_util_ratio == Sample(0.4, NOW)
        assert faults == {FaultKind.BLANK: 1}

    def test_under_two_names_the_first_is_read(self) -> None:
        rows = [
            row("DCGM_FI_DEV_POWER_MGMT_LIMIT", 400),
            row("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 300),
            row("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 5.0),
            row("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 4000),
        ]
        known = shown(read_series(rows)[0]["GPU-a"])
        assert (known["power_limit_watts"], known["energy_joules"]) == (300, 4.0)

    def test_how_long_a_value_has_stood_is_kept(self) -> None:
        reading = read_series([row(POWER, 121, NOW, since=NOW - 90)])[0]["GPU-a"]
        assert reading.power_watts == Sample(121, NOW, NOW - 90)

    def test_what_no_row_shows_is_unknown(self) -> None:
        reading = read_series([row(POWER, 121)])[0]["GPU-a"]
        assert shown(reading) == {"index": "0", "power_watts": 121}
        assert reading.gpu_util_ratio is None and reading.memory_used_bytes is None

    def test_rows_without_a_uuid_are_nobodys(self) -> None:
        readings, faults = read_series([Series(POWER, {"gpu": "0", "pod": "x"}, Sample(70, NOW))])
        assert readings == {} and faults == {FaultKind.NO_GPU_IDENTITY: 1}


class TestWrongCluster:
    def test_rows_of_other_clusters_are_left_out(self) -> None:
        rows = [row(POWER, 121, hostname="node-1"), row(POWER, 70, UUID="GPU-b", hostname="elsewhere-7")]
        readings, faults = read_series(rows, CLUSTER)
        assert list(readings) == ["GPU-a"]
        assert faults == {FaultKind.FOREIGN_CLUSTER: 1}

    def test_a_pod_of_the_same_name_doesnt_make_a_row_ours(self) -> None:
        with pytest.raises(WrongClusterError, match="elsewhere-7"):
            read_series([row(POWER, 121, hostname="elsewhere-7", **LLM)], CLUSTER)

    def test_nor_does_an_address_that_nothing_of_ours_has(self) -> None:
        with pytest.raises(WrongClusterError):
            read_series([row(POWER, 121, job="dcgm", instance="10.99.0.1:9400", **LLM)], CLUSTER)

    def test_a_scrape_by_a_services_name_says_nothing_of_the_place(self) -> None:
        rows = [row(POWER, 121, job="dcgm", instance="dcgm-exporter.gpu.svc:9400", **LLM)]
        assert list(read_series(rows, CLUSTER)[0]) == ["GPU-a"]

    def test_two_clusters_that_both_fit_are_one_too_many(self) -> None:
        rows = [
            row(POWER, 121, hostname="node-1", cluster="eu"),
            row(POWER, 121, UUID="GPU-b", hostname="node-1", cluster="us"),
        ]
        with pytest.raises(AmbiguousClusterError, match="eu, us"):
            read_series(rows, CLUSTER)

    def test_no_rows_are_no_error_here(self) -> None:
        assert read_series([], CLUSTER) == ({}, {})


_LABELS = st.fixed_dictionaries(
    {"UUID": st.sampled_from(["GPU-a", "GPU-b"])},
    optional={
        "GPU_I_ID": st.sampled_from(["3", "4"]),
        "pod": st.sampled_from(["", "llm-0", "llm-1", "done-0"]),
        "namespace": st.just("team"),
        "exported_pod": st.sampled_from(["llm-0", "llm-1"]),
        "exported_namespace": st.just("team"),
        "vgpu": st.sampled_from(["0", "1"]),
        "Hostname": st.sampled_from(["node-1", "node-2"]),
        "job": st.sampled_from(["a", "b"]),
        "hpc_job": st.sampled_from(["7", "8"]),
    },
)
_SERIES = st.builds(
    lambda name, labels, value, age: Series(name, labels, Sample(value, NOW - age)),
    st.sampled_from([POWER, UTIL, MEMORY, ENGINE, "DCGM_FI_DEV_GPU_UTIL_RATIO", "other_metric"]),
    _LABELS,
    st.sampled_from([0.0, 0.3, 1.0, 52.6, 99.0, 300.0, 2147483632.0, math.nan]),
    st.sampled_from([0.0, 15.0, 30.0]),
)


@given(st.lists(_SERIES, max_size=12), st.data(), st.sampled_from([None, CLUSTER]))
def test_order_and_repetition_make_no_difference(
    rows: list[Series], data: st.DataObject, cluster: ClusterView | None
) -> None:
    shuffled = data.draw(st.permutations(rows + rows[:3]))
    assert read_series(shuffled, cluster)[0] == read_series(rows, cluster)[0]


@given(st.lists(_SERIES, max_size=12), st.sampled_from([None, CLUSTER]))
def test_no_value_is_made_up(rows: list[Series], cluster: ClusterView | None) -> None:
    """Each value of a reading is one row's value at that row's time; MIG's memory alone is a sum."""
    seen = {(each.sample.value, each.sample.measured_at) for each in rows}
    for reading in read_series(rows, cluster)[0].values():
        for sample in (reading.power_watts, reading.engine_active_ratio):
            assert sample is None or (sample.value, sample.measured_at) in seen
        util = reading.gpu_util_ratio
        assert util is None or {(util.value, util.measured_at), (util.value * 100, util.measured_at)} & seen
