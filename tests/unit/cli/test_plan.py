"""`wattkeeper plan` from end to end: files in, decisions of the shipped predictor out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from wattkeeper.cli import COMMANDS, app

Manifest = dict[str, Any]
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def node(name: str, gpu: str = "NVIDIA-L4", gpus: int = 1, **labels: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": gpu, **labels}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def llmd(name: str = "llama", sla: str = "70ms", **changes: Any) -> Manifest:
    metadata = {"name": name, "namespace": "default", **changes.pop("metadata", {})}
    spec = {
        "model": {"id": LLAMA},
        "workload": {"requestsPerSecond": "330m"},
        "sla": {"interTokenLatency": sla},
        **changes.pop("spec", {}),
    }
    return {
        "apiVersion": "wattkeeper.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": metadata,
        "spec": spec,
        **changes,
    }


def pod(name: str, on: str, gpus: int = 1, owner: str | None = None) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"wattkeeper.dev/llmdeployment": owner} if owner else {},
        },
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
        "status": {"phase": "Running"},
    }


def pool(name: str, selector: dict[str, str], **metadata: Any) -> Manifest:
    return {
        "apiVersion": "wattkeeper.dev/v1alpha1",
        "kind": "GPUNodePool",
        "metadata": {"name": name, **metadata},
        "spec": {"nodeSelector": selector},
    }


def listed(*items: Manifest) -> Manifest:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


#: Seed 000's own example: the three GPUs on which Llama-3.1-8B-Instruct was measured.
SEED_FLEET = [node("h", "NVIDIA-H100-NVL"), node("a", "NVIDIA-A30"), node("l", "NVIDIA-L4")]


class Planner:
    """Writes files and runs the command on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, *documents: Any) -> str:
        path = self.folder / name
        path.write_text(documents[0] if isinstance(documents[0], str) else yaml.safe_dump_all(documents))
        return str(path)

    def run(self, deployments: list[Any], fleet: list[Any], *more: str) -> Result:
        arguments = ["plan", "-f", self.write("llmd.yaml", *deployments)]
        return CliRunner().invoke(app, [*arguments, "--fleet", self.write("fleet.yaml", *fleet), *more])

    def statuses(
        self, deployments: list[Any], fleet: list[Any], *, exit_code: int = 0
    ) -> dict[str, Manifest]:
        result = self.run(deployments, fleet, "-o", "json")
        assert result.exit_code == exit_code, result.output
        return {item["metadata"]["name"]: item["status"] for item in json.loads(result.stdout)["items"]}

    def error(self, deployments: list[Any], fleet: list[Any], *more: str) -> str:
        """The one error line of input that can't be used."""
        result = self.run(deployments, fleet, *more)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        return line.removeprefix("error: ").replace(str(self.folder) + "/", "")


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    return Planner(tmp_path)


# ---- the main job -------------------------------------------------------------------------------


@pytest.mark.parametrize(("sla", "pool"), [("70ms", "l4"), ("50ms", "a30"), ("10ms", "h100-nvl")])
def test_the_seeds_own_example(planner: Planner, sla: str, pool: str) -> None:
    status = planner.statuses([llmd(sla=sla)], SEED_FLEET)["llama"]
    assert (status["phase"], status["pool"], status["gpusPerReplica"]) == ("Placed", pool, 1)
    rows = {row["pool"]: row for row in status["candidates"]}
    assert status["poolsConsidered"] == len(rows) == 3
    measured = {"h100-nvl": (201, 5.9), "a30": (139, 20.6), "l4": (71, 62)}
    for name, (watts, itl_ms) in measured.items():
        assert rows[name]["powerWatts"] == pytest.approx(watts, rel=0.02)
        assert float(rows[name]["interTokenLatency"].removesuffix("ms")) == pytest.approx(itl_ms, rel=0.02)
    limit = float(sla.removesuffix("ms"))
    for row in rows.values():
        assert row["feasible"] == (float(row["interTokenLatencyUpper"].removesuffix("ms")) <= limit)
        assert row["feasible"] or row["reason"] == "SLAMissed"
    assert status["prediction"]["powerWatts"] == rows[pool]["powerWatts"]
    conditions = {each["type"]: each for each in status["conditions"]}
    assert conditions["Placed"]["status"] == conditions["SLAFeasible"]["status"] == "True"


