from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.fleet import GpuNode, Pool, Problem, WrittenPool
from wattkeeper.core.forecast import GpuKind
from wattkeeper.core.pools import build_pools, pool_name
from wattkeeper.core.selectors import label_equals, matches, matches_any

from .placing import node

GKE = "cloud.google.com/gke-nodepool"
SHARED = Problem("GpuShared", "its GPUs are shared: turn sharing off")


def gke_node(name: str, accelerator: str, gpu: str, node_pool: str, gpus: int = 1) -> GpuNode:
    named_by = {"cloud.google.com/gke-accelerator": accelerator}
    labels = {"kubernetes.io/hostname": name, **named_by, GKE: node_pool}
    return GpuNode(name, labels, GpuKind(gpu), gpus, gpu_labels=label_equals(named_by))


def by_name(pools: tuple[Pool, ...]) -> dict[str, Pool]:
    return {pool.name: pool for pool in pools}


def node_names(pool: Pool) -> list[str]:
    return [each.name for each in pool.nodes]


def test_one_pool_a_gpu_where_nodes_have_no_node_pool() -> None:
    pools = by_name(build_pools([node("b"), node("a"), node("c", label="NVIDIA-H100-NVL")]))
    assert {name: node_names(pool) for name, pool in pools.items()} == {"l4": ["a", "b"], "h100-nvl": ["c"]}
    assert pools["l4"].gpu.label == "NVIDIA-L4"
    assert pools["l4"].labels == {"wattkeeper.dev/gpu": "l4", "nvidia.com/gpu.product": "NVIDIA-L4"}
    assert pools["l4"].node_selector == {"nvidia.com/gpu.product": "NVIDIA-L4"}


@pytest.mark.parametrize(
    "key",
    [
        "karpenter.sh/nodepool",
        GKE,
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
        "agentpool",
    ],
)
def test_one_pool_a_gpu_and_node_pool_of_the_cloud(key: str) -> None:
    nodes = [node("a", labels={key: "blue"}), node("b", labels={key: "green"}), node("c")]
    pools = by_name(build_pools(nodes))
    assert {name: node_names(pool) for name, pool in pools.items()} == {
        "l4--blue": ["a"],
        "l4--green": ["b"],
        "l4": ["c"],
    }
    assert pools["l4--blue"].labels[key] == "blue"
    assert not matches_any(pools["l4"].node_terms, nodes[0].labels)


def test_a_pool_keeps_its_name_when_gpu_feature_discovery_starts() -> None:
    starting = gke_node("b", "nvidia-l4", "NVIDIA-L4", "blue", gpus=0)
    discovered = node("a", labels={GKE: "blue", "cloud.google.com/gke-accelerator": "nvidia-l4"})
    (pool,) = build_pools([discovered, starting])
    assert pool.name == "l4--blue"
    assert node_names(pool) == ["a", "b"]
    # The affinity speaks of the nodes that have GPUs to give: it won't change when the other one is ready.
    ready = replace(discovered, name="b", labels={**discovered.labels, "kubernetes.io/hostname": "b"})
    assert build_pools([discovered, ready])[0].node_terms == pool.node_terms


def test_least_reported_memory_counts() -> None:
    nodes = [
        replace(node(name), gpu=GpuKind("NVIDIA-L4", memory))
        for name, memory in (("a", 23034), ("b", 22000), ("c", None))
    ]
    assert build_pools(nodes)[0].gpu == GpuKind("NVIDIA-L4", 22000)


@pytest.mark.parametrize(
    ("gpu", "node_pool", "pattern"),
    [
        ("l4", None, r"l4"),
        ("l4", "gpu-pool-1", r"l4--gpu-pool-1"),
        ("l4", "GPU.Pool_1", r"l4--gpu-pool-1-[0-9a-f]{8}"),
        ("l4", "gpu.pool.1", r"l4--gpu-pool-1-[0-9a-f]{8}"),
        ("rtx-pro-6000-blackwell-server-edition", "x" * 60, r"rtx-pro-.*-[0-9a-f]{8}"),
    ],
)
def test_names(gpu: str, node_pool: str | None, pattern: str) -> None:
    name = pool_name(gpu, node_pool)
    assert re.fullmatch(pattern, name)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)


def test_names_that_slugs_make_alike_stay_apart() -> None:
    assert len({pool_name("l4", value) for value in ("a.b", "a-b", "A-B", "a_b")}) == 4
    assert pool_name("h100", "nvl-x") != pool_name("h100-nvl", "x")


# ---- written pools ------------------------------------------------------------------------------


