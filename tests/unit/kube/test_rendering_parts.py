"""Merging, load times and the record of a placement."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kube.rendering import parsed, placed
from wattkeeper.api.errors import SpecErrors
from wattkeeper.kube.manifests.loading import ENGINE_START_SECONDS, start_budget_seconds
from wattkeeper.kube.manifests.merge import merge_template
from wattkeeper.kube.manifests.record import Placed, digest, fingerprint

# ---- merging --------------------------------------------------------------------------------------

BASE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {
                "name": "server",
                "args": ["--x"],
                "env": [{"name": "A", "value": "1"}],
                "ports": [{"name": "http", "containerPort": 8000}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 640,
    },
}


def server(merged: dict[str, Any]) -> dict[str, Any]:
    return dict(merged["spec"]["containers"][0])


@pytest.mark.parametrize(
    ("template", "path", "expected"),
    [
        ({}, ("metadata", "labels"), {"a": "1"}),
        ({"metadata": {"labels": {"b": "2"}}}, ("metadata", "labels"), {"a": "1", "b": "2"}),
        ({"metadata": {"labels": {"a": "3"}}}, ("metadata", "labels"), {"a": "3"}),
        ({"spec": {"terminationGracePeriodSeconds": None}}, ("spec", "terminationGracePeriodSeconds"), None),
        ({"spec": {"hostNetwork": True}}, ("spec", "hostNetwork"), True),
        (
            {"spec": {"tolerations": [{"key": "spot"}, {"key": "nvidia.com/gpu", "operator": "Exists"}]}},
            ("spec", "tolerations"),
            [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "spot"}],
        ),
    ],
)
def test_maps_merge_scalars_replace_null_removes_tolerations_add_up(
    template: dict[str, Any], path: tuple[str, str], expected: Any
) -> None:
    merged: Any = merge_template(BASE, template)
    assert merged[path[0]].get(path[1]) == expected


def test_lists_merge_by_their_keys_and_others_are_replaced() -> None:
    template = {
        "spec": {
            "containers": [
                {"name": "helper", "image": "h"},
                {
                    "name": "server",
                    "args": ["--y"],
                    "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}],
                    "ports": [{"containerPort": 9090, "name": "admin"}],
                    "resources": {"limits": {"memory": "1Gi"}},
                },
            ]
        }
    }
    merged = merge_template(BASE, template)
    assert [each["name"] for each in merged["spec"]["containers"]] == ["server", "helper"]
    assert server(merged)["args"] == ["--y"]
    assert server(merged)["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]
    assert [port["containerPort"] for port in server(merged)["ports"]] == [8000, 9090]
    assert server(merged)["resources"] == {"limits": {"nvidia.com/gpu": "1", "memory": "1Gi"}}


def test_a_free_map_may_hold_names_of_fields() -> None:
    template = {"metadata": {"labels": {"env": "prod", "containers": "many"}}}
    assert merge_template(BASE, template)["metadata"]["labels"]["env"] == "prod"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "metadata", "containers", "name", "env", "labels", "volumes", "tolerations"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec"]), _JSON, max_size=2))
def test_any_template_merges_or_is_refused_by_field(template: dict[str, Any]) -> None:
    before = repr(BASE)
    try:
        merged = merge_template(BASE, template)
    except SpecErrors as error:
        assert all(each.field.startswith("spec.server.template") for each in error.errors)
    else:
        assert merge_template(merged, template) == merged  # merging again changes nothing
    assert repr(BASE) == before


# ---- load times -----------------------------------------------------------------------------------


def test_the_budget_covers_download_loading_and_the_engine() -> None:
    # 16 GB: 160 s to fetch, 48 s to load, 120 s to start; twice that, in whole minutes.
    assert start_budget_seconds(16_000_000_000, [], cached=False) == 660
    assert start_budget_seconds(16_000_000_000, [], cached=True) == 600
    # 140 GB take more than the five minutes after which others give up.
    assert start_budget_seconds(140_000_000_000, [], cached=False) > 3000


@pytest.mark.parametrize(
    "args",
    [["--load-format", "runai_streamer"], ["--load-format=runai_streamer"], ["--load_format=runai_streamer"]],
)
def test_a_faster_loader_needs_less(args: list[str]) -> None:
    size = 400_000_000_000
    assert start_budget_seconds(size, args, cached=True) < start_budget_seconds(size, [], cached=True)


def test_a_loader_without_a_known_rate_counts_as_the_slow_one() -> None:
    size = 400_000_000_000
    unknown = start_budget_seconds(size, ["--load-format", "hyperloader"], cached=True)
    assert unknown == start_budget_seconds(size, ["--load-format"], cached=True)
    assert unknown == start_budget_seconds(size, [], cached=True)


@given(st.integers(0, 2_000_000_000_000), st.integers(0, 2_000_000_000_000), st.booleans())
def test_more_weights_never_get_less_time(one: int, other: int, cached: bool) -> None:
    small, large = sorted((one, other))
    budget = start_budget_seconds(small, [], cached=cached)
    assert budget <= start_budget_seconds(large, [], cached=cached)
    assert budget >= ENGINE_START_SECONDS
    assert budget % 60 == 0


# ---- the record -----------------------------------------------------------------------------------


def test_a_record_reads_back_as_it_was_written() -> None:
    record = placed()
    assert Placed.from_annotation(record.to_annotation()) == record


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "{", "[]", "{}", "5", "null", '"x"', "true", "[" * 100_000),
        *('{"pool":"l4"}', '{"node_terms":[],"pool":"l4","surprise":1}', '{"node_terms":[5]}'),
        '{"node_terms":[],"pool":"l4","gpus_per_replica":"x","weight_bytes":1}',
        '{"node_terms":[],"pool":7,"gpus_per_replica":1,"weight_bytes":1}',
        '{"node_terms":[[{"key":1,"operator":"In","values":[]}]],"pool":"l4","gpus_per_replica":1,"weight_bytes":1}',
    ],
)
def test_what_cannot_be_read_is_no_record(text: str | None) -> None:
    assert Placed.from_annotation(text) is None


def test_a_record_holds_for_its_placement_and_spec_alone() -> None:
    record = placed()
    assert record.holds_for("l4", 1, record.fingerprint)
    assert not record.holds_for("a30", 1, record.fingerprint)
    assert not record.holds_for("l4", 2, record.fingerprint)
    assert not record.holds_for("l4", 1, "other")


def test_the_fingerprint_is_of_what_pods_are_made_of() -> None:
    basis = fingerprint(parsed().spec, None)
    assert basis == fingerprint(parsed(replicas=5, sla={"interTokenLatency": "1s"}).spec, None)
    assert basis == fingerprint(parsed(server={"port": 8000}).spec, None)  # the default, said aloud
    assert basis != fingerprint(parsed(server={"port": 8001}).spec, None)
    assert basis != fingerprint(parsed().spec, "{}")
    assert basis != fingerprint(parsed(placement={"tensorParallelSize": 2}).spec, None)


def test_digests_ignore_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
