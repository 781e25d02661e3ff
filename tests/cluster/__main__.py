"""``python -m tests.cluster``: the local cluster from the command line."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.cluster import control_plane, fleet, nodes, state
from tests.cluster.access import Cluster
from tests.cluster.binaries import ALL, DEFAULT, Binaries
from tests.cluster.components import POD_STAGES, Options
from tests.cluster.errors import ClusterError

DEFAULT_NAME = "dev"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 an error that was printed, 3 (status) not running."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def up(options: argparse.Namespace) -> int:
    wanted = Options(scheduler=_scheduler(options.scheduler_config), pod_stages=options.pod_stages)
    binaries = Binaries(say=_say)
    binaries.ensure(DEFAULT)
    before = state.load(options.name)
    known = control_plane.start(options.name, binaries, wanted, say=_say)
    if before is not None and before.components == known.components:
        _say(f"Cluster {known.name} runs already, with the options it was started with")
    cluster = Cluster(known.layout.kubeconfig, binaries, known)
    if options.fleet == "mixed":
        fleet.apply(cluster, nodes.mixed_fleet())
    _say(f"Cluster {known.name} is ready. Logs: {known.layout.logs}")
    print(f"export KUBECONFIG={known.layout.kubeconfig}")
    return 0


def down(options: argparse.Namespace) -> int:
    names = [known.name for known in state.all_states()] if options.all else [options.name]
    for name in names:
        stopped = control_plane.stop(name, _say)
        _say(f"Cluster {name} is stopped" if stopped else f"Cluster {name} is not running")
    return 0


def status(options: argparse.Namespace) -> int:
    known = state.load(options.name)
    if known is None:
        print(f"Cluster {options.name} is not running; start it with: make cluster-up")
        return 3
    for component in known.components:
        print(f"{component.name:<24} {'running' if component.alive() else 'ENDED':<8} pid {component.pid}")
    print(f"{'API server':<24} https://127.0.0.1:{known.ports.api_server}")
    print(f"{'kubeconfig':<24} {known.layout.kubeconfig}")
    print(f"{'logs':<24} {known.layout.logs}")
    control_plane.check(known)
    return 0


def kubeconfig(options: argparse.Namespace) -> int:
    known = state.load(options.name)
    if known is None:
        raise ClusterError(f"cluster {options.name} is not running; start it with: make cluster-up")
    print(known.layout.kubeconfig)
    return 0


def show_fleet(_: argparse.Namespace) -> int:
    print(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": nodes.mixed_fleet()}, sort_keys=False))
    return 0


def build(options: argparse.Namespace) -> int:
    wanted = ALL if options.all else tuple(options.program) or DEFAULT
    for path in Binaries(say=_say).ensure(wanted).values():
        print(path)
    return 0


def _scheduler(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ClusterError(f"--scheduler-config {path}: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise ClusterError(f"--scheduler-config {path}: not a KubeSchedulerConfiguration")
    return document


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    def named(sub: argparse.ArgumentParser) -> argparse.ArgumentParser:
        sub.add_argument("--name", default=DEFAULT_NAME, help=f"which cluster (default: {DEFAULT_NAME})")
        return sub

    sub = named(command("up", up, "Start a cluster and keep it until `down`; print its KUBECONFIG."))
    sub.add_argument("--scheduler-config", type=Path, metavar="FILE", help="a KubeSchedulerConfiguration")
    sub.add_argument("--pod-stages", choices=POD_STAGES, default="fast", help="how fast fake pods get ready")
    sub.add_argument("--fleet", choices=("none", "mixed"), default="none", help="fake GPU nodes to add")
    sub = named(command("down", down, "Stop a cluster; its data is deleted, its logs stay."))
    sub.add_argument("--all", action="store_true", help="every cluster that this user runs")
    named(command("status", status, "Show the components of a cluster."))
    command("fleet", show_fleet, "Print the manifests of the mixed fleet of fake GPU nodes.")
    named(command("kubeconfig", kubeconfig, "Print the path of a cluster's kubeconfig."))
    sub = command("build", build, "Build what is not in the cache; print the paths.")
    sub.add_argument("program", nargs="*", metavar="PROGRAM", help=f"of: {', '.join(ALL)}")
    sub.add_argument("--all", action="store_true", help="every program, kubelet and kubeadm among them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
