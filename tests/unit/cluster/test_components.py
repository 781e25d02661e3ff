from pathlib import Path

import pytest
import yaml

from tests.cluster import components
from tests.cluster.components import Layout, Options, Ports

LAYOUT = Layout(Path("/state/dev"))
PORTS = Ports(*range(1001, 1001 + Ports.count()))
PROGRAM = Path("/bin/program")


def flags(command: list[str]) -> dict[str, str]:
    """The last value of each flag."""
    return dict(word.removeprefix("--").partition("=")[::2] for word in command[1:])


def test_components_meet_at_the_same_ports() -> None:
    etcd = flags(components.etcd(PROGRAM, LAYOUT, PORTS))
    server = flags(components.api_server(PROGRAM, LAYOUT, PORTS, Options()))
    assert etcd["listen-client-urls"] == server["etcd-servers"] == f"http://127.0.0.1:{PORTS.etcd_client}"
    assert server["secure-port"] == str(PORTS.api_server)
    assert etcd["initial-cluster"] == f"local={etcd['listen-peer-urls']}"


def test_everything_listens_on_loopback_unless_told_otherwise() -> None:
    server = flags(components.api_server(PROGRAM, LAYOUT, PORTS, Options()))
    assert (server["bind-address"], server["endpoint-reconciler-type"]) == ("127.0.0.1", "none")
    server = flags(components.api_server(PROGRAM, LAYOUT, PORTS, Options(bind_address="192.0.2.7")))
    assert (server["bind-address"], server["endpoint-reconciler-type"]) == ("192.0.2.7", "lease")
    for build in (components.controller_manager, components.scheduler):
        assert flags(build(PROGRAM, LAYOUT, PORTS, Options()))["bind-address"] == "127.0.0.1"


def test_caller_arguments_come_last_so_that_they_win() -> None:
    options = Options(
        api_server_arguments=["--max-requests-inflight=7"],
        controller_manager_arguments=["--kube-api-qps=7"],
        scheduler_arguments=["--v=7"],
    )
    assert flags(components.api_server(PROGRAM, LAYOUT, PORTS, options))["max-requests-inflight"] == "7"
    assert flags(components.controller_manager(PROGRAM, LAYOUT, PORTS, options))["kube-api-qps"] == "7"
    assert components.scheduler(PROGRAM, LAYOUT, PORTS, options)[-1] == "--v=7"


def test_scheduler_configuration_keeps_what_the_caller_chose() -> None:
    chosen = {
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": "http://127.0.0.1:9/"}],
        "clientConnection": {"qps": 5, "kubeconfig": "/somewhere/else"},
        "leaderElection": {"leaderElect": True},
    }
    document = components.scheduler_configuration(LAYOUT, Options(scheduler=chosen))
    assert document["extenders"] == chosen["extenders"]
    assert document["clientConnection"]["qps"] == 5
    assert document["clientConnection"]["kubeconfig"] == "/state/dev/pki/kube-scheduler.kubeconfig"
    assert document["leaderElection"] == {"leaderElect": False}
    assert document["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert yaml.safe_load(yaml.safe_dump(document)) == document


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pod_stages": "slow"}, "pod_stages is 'slow': give one of fast, general"),
        ({"scheduler": {"kind": "Deployment"}}, "'Deployment': give a KubeSchedulerConfiguration"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options(**options)  # type: ignore[arg-type]


def test_kwok_manages_annotated_nodes_only() -> None:
    command = components.kwok(PROGRAM, Path("/kubeconfig"), 1, [Path("/a.yaml"), Path("/b.yaml")])
    assert flags(command)["manage-nodes-with-annotation-selector"] == "kwok.x-k8s.io/node=fake"
    assert [word for word in command if word.startswith("--config=")] == [
        "--config=/a.yaml",
        "--config=/b.yaml",
    ]


def test_stages_are_found(tmp_path: Path) -> None:
    for path in ("node/fast/n.yaml", "node/heartbeat-with-lease/h.yaml", "pod/general/p.yaml"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
        (tmp_path / path).with_name("kustomization.yaml").touch()
    found = components.kwok_stages(tmp_path, "general")
    assert [path.name for path in found] == ["n.yaml", "h.yaml", "p.yaml"]
    with pytest.raises(FileNotFoundError, match=r"no kwok stages in .*pod/fast"):
        components.kwok_stages(tmp_path, "fast")