def test_a_written_pool_takes_its_nodes_out_of_the_discovered() -> None:
    mine = WrittenPool("lab", {"team": "ml"}, labels={"tier": "cheap"}, power_budget_watts=500)
    ours, theirs = node("a", labels={"team": "ml"}), node("b")
    pools = by_name(build_pools([ours, theirs], [mine]))
    assert node_names(pools["lab"]) == ["a"]
    assert node_names(pools["l4"]) == ["b"]
    assert (pools["lab"].written, pools["lab"].power_budget_watts) == (True, 500)
    assert pools["lab"].labels == {"tier": "cheap"}
    # Pods of the discovered pool must not land on the written one's nodes, today's or tomorrow's.
    assert not matches_any(pools["l4"].node_terms, ours.labels)
    assert not matches_any(pools["l4"].node_terms, node("new", labels={"team": "ml"}).labels)


def test_a_selector_of_two_labels_is_taken_out_exactly() -> None:
    mine = WrittenPool("lab", {"team": "ml", "zone": "a"})
    nodes = [
        node("a", labels={"team": "ml", "zone": "a"}),
        node("b", labels={"team": "ml", "zone": "b"}),
        node("c"),
    ]
    pools = by_name(build_pools(nodes, [mine]))
    assert [matches_any(pools["l4"].node_terms, each.labels) for each in nodes] == [False, True, True]


def test_overlapping_written_pools_share_by_age_and_say_so() -> None:
    old = WrittenPool("old", {"zone": "a"}, created="2026-01-01T00:00:00Z")
    new = WrittenPool("new", {"team": "ml"}, created="2026-02-01T00:00:00Z")
    nodes = [node("both", labels={"zone": "a", "team": "ml"}), node("mine", labels={"team": "ml"})]
    for order in ([old, new], [new, old]):
        pools = by_name(build_pools(nodes, order))
        assert node_names(pools["old"]) == ["both"]
        assert node_names(pools["new"]) == ["mine"]
        assert pools["new"].notes == (
            "node both also matches GPUNodePool old, which is older and keeps them",
        )
        assert not matches_any(pools["new"].node_terms, nodes[0].labels)


def test_a_written_gpu_names_what_labels_leave_open() -> None:
    unnamed = GpuNode(
        "aks", {"kubernetes.io/hostname": "aks", "agentpool": "g"}, GpuKind(""), 1,
        problem=Problem("GpuUnnamed", "no label names its GPU model: install GPU feature discovery"),
    )  # fmt: skip
    (pool,) = build_pools([unnamed])
    assert pool.problem is not None
    assert (pool.name, pool.problem.reason) == ("unknown--g", "GpuUnnamed")
    (pool,) = build_pools([unnamed], [WrittenPool("mine", {"agentpool": "g"}, gpu="NVIDIA-A10")])
    assert pool.problem is None
    assert pool.gpu == GpuKind("NVIDIA-A10")
    assert matches_any(pool.node_terms, unnamed.labels)


def test_a_written_gpu_does_not_cure_sharing() -> None:
    nodes = [replace(node("a"), problem=SHARED)]
    (pool,) = build_pools(nodes, [WrittenPool("mine", {"kubernetes.io/hostname": "a"}, gpu="NVIDIA-L4")])
    assert pool.problem == Problem("GpuShared", "node a: its GPUs are shared: turn sharing off")


def test_two_models_in_a_written_pool_make_it_unusable() -> None:
    nodes = [node("a", labels={"team": "ml"}), node("b", label="NVIDIA-A30", labels={"team": "ml"})]
    (pool,) = build_pools(nodes, [WrittenPool("mine", {"team": "ml"})])
    assert pool.problem is not None
    assert pool.problem.reason == "GpuModelsMixed"
    assert "NVIDIA-A30 on b, NVIDIA-L4 on a" in pool.problem.message
    assert "narrow spec.nodeSelector" in pool.problem.message


def test_a_written_pool_without_nodes_says_so() -> None:
    (pool,) = build_pools([], [WrittenPool("mine", {"team": "ml"})])
    assert pool.problem is not None
    assert pool.problem.reason == "NoNodes"
    assert "team=ml" in pool.problem.message


def test_a_written_pool_whose_nodes_are_all_anothers_says_so() -> None:
    pools = by_name(
        build_pools(
            [node("a", labels={"team": "ml", "zone": "a"})],
            [WrittenPool("mine", {"team": "ml"}), WrittenPool("other", {"zone": "a"})],
        )
    )
    problem = pools["other"].problem
    assert problem is not None
    assert problem.reason == "NoNodes"
    assert problem.message.startswith("node a also matches GPUNodePool mine")
    assert "no GPU node matches" not in problem.message


def test_a_discovered_pool_gives_way_to_a_written_one_of_its_name() -> None:
    pools = build_pools([node("a"), node("b", labels={"team": "ml"})], [WrittenPool("l4", {"team": "ml"})])
    assert node_names(by_name(pools)["l4"]) == ["b"]
    (other,) = [pool for pool in pools if pool.name != "l4"]
    assert re.fullmatch(r"l4-discovered-[0-9a-f]{8}", other.name)
    assert node_names(other) == ["a"]


