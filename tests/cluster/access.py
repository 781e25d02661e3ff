"""What a test holds in its hand: one cluster's kubeconfig, clients and command-line programs."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import kubernetes.client
import kubernetes.config

from tests.cluster import control_plane
from tests.cluster.binaries import Binaries
from tests.cluster.certificates import write_private
from tests.cluster.errors import ClusterError
from tests.cluster.state import State

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1
FIELD_MANAGER = "wattkeeper-tests"

T = TypeVar("T")


class Cluster:
    """A running cluster: one of ours (``state`` is known) or one that a kubeconfig file names."""

    def __init__(self, kubeconfig: Path, binaries: Binaries, state: State | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.binaries = binaries
        self.state = state

    @cached_property
    def api(self) -> kubernetes.client.ApiClient:
        """A synchronous client with the administrator's rights."""
        return kubernetes.config.new_client_from_config(config_file=str(self.kubeconfig))

    @cached_property
    def core(self) -> kubernetes.client.CoreV1Api:
        return kubernetes.client.CoreV1Api(self.api)

    @cached_property
    def apps(self) -> kubernetes.client.AppsV1Api:
        return kubernetes.client.AppsV1Api(self.api)

    @cached_property
    def custom(self) -> kubernetes.client.CustomObjectsApi:
        return kubernetes.client.CustomObjectsApi(self.api)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a program that should talk to this cluster and to no other."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """The output of one kubectl call; raises ClusterError with what kubectl said."""
        return self._run(self.binaries.kubectl, arguments, stdin)

    def helm(self, *arguments: str, stdin: str | None = None) -> str:
        """The output of one helm call; raises ClusterError with what helm said."""
        return self._run(self.binaries.helm, arguments, stdin)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Server-side apply of whole manifests, of any kind the cluster knows."""
        listing = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            f"--field-manager={FIELD_MANAGER}",
            "-f",
            "-",
            stdin=json.dumps(self.api.sanitize_for_serialization(listing)),
        )

    def service_account_kubeconfig(self, namespace: str, name: str, path: Path) -> Path:
        """Writes a kubeconfig that speaks as a service account, with a token of one day; returns ``path``."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration=24h").strip()
        view = self.kubectl("config", "view", "--raw", "--flatten", "--minify", "--output=json")
        document = json.loads(view)
        document["users"] = [{"name": user["name"], "user": {"token": token}} for user in document["users"]]
        document["contexts"][0]["context"]["namespace"] = namespace
        write_private(path, json.dumps(document))  # JSON is YAML
        return path

    def check(self) -> None:
        """Raises StartError when a component of our control plane has ended."""
        if self.state is not None:
            control_plane.check(self.state)

    def wait(
        self, what: str | Callable[[], str], poll: Callable[[], T | None], seconds: float = WAIT_SECONDS
    ) -> T:
        """The first value of ``poll`` that is true.

        When time runs out, raises ClusterError saying ``what`` did not come true; a component that has
        ended meanwhile is reported instead, as the likelier cause.
        """
        deadline = time.monotonic() + seconds
        while not (value := poll()):
            if time.monotonic() > deadline:
                self.check()
                missing = what if isinstance(what, str) else what()
                raise ClusterError(f"not within {seconds:.0f} s: {missing}")
            time.sleep(POLL_SECONDS)
        return value

    def _run(self, program: Path, arguments: Sequence[str], stdin: str | None) -> str:
        result = subprocess.run(
            [program, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            command = " ".join((program.name, *arguments))
            raise ClusterError(f"{command} ended with {result.returncode}:\n{result.stderr.strip()}")
        return result.stdout
