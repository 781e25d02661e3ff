"""The command line of each component: values in, argument lists out. Nothing here starts anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
SERVICE_CIDR = "10.96.0.0/16"
POD_CIDR = "10.244.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"

# kwok looks after the nodes with this annotation, and after no other.
FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node"
FAKE_NODE_VALUE = "fake"
NODE_LEASE_SECONDS = 40

CLIENT_QPS = 300  # requests per second of a controller

POD_STAGES = ("fast", "general")


@dataclass(frozen=True)
class Ports:
    """TCP ports; everything listens on loopback but for the API server if told otherwise."""

    api_server: int
    etcd_client: int
    etcd_peer: int
    controller_manager: int
    scheduler: int
    kwok: int

    @classmethod
    def count(cls) -> int:
        """How many there are."""
        return len(fields(cls))


@dataclass(frozen=True)
class Options:
    """What a caller may choose about a cluster.

    ``scheduler`` is a KubeSchedulerConfiguration (extenders, profiles, plugins); its client connection and
    leader election are ours. ``pod_stages`` is kwok's: ``fast`` makes a bound pod ready at once; ``general``
    takes seconds a step, which the annotation ``pod-ready.stage.kwok.x-k8s.io/delay`` of a pod can set.
    ``bind_address`` other than loopback lets real nodes and pods reach the API server.
    """

    scheduler: Mapping[str, Any] = field(default_factory=dict)
    pod_stages: str = "fast"
    bind_address: str = LOOPBACK
    api_server_arguments: Sequence[str] = ()
    controller_manager_arguments: Sequence[str] = ()
    scheduler_arguments: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.pod_stages not in POD_STAGES:
            raise ValueError(f"pod_stages is {self.pod_stages!r}: give one of {', '.join(POD_STAGES)}")
        kind = self.scheduler.get("kind", "KubeSchedulerConfiguration")
        if kind != "KubeSchedulerConfiguration":
            raise ValueError(
                f"the scheduler's configuration is a {kind!r}: give a KubeSchedulerConfiguration"
            )


@dataclass(frozen=True)
class Layout:
    """The files of a cluster, all below one directory."""

    directory: Path

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def data(self) -> Path:
        return self.directory / "etcd"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.directory / "kubeconfig"

    @property
    def scheduler_configuration(self) -> Path:
        return self.directory / "scheduler.yaml"

    def component_kubeconfig(self, component: str) -> Path:
        return self.pki / f"{component}.kubeconfig"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"


def etcd(program: Path, layout: Layout, ports: Ports) -> list[str]:
    client = f"http://{LOOPBACK}:{ports.etcd_client}"
    peer = f"http://{LOOPBACK}:{ports.etcd_peer}"
    return [
        str(program),
        "--name=local",
        f"--data-dir={layout.data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        # The data is thrown away with the cluster, so it need not survive a power cut.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(program: Path, layout: Layout, ports: Ports, options: Options) -> list[str]:
    # The service "kubernetes" cannot have a loopback address behind it; only real pods would ask for it.
    reconciler = "none" if options.bind_address.startswith("127.") else "lease"
    return [
        str(program),
        f"--etcd-servers=http://{LOOPBACK}:{ports.etcd_client}",
        f"--bind-address={options.bind_address}",
        f"--secure-port={ports.api_server}",
        f"--endpoint-reconciler-type={reconciler}",
        f"--cert-dir={layout.pki}",
        f"--client-ca-file={layout.pki / 'ca.crt'}",
        f"--tls-cert-file={layout.pki / 'api-server.crt'}",
        f"--tls-private-key-file={layout.pki / 'api-server.key'}",
        f"--kubelet-client-certificate={layout.pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={layout.pki / 'kubelet-client.key'}",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--service-account-key-file={layout.pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={layout.pki / 'service-account.key'}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        # Reach a node by its address, as names of test nodes resolve nowhere.
        "--kubelet-preferred-address-types=InternalIP",
        # Load tests open more requests at once than the defaults (400, 200) admit.
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1500",
        *options.api_server_arguments,
    ]


def controller_manager(program: Path, layout: Layout, ports: Ports, options: Options) -> list[str]:
    kubeconfig = layout.component_kubeconfig("kube-controller-manager")
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.controller_manager}",
        f"--cert-dir={layout.pki}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        f"--service-account-private-key-file={layout.pki / 'service-account.key'}",
        f"--cluster-signing-cert-file={layout.pki / 'ca.crt'}",
        f"--cluster-signing-key-file={layout.pki / 'ca.key'}",
        "--use-service-account-credentials",
        # The default of 20 requests/s makes the start, and every test, seconds slower.
        f"--kube-api-qps={CLIENT_QPS}",
        f"--kube-api-burst={2 * CLIENT_QPS}",
        # There is one of each; an election only delays the start.
        "--leader-elect=false",
        *options.controller_manager_arguments,
    ]


def scheduler(program: Path, layout: Layout, ports: Ports, options: Options) -> list[str]:
    kubeconfig = layout.component_kubeconfig("kube-scheduler")
    return [
        str(program),
        f"--config={layout.scheduler_configuration}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.scheduler}",
        f"--cert-dir={layout.pki}",
        *options.scheduler_arguments,
    ]


def scheduler_configuration(layout: Layout, options: Options) -> dict[str, Any]:
    """The caller's KubeSchedulerConfiguration, bound to this cluster."""
    connection = {"qps": CLIENT_QPS, "burst": 2 * CLIENT_QPS, **options.scheduler.get("clientConnection", {})}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **options.scheduler,
        "clientConnection": connection | {"kubeconfig": str(layout.component_kubeconfig("kube-scheduler"))},
        "leaderElection": {"leaderElect": False},
    }


def kwok(program: Path, kubeconfig: Path, port: int, stages: Sequence[Path]) -> list[str]:
    """``stages`` are Stage manifests: without any, kwok does nothing."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE_ANNOTATION}={FAKE_NODE_VALUE}",
        f"--node-lease-duration-seconds={NODE_LEASE_SECONDS}",
        f"--server-address={LOOPBACK}:{port}",
        f"--cidr={POD_CIDR}",
        *(f"--config={stage}" for stage in stages),
    ]


def kwok_stages(folder: Path, pod_stages: str) -> list[Path]:
    """The Stage manifests below kwok's folder of stages that make nodes ready and pods run.

    Raises FileNotFoundError where a folder holds none: kwok would silently leave nodes or pods alone.
    """
    found: list[Path] = []
    for part in ("node/fast", "node/heartbeat-with-lease", f"pod/{pod_stages}"):
        stages = sorted(path for path in (folder / part).glob("*.yaml") if path.name != "kustomization.yaml")
        if not stages:
            raise FileNotFoundError(f"no kwok stages in {folder / part}")
        found.extend(stages)
    return found