def test_labels_and_budget_that_users_added_to_a_discovered_pool_count() -> None:
    known = WrittenPool("l4", {"stale": "selector"}, labels={"tier": "cheap"}, power_budget_watts=300)
    (pool,) = build_pools([node("a")], discovered=[known])
    assert (pool.labels["tier"], pool.power_budget_watts, pool.written) == ("cheap", 300, False)
    assert node_names(pool) == ["a"]


# ---- nodes with a problem -----------------------------------------------------------------------


def test_a_broken_node_is_left_out_and_kept_from_the_pools_pods() -> None:
    broken = replace(node("b"), problem=SHARED)
    (pool,) = build_pools([node("a"), broken])
    assert pool.problem is None
    assert node_names(pool) == ["a"]
    assert pool.notes == ("node b left out: node b: its GPUs are shared: turn sharing off",)
    assert not matches_any(pool.node_terms, broken.labels)


def test_a_pool_of_broken_nodes_is_unusable_and_names_them() -> None:
    (pool,) = build_pools([replace(node(f"n{i}"), problem=SHARED) for i in range(5)])
    assert pool.problem == Problem(
        "GpuShared", "nodes n0, n1, n2 and 2 more: its GPUs are shared: turn sharing off"
    )
    assert pool.node_terms == ()


# ---- properties ---------------------------------------------------------------------------------

NODES = st.lists(
    st.builds(
        lambda gpu, gpus, source, extra, broken: (gpu, gpus, source, extra, broken),
        st.sampled_from(["NVIDIA-L4", "NVIDIA-A30", "L4"]),
        st.integers(0, 4),
        st.sampled_from(["gfd", "gke", "both"]),
        st.dictionaries(
            st.sampled_from([GKE, "agentpool", "team", "zone"]),
            st.sampled_from(["a", "b", "A.b"]),
            max_size=3,
        ),
        st.booleans(),
    ),
    max_size=8,
).map(lambda specs: [_node(index, *spec) for index, spec in enumerate(specs)])
WRITTEN = st.lists(
    st.dictionaries(
        st.sampled_from(["team", "zone", GKE]), st.sampled_from(["a", "b"]), min_size=1, max_size=2
    ),
    max_size=3,
).map(lambda selectors: [WrittenPool(f"w{index}", each) for index, each in enumerate(selectors)])


def _node(index: int, gpu: str, gpus: int, source: str, extra: dict[str, str], broken: bool) -> GpuNode:
    gfd = {"nvidia.com/gpu.product": gpu} if source != "gke" else {}
    gke = {"cloud.google.com/gke-accelerator": gpu.lower()} if source != "gfd" else {}
    labels = {"kubernetes.io/hostname": f"n{index}", **gfd, **gke, **extra}
    return GpuNode(
        f"n{index}",
        labels,
        GpuKind(gpu),
        gpus,
        gpu_labels=label_equals(gfd or gke),
        problem=SHARED if broken else None,
    )


@given(NODES, WRITTEN)
def test_affinity_matches_a_pools_own_nodes_and_no_others(
    nodes: list[GpuNode], written: list[WrittenPool]
) -> None:
    pools = build_pools(nodes, written)
    offering = [each for each in nodes if each.gpus_allocatable]
    for pool in pools:
        if pool.problem is None:
            own = {each.name for each in pool.nodes if each.gpus_allocatable}
            assert {each.name for each in offering if matches_any(pool.node_terms, each.labels)} == own
            assert all(pool.node_terms), "an empty term matches nothing in Kubernetes"


@given(NODES, WRITTEN, st.randoms(use_true_random=False))
def test_every_node_is_in_one_pool_whatever_the_order(
    nodes: list[GpuNode], written: list[WrittenPool], random: object
) -> None:
    pools = build_pools(nodes, written)
    names = [pool.name for pool in pools]
    assert names == sorted(set(names))
    usable = sorted(name for pool in pools if pool.problem is None for name in node_names(pool))
    assert len(usable) == len(set(usable))
    for each in nodes:
        if each.problem is None:
            owner = next(
                (w.name for w in written if matches(label_equals(w.node_selector), each.labels)), None
            )
            holders = [pool.name for pool in pools if each.name in node_names(pool)]
            assert len(holders) == 1
            assert owner is None or holders == [owner]
    shuffled, reordered = list(nodes), list(written)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    random.shuffle(reordered)  # type: ignore[attr-defined]
    assert build_pools(shuffled, reordered) == pools


@given(NODES, WRITTEN, st.integers(0, 7))
def test_names_stay_when_a_node_goes(nodes: list[GpuNode], written: list[WrittenPool], gone: int) -> None:
    before = {each.name: pool.name for pool in build_pools(nodes, written) for each in pool.nodes}
    rest = [each for each in nodes if each.name != f"n{gone}"]
    for pool in build_pools(rest, written):
        for each in pool.nodes:
            assert before.get(each.name, pool.name) == pool.name
