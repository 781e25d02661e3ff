"""`make demo`: the main job of wattkeeper on a real control plane.

Starts etcd, kube-apiserver, controller-manager and scheduler with a mixed fleet of fake GPU nodes, installs
the chart, runs the operator with the chart's own ServiceAccount, applies three LLMDeployments, and prints
where each went and why. Ends with 0 when the placements are those that `wattkeeper plan` gives for the same
fleet.

    --keep   leave the cluster running afterwards
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.cluster import control_plane, fleet, nodes, processes  # noqa: E402
from tests.cluster.access import Cluster  # noqa: E402
from tests.cluster.binaries import Binaries  # noqa: E402
from tests.cluster.components import Options  # noqa: E402
from tests.cluster.errors import ClusterError  # noqa: E402

NAME = "demo"
SYSTEM = "wattkeeper-system"
OPERATOR = "wattkeeper-operator"
SAMPLES = REPOSITORY / "examples" / "llmdeployments.yaml"
CHART = REPOSITORY / "charts" / "wattkeeper"
PLACED_WITHIN_SECONDS = 90.0

# A log has no width of its own: wide enough for the tables.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)

Status = Mapping[str, Any]


def main() -> int:
    """Exit status: 0 as planned, 1 something failed (said so), 2 placements differ from the plan's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running afterwards")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattkeeper-demo-")))
            return demo(stack, folder, options.keep, began)
    except (ClusterError, subprocess.CalledProcessError) as error:
        console.print(f"[bold red]The demo failed:[/] {error}", markup=True)
        return 1


def demo(stack: ExitStack, folder: Path, keep: bool, began: float) -> int:
    step("Starting etcd, kube-apiserver, controller-manager, scheduler and kwok")
    cluster = stack.enter_context(running_cluster(keep))
    step("Adding the fleet: fake nodes with H100, A100, L40S, L4 and A30 GPUs")
    fleet.apply(cluster, nodes.mixed_fleet())
    say(cluster.kubectl("get", "nodes", "-L", "nvidia.com/gpu.product,nvidia.com/gpu.count"))

    step("Asking `wattkeeper plan` first: the same decision without a cluster")
    planned = plan(cluster, folder)
    for name, status in planned.items():
        say(f"  {name}: {status.get('pool', 'nowhere')}")

    step("helm install, with the operator scaled to 0")
    say("The fake nodes run no containers: the operator runs as a process of this machine, with the token of")
    say("the chart's own ServiceAccount and no other right.")
    install(cluster)
    log = stack.enter_context(running_operator(cluster, folder))

    step(f"kubectl apply -f {SAMPLES.relative_to(REPOSITORY)}")
    say(cluster.kubectl("apply", "-f", str(SAMPLES)))
    placed = await_ready(cluster, list(planned), log)
    step("Where each went, and why")
    for name in planned:
        console.print(candidate_table(name, placed[name]))
    step("kubectl get llmd,gnp,deployments,pods")
    for kind in ("llmd", "gnp", "deployments", "pods"):
        say(cluster.kubectl("get", kind, *([] if kind == "gnp" else ["-n", "default"])))

    differences = [
        f"{name}: placed on {placed[name].get('pool')}, planned on {planned[name].get('pool')}"
        for name in planned
        if any(placed[name].get(key) != planned[name].get(key) for key in ("pool", "gpu", "gpusPerReplica"))
    ]
    if differences:
        console.print("[bold red]Not as planned:[/] " + "; ".join(differences))
        return 2
    console.print(
        f"[bold green]Done[/] in {time.monotonic() - began:.0f} s: "
        f"all {len(placed)} placed as `wattkeeper plan` said."
    )
    if keep:
        say(f"The cluster is kept: export KUBECONFIG={cluster.kubeconfig}")
        say(f"End it with: .venv/bin/python -m tests.cluster down --name {NAME}")
    return 0


@contextmanager
def running_cluster(keep: bool) -> Iterator[Cluster]:
    binaries = Binaries(say=say)
    owner = None if keep else processes.current()
    known = control_plane.start(NAME, binaries, Options(), owner, say)
    try:
        yield Cluster(known.layout.kubeconfig, binaries, known)
    finally:
        if owner is not None:
            control_plane.release(known, owner, say)