def test_the_table_shows_where_and_why(planner: Planner) -> None:
    result = planner.run([llmd(sla="50ms")], SEED_FLEET)
    assert result.exit_code == 0
    assert result.stderr == ""
    first, message, *rest = result.stdout.splitlines()
    rows = rest[next(number for number, line in enumerate(rest) if line.startswith("Pool")) + 1 :]
    assert first == "default/llama → a30 (1 replica of 1 × A30)"
    assert message.startswith("a30 draws the least of 2 feasible pools (139 W a replica")
    assert [row.split()[0] for row in rows if not row.startswith(" ")] == ["a30", "h100-nvl", "l4"]
    assert "chosen: least power" in rows[0]
    assert "SLAMissed: predicted mean inter-token latency 62 ms" in rows[2]


def test_the_table_ends_and_counts_the_rest(planner: Planner) -> None:
    many = [node(f"n{index:02}", **{"cloud.google.com/gke-nodepool": f"p{index:02}"}) for index in range(40)]
    result = planner.run([llmd(), llmd("other")], many)
    assert result.exit_code == 0
    assert result.stdout.count("l4--p") > 64
    assert result.stdout.count("and 8 more pools, none of them better") == 2


def test_whoever_is_not_placed_stands_out(planner: Planner) -> None:
    result = planner.run([llmd(sla="1ms")], SEED_FLEET)
    assert result.exit_code == 1
    assert result.stdout.startswith("default/llama → not placed (NoFeasiblePool)")


def test_labels_are_shown_as_they_are(planner: Planner) -> None:
    result = planner.run([llmd()], [node("n", "[bold]L4[/nope] :smile:")])
    assert result.exit_code == 1
    assert "[bold]L4[/nope] :smile:" in result.stdout


def test_yaml_says_what_json_says(planner: Planner) -> None:
    deployments = [llmd()]
    printed = yaml.safe_load(planner.run(deployments, SEED_FLEET, "-o", "yaml").stdout)
    status = printed["items"][0]["status"]
    assert printed["items"][0]["kind"] == "LLMDeployment"
    assert status["pool"] == planner.statuses(deployments, SEED_FLEET)["llama"]["pool"] == "l4"


def test_a_list_from_kubectl_is_a_fleet(planner: Planner) -> None:
    assert planner.statuses([listed(llmd())], [listed(*SEED_FLEET)])["llama"]["pool"] == "l4"
    # The API server itself (kubectl get --raw) says kind and version once, for all items.
    items = [{key: each[key] for key in ("metadata", "spec", "status")} for each in SEED_FLEET]
    as_json = json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": items})
    assert planner.statuses([llmd()], [as_json])["llama"]["pool"] == "l4"


def test_standard_input(planner: Planner) -> None:
    fleet = planner.write("fleet.yaml", *SEED_FLEET)
    result = CliRunner().invoke(
        app, ["plan", "-f", "-", "--fleet", fleet, "-o", "json"], input=yaml.safe_dump(llmd())
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout)["items"][0]["status"]["pool"] == "l4"


def test_several_are_placed_in_the_order_of_the_files(planner: Planner) -> None:
    deployments = [llmd("zeta"), llmd("alpha"), llmd("mid"), llmd("late")]
    statuses = planner.statuses(deployments, SEED_FLEET, exit_code=1)
    assert {name: status.get("pool") for name, status in statuses.items()} == {
        "zeta": "l4",
        "alpha": "a30",
        "mid": "h100-nvl",
        "late": None,
    }
    assert list(statuses) == ["zeta", "alpha", "mid", "late"]
    assert statuses["late"]["phase"] == "Unschedulable"
    assert {row["reason"] for row in statuses["late"]["candidates"]} == {"InsufficientFreeGpus"}
    assert all("powerWatts" in row for row in statuses["late"]["candidates"])


def test_what_is_created_comes_before_what_isnt_in_the_order_of_creation(planner: Planner) -> None:
    deployments = [
        llmd("new"),
        llmd("young", metadata={"creationTimestamp": "2026-02-01T00:00:00Z", "uid": "2"}),
        llmd("old", metadata={"creationTimestamp": "2026-01-01T00:00:00Z", "uid": "1"}),
    ]
    statuses = planner.statuses(deployments, SEED_FLEET)
    assert [(name, status["pool"]) for name, status in statuses.items()] == [
        ("old", "l4"),
        ("young", "a30"),
        ("new", "h100-nvl"),
    ]


