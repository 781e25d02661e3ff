"""Starts and stops whole control planes on this machine.

One lock covers every start and stop: they take seconds, and side by side they would only slow each other.
"""

import datetime
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import yaml

from tests.cluster import components, processes, readiness, state
from tests.cluster.binaries import CONTROL_PLANE, Binaries
from tests.cluster.certificates import Authority, Pair, kubeconfig, service_account_keys, write_private
from tests.cluster.components import LOOPBACK, Layout, Options, Ports
from tests.cluster.errors import StartError
from tests.cluster.locks import exclusive
from tests.cluster.paths import state_directory
from tests.cluster.ports import reserve
from tests.cluster.processes import Process
from tests.cluster.state import State

LOCK = ".lock"
KEPT_LOGS = 5  # folders of clusters that are gone, kept for their logs

Say = Callable[[str], None]


def start(
    name: str,
    binaries: Binaries,
    options: Options | None = None,
    owner: Process | None = None,
    say: Say = print,
) -> State:
    """Starts cluster ``name``, or joins the one that runs under this name, and returns when it is ready.

    Without an ``owner`` the cluster is kept until `stop`. Raises StartError, with the end of the log of
    what failed, and BuildError; in either case nothing is left running.
    """
    binaries.ensure(CONTROL_PLANE)
    with exclusive(state_directory() / LOCK, say):
        _sweep(say)
        known = state.load(name)
        if known is not None and known.usable():
            if owner is not None:
                known = known.with_owner(owner)
                state.save(known)
            return known
        if known is not None:
            ended = ", ".join(process.name for process in known.ended()) or "its start was interrupted"
            say(f"Cluster {name} is broken ({ended}): starting it afresh")
            _end(known)
        return _start(name, binaries, options or Options(), owner)


def release(known: State, owner: Process, say: Say = print) -> None:
    """Lets go of a cluster; the last owner stops it."""
    # Not by name: the environment may name another state directory by now.
    with exclusive(known.directory.parent / LOCK, say):
        current = state.read(known.directory)
        if current is None:
            return
        current = current.without_owner(owner)
        state.save(current)
        if not current.wanted():
            _end(current)


def stop(name: str, say: Say = print) -> bool:
    """Stops cluster ``name``; False where there is none. Its logs stay."""
    with exclusive(state_directory() / LOCK, say):
        known = state.load(name)
        if known is not None:
            _end(known)
        return known is not None


def check(known: State) -> None:
    """Raises StartError when a component has ended since the start, with the end of its log."""
    ended = known.ended()
    if ended:
        words = "\n".join(
            f"{process.name} of cluster {known.name} has ended.\n"
            f"{readiness.last_words(known.layout.log(process.name))}"
            for process in ended
        )
        raise StartError(words)


def _sweep(say: Say) -> None:
    """Stops clusters whose test process was killed before it could, and drops old logs."""
    for known in state.all_states():
        if not known.wanted():
            say(f"Stopping cluster {known.name}: the tests that started it are gone")
            _end(known)
    gone = [
        path for path in state_directory().iterdir() if path.is_dir() and not (path / state.FILE).exists()
    ]
    gone.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in gone[KEPT_LOGS:]:
        shutil.rmtree(path, ignore_errors=True)


def _end(known: State) -> None:
    processes.stop(known.components)
    for part in (known.layout.pki, known.layout.data):
        shutil.rmtree(part, ignore_errors=True)
    known.layout.kubeconfig.unlink(missing_ok=True)
    state.forget(known)


def _start(name: str, binaries: Binaries, options: Options, owner: Process | None) -> State:
    directory = state.directory_of(name)
    shutil.rmtree(directory, ignore_errors=True)
    layout = Layout(directory)
    for folder in (directory, layout.pki, layout.logs):
        folder.mkdir(mode=0o700, parents=True)
    ports = Ports(*reserve(Ports.count()))
    _write_identities(name, layout, ports, options)
    layout.scheduler_configuration.write_text(
        yaml.safe_dump(components.scheduler_configuration(layout, options), sort_keys=False)
    )
    known = State(
        name=name,
        directory=directory,
        ready=False,
        kept=owner is None,
        ports=ports,
        components=(),
        owners=() if owner is None else (owner,),
    )
    return _Starter(known, binaries, options).run()


