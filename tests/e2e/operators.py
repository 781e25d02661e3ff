"""The operator as a real subprocess, and LLMDeployments for it.

Each operator serves one namespace, and its Lease lives there, so that tests don't meet. Times are short:
a Lease of 4 s, a sweep every 5 s.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException

from tests.cluster.access import Cluster

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LEASE = "wattkeeper-operator"
_API = ("wattkeeper.dev", "v1alpha1")

FAST = {
    "WATTKEEPER_LEASE_DURATION_SECONDS": "4",
    "WATTKEEPER_RENEW_DEADLINE_SECONDS": "3",
    "WATTKEEPER_RETRY_PERIOD_SECONDS": "1",
    "WATTKEEPER_SWEEP_INTERVAL_SECONDS": "5",
    "WATTKEEPER_SETTLE_SECONDS": "0.2",
    "WATTKEEPER_CAPACITY_SETTLING_SECONDS": "5",
    "WATTKEEPER_REPLICAS_CONFLICT_SECONDS": "5",
    "WATTKEEPER_LISTEN_PORT": "0",
    "WATTKEEPER_LISTEN_HOST": "127.0.0.1",
    "WATTKEEPER_LOG_LEVEL": "debug",
}


class Operator:
    """One operator process. `stop` ends it as Kubernetes does; `signal` sends it anything."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, name: str = "operator") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        self.log_path = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        leading: bool = True,
        until: Callable[[], bool] | None = None,
    ) -> "Operator":
        """Start the process; returns when it leads and knows the cluster, or merely answers, or `until`."""
        command = [sys.executable, "-m", "wattkeeper", "operator", "run"]
        command += ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        own = {"WATTKEEPER_LEASE_NAMESPACE": self.namespace, "WATTKEEPER_IDENTITY": self.name}
        with self.log_path.open("ab") as log:
            self._offset = log.tell()
            self.process = subprocess.Popen(
                command, env={**os.environ, **FAST, **own, **(environment or {})}, stdout=log, stderr=log
            )
        wanted = until or (self.leads if leading else self.answers)
        self.cluster.wait(lambda: f"{self.name} is up; it said:\n{self.tail()}", wanted)
        return self

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        """The exit status, once the process has ended."""
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} didn't end within {seconds:g} s:\n{self.tail()}") from None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        """What it has said since it was last started."""
        return self.log_path.read_bytes()[self._offset :].decode()

    def tail(self) -> str:
        return self.log()[-4000:]

    def get(self, path: str) -> str:
        """An answer of its HTTP endpoint. Raises OSError."""
        port = re.search(r"on port (\d+)", self.log())
        if port is None:
            raise ConnectionRefusedError("it doesn't listen yet")
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def answers(self) -> bool:
        assert self.running, f"{self.name} ended with {self.process and self.process.poll()}:\n{self.tail()}"
        try:
            return self.get("/readyz") == "ok\n"
        except OSError:
            return False

    def leads(self) -> bool:
        return self.answers() and self.metric("wattkeeper_leader") == 1

    def metric(self, name: str) -> float:
        """The sum of a metric's samples; 0 where there is none."""
        samples = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", self.get("/metrics"), re.M)
        return sum(map(float, samples))


class Models:
    """LLMDeployments of one namespace, and what became of them."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def create(self, name: str, sla: str | dict[str, Any] = "70ms", **spec: Any) -> dict[str, Any]:
        """Create one; keyword arguments are merged into its spec."""
        body = manifest(name, sla, **spec)
        return dict(
            self.cluster.custom.create_namespaced_custom_object(*_API, self.namespace, "llmdeployments", body)
        )

    def patch(self, name: str, spec: dict[str, Any]) -> None:
        self.cluster.custom.patch_namespaced_custom_object(
            *_API, self.namespace, "llmdeployments", name, {"spec": spec}
        )

    def delete(self, name: str) -> None:
        self.cluster.custom.delete_namespaced_custom_object(*_API, self.namespace, "llmdeployments", name)

    def get(self, name: str) -> dict[str, Any]:
        return dict(
            self.cluster.custom.get_namespaced_custom_object(*_API, self.namespace, "llmdeployments", name)
        )

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.get(name).get("status") or {})

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """The condition of this type, {} while there is none."""
        conditions = self.status(name).get("conditions") or []
        return next((dict(each) for each in conditions if each["type"] == kind), {})

    def wait_phase(self, name: str, *phases: str, seconds: float = 60) -> dict[str, Any]:
        """The status, once its phase is one of these and speaks of the newest spec."""

        def poll() -> dict[str, Any] | None:
            found = self.get(name)
            status = dict(found.get("status") or {})
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return status if current and status.get("phase") in phases else None

        def missing() -> str:
            return f"{name} is {' or '.join(phases)}; it is {json.dumps(self.status(name), indent=1)}"

        return self.cluster.wait(missing, poll, seconds)

    def wait_condition(
        self, name: str, kind: str, status: str, reason: str | None = None, seconds: float = 60
    ) -> dict[str, Any]:
        """The condition, once it has this status (and reason)."""

        def poll() -> dict[str, Any] | None:
            found = self.condition(name, kind)
            right = found.get("status") == status and reason in (None, found.get("reason"))
            return found if right else None

        def missing() -> str:
            found = json.dumps(self.status(name), indent=1)
            return f"{kind} of {name} is {status} {reason or ''}; it is {found}"

        return self.cluster.wait(missing, poll, seconds)

    def deployment(self, name: str) -> Any:
        """The child Deployment, None when there is none."""
        return _or_none(self.cluster.apps.read_namespaced_deployment, name, self.namespace)

    def service(self, name: str) -> Any:
        """The child Service, None when there is none."""
        return _or_none(self.cluster.core.read_namespaced_service, name, self.namespace)

    def pods(self, name: str) -> list[Any]:
        selector = f"wattkeeper.dev/llmdeployment={name}"
        listing = self.cluster.core.list_namespaced_pod(self.namespace, label_selector=selector)
        return [pod for pod in listing.items if pod.metadata.deletion_timestamp is None]

    def events(self, name: str) -> list[Any]:
        listing = self.cluster.core.list_namespaced_event(self.namespace)
        return [event for event in listing.items if event.involved_object.name == name]


def manifest(name: str, sla: str | dict[str, Any] = "70ms", **spec: Any) -> dict[str, Any]:
    """An LLMDeployment of Llama 3.1 8B at the paper's high load."""
    basis: dict[str, Any] = {
        "model": {"id": LLAMA},
        "workload": {"requestsPerSecond": "330m", "promptTokens": 256, "outputTokens": 256},
        "sla": {"interTokenLatency": sla} if isinstance(sla, str) else sla,
    }
    return {
        "apiVersion": "/".join(_API),
        "kind": "LLMDeployment",
        "metadata": {"name": name},
        "spec": {**basis, **spec},
    }


def _or_none(read: Any, name: str, namespace: str) -> Any:
    try:
        return read(name, namespace)
    except ApiException as error:
        if error.status == 404:
            return None
        raise