def test_pods_in_the_fleet_hold_their_gpus(planner: Planner) -> None:
    status = planner.statuses([llmd()], [*SEED_FLEET, pod("p", "l")])["llama"]
    assert status["pool"] == "a30"
    (row,) = [row for row in status["candidates"] if row["pool"] == "l4"]
    assert (row["freeGPUs"], row["reason"]) == (0, "InsufficientFreeGpus")


PLACED = {"pool": "l4", "gpu": "L4", "gpusPerReplica": 1, "phase": "Ready", "replicas": 1, "readyReplicas": 1}


def test_placed_llmdeployments_in_the_fleet_keep_their_gpus(planner: Planner) -> None:
    there = llmd("there", status=PLACED, metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    statuses = planner.statuses([llmd()], [*SEED_FLEET, there])
    assert {name: status["pool"] for name, status in statuses.items()} == {"llama": "a30"}
    # Its bound pod holds the GPU already: nothing is counted twice.
    two = [node("l", gpus=2), pod("p", "l", owner="there"), there]
    assert planner.statuses([llmd()], two)["llama"]["pool"] == "l4"


def test_what_holds_gpus_may_be_described_elsewhere(planner: Planner) -> None:
    """`kubectl get llmd -A` tells where a model is, not what its ConfigMap says of it."""
    model = {"id": "acme/own", "configMapRef": {"name": "acme"}}
    there = llmd("there", status=PLACED, spec={"model": model})
    assert planner.statuses([llmd()], [*SEED_FLEET, there])["llama"]["pool"] == "a30"
    assert "no ConfigMap acme" in planner.error([there], SEED_FLEET)


def test_what_is_placed_isnt_moved(planner: Planner) -> None:
    on_h100 = llmd(status={**PLACED, "pool": "h100-nvl", "gpu": "H100 NVL"})
    status = planner.statuses([on_h100], SEED_FLEET)["llama"]
    assert (status["pool"], status["candidates"][0]["pool"]) == ("h100-nvl", "h100-nvl")
    (placed,) = [each for each in status["conditions"] if each["type"] == "Placed"]
    assert "would draw less" in placed["message"]
    # The same by the fleet's files: the file's spec, where the cluster's status says it is.
    known = llmd(status={**PLACED, "pool": "h100-nvl", "gpu": "H100 NVL"})
    assert planner.statuses([llmd()], [*SEED_FLEET, known])["llama"]["pool"] == "h100-nvl"


def test_written_pools(planner: Planner) -> None:
    mine = pool("cheap", {"team": "ml"}, labels={"tier": "cheap"})
    fleet = [node("a", gpus=2), node("b", "NVIDIA-A30", team="ml"), mine]
    asked = llmd(spec={"placement": {"poolSelector": {"matchLabels": {"tier": "cheap"}}}})
    statuses = planner.statuses([llmd("any"), asked], fleet)
    assert {name: status["pool"] for name, status in statuses.items()} == {"any": "l4", "llama": "cheap"}


def test_a_config_map_describes_a_model_that_the_catalogue_lacks(planner: Planner) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "acme"},
        "data": {"config.json": json.dumps(config)},
    }
    asked = llmd(sla="200ms", spec={"model": {"id": "acme/own", "configMapRef": {"name": "acme"}}})
    assert planner.statuses([asked, config_map], SEED_FLEET)["llama"]["pool"] == "l4"
    assert "spec.model.configMapRef: no ConfigMap acme" in planner.error([asked], SEED_FLEET)


def test_a_model_too_large_for_every_gpu_says_so(planner: Planner) -> None:
    asked = llmd(spec={"model": {"id": "meta-llama/Llama-3.1-70B-Instruct"}})
    status = planner.statuses([asked], SEED_FLEET, exit_code=1)["llama"]
    assert {row["reason"] for row in status["candidates"]} == {"InsufficientMemory"}
    assert all("choose a pool with more memory" in row["message"] for row in status["candidates"])


def test_an_unknown_model_is_unplaced_with_the_cure(planner: Planner) -> None:
    asked = llmd(spec={"model": {"id": "acme/unheard-of"}})
    status = planner.statuses([asked], SEED_FLEET, exit_code=1)["llama"]
    (placed,) = [each for each in status["conditions"] if each["type"] == "Placed"]
    assert (placed["status"], placed["reason"]) == ("False", "UnknownModel")
    assert "spec.model.id" in placed["message"]
    assert "(spec.model.architecture or spec.model.configMapRef)" in placed["message"]