def plan(cluster: Cluster, folder: Path) -> dict[str, Status]:
    """What `wattkeeper plan` says for the cluster's nodes: status by name."""
    found = folder / "fleet.yaml"
    found.write_text(cluster.kubectl("get", "nodes", "-o", "yaml"))
    command = [*wattkeeper(), "plan", "-f", str(SAMPLES), "--fleet", str(found), "-o", "json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ClusterError(
            f"wattkeeper plan ended with {result.returncode}:\n{result.stderr or result.stdout}"
        )
    return {item["metadata"]["name"]: item["status"] for item in json.loads(result.stdout)["items"]}


def install(cluster: Cluster) -> None:
    cluster.helm(
        "upgrade",
        "--install",
        "wattkeeper",
        str(CHART),
        f"--namespace={SYSTEM}",
        "--create-namespace",
        "--set=operator.replicas=0",
        "--wait",
    )


@contextmanager
def running_operator(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """What the chart's Deployment would run, with its ServiceAccount; yields the path of its log."""
    deployment = json.loads(cluster.kubectl("get", "deployment", OPERATOR, "-n", SYSTEM, "-o", "json"))
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    account = pod["serviceAccountName"]
    kubeconfig = cluster.service_account_kubeconfig(SYSTEM, account, folder / "operator.kubeconfig")
    environment = {
        **os.environ,
        **{entry["name"]: entry["value"] for entry in container["env"] if "value" in entry},
        "KUBECONFIG": str(kubeconfig),
        "WATTKEEPER_LEASE_NAMESPACE": SYSTEM,
        "WATTKEEPER_LISTEN_HOST": "127.0.0.1",
        "WATTKEEPER_LISTEN_PORT": "0",
    }
    path = folder / "operator.log"
    with path.open("w") as log:
        process = subprocess.Popen(
            [*wattkeeper(), *container["args"]], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield path
            if process.poll() is not None:
                raise ClusterError(f"the operator ended with {process.returncode}:\n{tail(path)}")
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def await_ready(cluster: Cluster, names: list[str], log: Path) -> dict[str, Status]:
    """The statuses once all are Ready."""

    def statuses() -> dict[str, Status]:
        listing = json.loads(cluster.kubectl("get", "llmd", "-n", "default", "-o", "json"))
        return {item["metadata"]["name"]: item.get("status", {}) for item in listing["items"]}

    def all_ready() -> dict[str, Status] | None:
        found = statuses()
        return found if all(found.get(name, {}).get("phase") == "Ready" for name in names) else None

    def missing() -> str:
        phases = {name: status.get("phase") for name, status in statuses().items()}
        return f"all of them Ready: {phases}; the operator's last words:\n{tail(log)}"

    return cluster.wait(missing, all_ready, PLACED_WITHIN_SECONDS)


def candidate_table(name: str, status: Status) -> Table:
    """The status's candidate table, as a person reads it."""
    prediction = status.get("prediction", {})
    table = Table(
        title=f"{name} → [bold]{status['pool']}[/] ({status['gpusPerReplica']} × {status['gpu']}): "
        f"{prediction.get('powerWatts')} W, {prediction.get('interTokenLatency')} a token "
        f"(at most {prediction.get('interTokenLatencyUpper')})",
        title_justify="left",
        box=box.SIMPLE,
    )
    for heading in ("pool", "GPUs", "free", "W", "ITL", "at most", ""):
        table.add_column(heading, no_wrap=True)
    table.add_column("why not", overflow="fold")
    for row in status.get("candidates", []):
        table.add_row(
            row["pool"],
            f"{row['gpusPerReplica']} × {row['gpu']}",
            str(row["freeGPUs"]),
            str(row.get("powerWatts", "")),
            row.get("interTokenLatency", ""),
            row.get("interTokenLatencyUpper", ""),
            "[green]yes[/]" if row["feasible"] else "[red]no[/]",
            row.get("message", ""),
        )
    return table


def wattkeeper() -> list[str]:
    return [sys.executable, "-m", "wattkeeper"]


def tail(path: Path, lines: int = 20) -> str:
    return "\n".join(path.read_text().splitlines()[-lines:])


def step(text: str) -> None:
    console.print(f"\n[bold]==> {text}[/]")


def say(text: str) -> None:
    console.print(text.rstrip(), markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