def _write_identities(name: str, layout: Layout, ports: Ports, options: Options) -> None:
    authority = Authority(f"wattkeeper-{name}", datetime.datetime.now(datetime.UTC))
    hosts = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        *sorted({LOOPBACK, components.API_SERVICE_ADDRESS, options.bind_address}),
    ]
    admin = authority.client("kubernetes-admin", "system:masters")
    pairs: dict[str, Pair] = {
        "ca": authority.pair,
        "admin": admin,
        "api-server": authority.server("kube-apiserver", hosts),
        "kubelet-client": authority.client("kube-apiserver-kubelet-client", "system:masters"),
    }
    for file, pair in pairs.items():
        write_private(layout.pki / f"{file}.key", pair.key)
        write_private(layout.pki / f"{file}.crt", pair.certificate)
    private, public = service_account_keys()
    write_private(layout.pki / "service-account.key", private)
    write_private(layout.pki / "service-account.pub", public)

    server = f"https://{options.bind_address}:{ports.api_server}"

    def identity(path: Path, user: str, client: Pair) -> None:
        write_private(path, kubeconfig(f"wattkeeper-{name}", server, authority.certificate, user, client))

    identity(layout.kubeconfig, "admin", admin)
    for component in ("kube-controller-manager", "kube-scheduler"):
        user = f"system:{component}"
        identity(layout.component_kubeconfig(component), user, authority.client(user))


class _Starter:
    """Starts the components of one cluster in their order."""

    def __init__(self, known: State, binaries: Binaries, options: Options) -> None:
        self.state = known
        self.layout = known.layout
        self.ports = known.ports
        self.binaries = binaries
        self.options = options

    def run(self) -> State:
        """Returns the running cluster; on any failure ends what it started and lets the error out."""
        try:
            self._start_api()
            self._start_controllers()
            self.state = replace(self.state, ready=True)
            state.save(self.state)
        except BaseException:
            _end(self.state)
            raise
        return self.state

    def _start_api(self) -> None:
        paths = self.binaries.ensure(CONTROL_PLANE)
        self._launch("etcd", components.etcd(paths["etcd"], self.layout, self.ports))
        self._wait("etcd", readiness.http_ok(f"http://{LOOPBACK}:{self.ports.etcd_client}/health"))
        server = paths["kube-apiserver"]
        self._launch("kube-apiserver", components.api_server(server, self.layout, self.ports, self.options))
        self._wait("kube-apiserver", self._api("/readyz"))

    def _start_controllers(self) -> None:
        paths = self.binaries.ensure(CONTROL_PLANE)
        layout, ports, options = self.layout, self.ports, self.options
        stages = components.kwok_stages(self.binaries.kwok_stages, options.pod_stages)
        commands = {
            "kube-controller-manager": components.controller_manager(
                paths["kube-controller-manager"], layout, ports, options
            ),
            "kube-scheduler": components.scheduler(paths["kube-scheduler"], layout, ports, options),
            "kwok": components.kwok(paths["kwok"], layout.kubeconfig, ports.kwok, stages),
        }
        for name, command in commands.items():
            self._launch(name, command)
        unverified = readiness.unverified_context()
        checks = [
            (
                "kube-controller-manager",
                readiness.http_ok(f"https://{LOOPBACK}:{ports.controller_manager}/healthz", unverified),
            ),
            ("kube-scheduler", readiness.http_ok(f"https://{LOOPBACK}:{ports.scheduler}/readyz", unverified)),
            ("kwok", readiness.http_ok(f"http://{LOOPBACK}:{ports.kwok}/healthz")),
            # Until its service account exists, the namespace "default" takes no pods.
            ("kube-controller-manager", self._api("/api/v1/namespaces/default/serviceaccounts/default")),
        ]
        with ThreadPoolExecutor(len(checks)) as pool:
            list(pool.map(lambda item: self._wait(*item), checks))

    def _api(self, path: str) -> readiness.Check:
        pki = self.layout.pki
        context = readiness.client_context(pki / "ca.crt", pki / "admin.crt", pki / "admin.key")
        return readiness.http_ok(
            f"https://{self.options.bind_address}:{self.ports.api_server}{path}", context
        )

    def _launch(self, name: str, command: list[str]) -> None:
        # The home directory keeps a user's own settings (~/.kwok, ~/.kube) out.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.layout.directory)}
        process = processes.start(name, command, self.layout.log(name), environment)
        # Saved at once, so that a killed start can be cleaned up.
        self.state = replace(self.state, components=(*self.state.components, process))
        state.save(self.state)

    def _wait(self, name: str, check: readiness.Check) -> None:
        process = next(process for process in self.state.components if process.name == name)
        readiness.wait(process, self.layout.log(name), check)