def with_container(**container: Any) -> Manifest:
    return {"server": {"template": {"spec": {"containers": [container]}}}}


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"name": "vllm"}, "spec.server.template.spec.containers[0]: 'vllm' is a new container without"),
        (
            {"name": "server", "resources": {"limits": {"nvidia.com/gpu": 2}}},
            "spec.server.template.spec.containers[0].resources.limits[nvidia.com/gpu]: can't be set",
        ),
        ({"image": "x"}, "spec.server.template.spec.containers[0].name: must be given"),
    ],
)
def test_what_the_operator_would_not_accept_is_not_placed(
    planner: Planner, container: Manifest, field: str
) -> None:
    refused = llmd(spec=with_container(**container))
    status = planner.statuses([refused], SEED_FLEET, exit_code=1)["llama"]
    conditions = {each["type"]: each for each in status["conditions"]}
    assert status["phase"] == "Invalid"
    assert "pool" not in status
    assert (conditions["Accepted"]["status"], conditions["Accepted"]["reason"]) == (
        "False",
        "InvalidTemplate",
    )
    assert conditions["Accepted"]["message"].startswith(field)
    assert "default/llama → not accepted (InvalidTemplate)" in planner.run([refused], SEED_FLEET).stdout


def test_what_is_not_accepted_holds_no_gpu(planner: Planner) -> None:
    refused = llmd("first", spec=with_container(name="vllm"))
    statuses = planner.statuses([refused, llmd("second")], [node("l")], exit_code=1)
    assert [status.get("pool") for status in statuses.values()] == [None, "l4"]


def test_what_is_placed_and_no_longer_accepted_keeps_its_pool(planner: Planner) -> None:
    placed = llmd(
        metadata={"uid": "1"},
        spec=with_container(name="vllm"),
        status={"pool": "l4", "gpusPerReplica": 1, "replicas": 1},
    )
    status = planner.statuses([placed], [node("l")], exit_code=1)["llama"]
    assert status["pool"] == "l4"
    assert {each["type"]: each["status"] for each in status["conditions"]}["Accepted"] == "False"


def test_notes_tell_what_was_left_out(planner: Planner) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    shared = node("shared", **{"nvidia.com/gpu.sharing-strategy": "mps"})
    result = planner.run([llmd(), service], [*SEED_FLEET, shared])
    assert result.exit_code == 0
    used, left_out = result.stderr.splitlines()
    assert used.endswith("llmd.yaml: 1 Service not used here")
    assert left_out.startswith("note: pool l4: node shared left out: node shared: its GPUs are shared (mps)")


# ---- bad input ----------------------------------------------------------------------------------


FIRST = "llmd.yaml: document 1 (LLMDeployment llama)"


@pytest.mark.parametrize(
    ("deployments", "fleet", "error"),
    [
        ([llmd(sla="50")], SEED_FLEET, f"{FIRST}: spec.sla.interTokenLatency: "),
        ([llmd(sla="NaN")], SEED_FLEET, f"{FIRST}: spec.sla.interTokenLatency: "),
        (
            [llmd("a"), llmd("b", spec={"workload": {"requestsPerSecond": "1e30"}})],
            SEED_FLEET,
            "llmd.yaml: document 2 (LLMDeployment b): spec.workload.requestsPerSecond: ",
        ),
        (
            [listed(llmd("a"), llmd("b", spec={"replicas": -1}))],
            SEED_FLEET,
            "llmd.yaml: document 1, item 2 (LLMDeployment b): spec.replicas: ",
        ),
        (
            [llmd(spec={"slaa": {}})],
            SEED_FLEET,
            f"{FIRST}: spec.slaa: unknown field; did you mean sla?",
        ),
        (
            [llmd(), llmd()],
            SEED_FLEET,
            "llmd.yaml: document 2 (LLMDeployment llama): metadata.name: is there already",
        ),
        (
            [llmd("a", metadata={"uid": "1"}), llmd("b", metadata={"uid": "1"})],
            SEED_FLEET,
            "llmd.yaml: document 2 (LLMDeployment b): metadata.uid: is that of a in llmd.yaml: document",
        ),
        (
            [llmd("a", metadata={"uid": "default/b"}), llmd("b")],
            SEED_FLEET,
            "llmd.yaml: document 2 (LLMDeployment b): metadata.uid: is that of a in llmd.yaml: document",
        ),
        ([llmd(metadata={"namespace": ["x"]})], SEED_FLEET, f"{FIRST}: metadata.namespace: must be a string"),
        ([llmd(status="Ready")], SEED_FLEET, f"{FIRST}: status: must be a map; got 'Ready'"),
        *(
            (
                [llmd(status={"pool": "l4", "gpusPerReplica": 1, **wrong})],
                SEED_FLEET,
                f"{FIRST}: status.{field}",
            )
            for field, wrong in [
                ("gpusPerReplica: must be at least 1; got 0", {"gpusPerReplica": 0}),
                ("gpusPerReplica: must be an integer; got '1'", {"gpusPerReplica": "1"}),
                ("gpusPerReplica: must be an integer; got True", {"gpusPerReplica": True}),
                ("pool: must be a string; got 4", {"pool": 4}),
                ("replicas: must be an integer; got 'x'", {"replicas": "x"}),
                ("conditions: must be a list; got 'x'", {"conditions": "x"}),
                ("conditions[0]: must be a map; got 'x'", {"conditions": ["x"]}),
                ("candidates: must be a list; got 'x'", {"candidates": "x"}),
            ]
        ),
        (
            [llmd()],
            [*SEED_FLEET, llmd("there", status={"pool": "l4", "gpusPerReplica": -1})],
            "fleet.yaml: document 4 (LLMDeployment there): status.gpusPerReplica: must be at least 1; got -1",
        ),
        ([node("n")], SEED_FLEET, "llmd.yaml: no LLMDeployment in it: add one"),
        ([llmd()], [llmd("x")], "fleet.yaml: no Node in it: kubectl get nodes -o yaml"),
        (
            [llmd()],
            [node("n"), node("n")],
            "fleet.yaml: document 2 (Node n): metadata.name: is there already, in ",
        ),
        (
            [llmd()],
            [node("n", **{"nvidia.com/gpu.count": 8})],  # type: ignore[arg-type]
            "fleet.yaml: document 1 (Node n): metadata.labels[nvidia.com/gpu.count]: must be a string: quote",
        ),
        (
            [llmd()],
            [*SEED_FLEET, pod("p", "l", gpus=-1)],
            "fleet.yaml: document 4 (Pod p): spec.containers[0].resources.limits[nvidia.com/gpu]: ",
        ),
        (
            [llmd()],
            [*SEED_FLEET, pool("p", {})],
            "fleet.yaml: document 4 (GPUNodePool p): spec.nodeSelector: ",
        ),
        (["kind: LLMDeployment\n  bad: indent"], SEED_FLEET, "llmd.yaml: no valid YAML: "),
        (
            ["a: 1\na: 2"],
            SEED_FLEET,
            "llmd.yaml: no valid YAML: the key 'a' is there twice: keep one of them at line 2, column 1",
        ),
        (["- 1"], SEED_FLEET, "llmd.yaml: document 1: is no resource: write a map"),
        (["metadata: {name: x}"], SEED_FLEET, "llmd.yaml: document 1 (x): kind: is missing: write it"),
        (["[" * 5000], SEED_FLEET, "llmd.yaml: n"),
        (["kind: List\nitems: {}x"], SEED_FLEET, "llmd.yaml: no valid YAML"),
        (
            ["a: !!int x"],
            SEED_FLEET,
            "llmd.yaml: no valid YAML: 'x' can't be read as int: correct it or quote",
        ),
        (["a: !!bool x"], SEED_FLEET, "llmd.yaml: no valid YAML: 'x' can't be read as bool"),
        (["a: !!timestamp x"], SEED_FLEET, "llmd.yaml: no valid YAML: 'x' can't be read as timestamp"),
        (["a: !!int ''"], SEED_FLEET, "llmd.yaml: no valid YAML: '' can't be read as int"),
        (["a: !!map x"], SEED_FLEET, "llmd.yaml: no valid YAML: a map is needed here at line 1, column 4"),
        ([f"a: {'9' * 5000}"], SEED_FLEET, "llmd.yaml: no valid YAML: '999"),
        (["? [a]\n: b"], SEED_FLEET, "llmd.yaml: no valid YAML: a key must be a text at line 1, column 3"),
        (
            [listed(listed(llmd()))],
            SEED_FLEET,
            "llmd.yaml: document 1, item 1 (List): kind: is a List within a List: put its items into the",
        ),
        (
            [listed(llmd(), "x")],  # type: ignore[arg-type]
            SEED_FLEET,
            "llmd.yaml: document 1, item 2: is no resource",
        ),
        (["kind: List\nitems: nodes"], SEED_FLEET, "llmd.yaml: document 1 (List): items: must be a list"),
        (
            [{"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"config.json": {"a": 1}}}, llmd()],
            SEED_FLEET,
            "llmd.yaml: document 1 (ConfigMap c): data[config.json]: must be a text",
        ),
    ],
)
def test_bad_input_is_one_error_that_names_file_document_field_and_cure(
    planner: Planner, deployments: list[Any], fleet: list[Any], error: str
) -> None:
    assert planner.error(deployments, fleet).startswith(error)


def aliases(levels: int, innermost: str) -> str:
    """YAML of `levels` lists of ten aliases each, the last under the anchor `bomb`: 10 ** levels entries."""
    lines = [f"a0: &a0 [{innermost}]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels + 1)]
    return "\n".join(lines).replace(f"&a{levels} ", "&bomb ") + "\n"


@pytest.mark.parametrize(
    "field",
    ["metadata.name", "metadata.namespace", "kind", "spec.model.id", "spec.sla.interTokenLatency", "spec"],
)
def test_aliases_that_stand_for_gigabytes_cost_nothing(planner: Planner, field: str) -> None:
    resource = llmd()
    *path, last = field.split(".")
    place = resource
    for name in path:
        place = place[name]
    place[last] = "BOMB"
    text = aliases(30, "x") + yaml.safe_dump(resource).replace("BOMB", "*bomb")
    result = planner.run([text], SEED_FLEET)
    assert result.exit_code == 2
    assert len(result.stderr) < 2000


def test_all_errors_are_said_at_once(planner: Planner) -> None:
    result = planner.run([llmd("a", sla="x"), llmd("b", spec={"replicas": -1})], [node("n", **{"a": 1})])  # type: ignore[arg-type]
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 3


def test_files_that_cannot_be_read(planner: Planner) -> None:
    fleet = planner.write("fleet.yaml", *SEED_FLEET)
    result = CliRunner().invoke(app, ["plan", "-f", str(planner.folder / "none.yaml"), "--fleet", fleet])
    assert result.exit_code == 2
    assert "none.yaml: can't be read (No such file or directory): name a file" in result.stderr
    result = CliRunner().invoke(app, ["plan", "-f", str(planner.folder), "--fleet", fleet])
    assert "can't be read (Is a directory)" in result.stderr
    result = CliRunner().invoke(app, ["plan", "-f", "-", "--fleet", "-"], input="")
    assert result.stderr == "error: standard input can be read once: use - for one file only\n"
    binary = planner.folder / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00\xd8kind")
    result = CliRunner().invoke(app, ["plan", "-f", str(binary), "--fleet", fleet])
    assert result.exit_code == 2
    assert "binary.yaml: no valid YAML" in result.stderr


def test_times_stay_text(planner: Planner) -> None:
    text = yaml.safe_dump(llmd(metadata={"creationTimestamp": "T"})).replace(
        "creationTimestamp: T", "creationTimestamp: 2026-01-01T00:00:00Z"
    )
    assert planner.statuses([text], SEED_FLEET)["llama"]["pool"] == "l4"


# ---- the command line itself --------------------------------------------------------------------


def test_commands_are_found_by_name_and_loaded_when_called() -> None:
    listed_help = CliRunner().invoke(app, ["--help"]).stdout
    assert all(command.name in listed_help for command in COMMANDS)
    assert "Exit codes" in CliRunner().invoke(app, ["plan", "--help"]).stdout
    wrong = CliRunner().invoke(app, ["plam"])
    assert wrong.exit_code == 2
    assert "No such command 'plam'" in wrong.stderr


def test_a_plan_needs_neither_kopf_nor_a_kubernetes_client(planner: Planner) -> None:
    arguments = [
        "plan",
        "-f",
        planner.write("l.yaml", llmd()),
        "--fleet",
        planner.write("f.yaml", *SEED_FLEET),
    ]
    code = (
        f"import sys; sys.argv[1:] = {arguments!r}\n"
        "from wattkeeper.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "print(sorted({'kopf', 'kubernetes', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "default/llama → l4" in done.stdout


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout.count(".")) == (0, 2)
