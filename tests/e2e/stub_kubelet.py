"""A GPU node whose kubelet the test plays: it runs a pod's command over stub drivers, and serves its log.

The API server, the scheduler and the Job controller are real: what is played is only what a machine with a
GPU and a container runtime would add.
"""

from __future__ import annotations

import datetime
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.cluster.access import Cluster
from tests.cluster.certificates import Authority, write_private
from tests.stub_driver.build import StubNode

ADDRESS = "127.0.0.1"
CONTAINER = "measure"


class StubKubelet:
    """One node, `name`; pods bound to it are run, one after the other."""

    def __init__(self, cluster: Cluster, name: str, stub: StubNode, folder: Path) -> None:
        self.cluster = cluster
        self.name = name
        self._stub = stub
        self._folder = folder
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer((ADDRESS, 0), self._handler())
        self._server.socket = self._tls().wrap_socket(self._server.socket, server_side=True)

    def register(self, gpus: int = 1) -> None:
        """Create the node, ready."""
        core = self.cluster.core
        core.create_node({"metadata": {"name": self.name}, "spec": {}})
        resources = {"cpu": "8", "memory": "64Gi", "pods": "10", "nvidia.com/gpu": str(gpus)}
        status = {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Played", "message": "a test"}],
        }
        core.patch_node_status(self.name, {"status": status})

    @contextmanager
    def running(self) -> Iterator[StubKubelet]:
        """While it runs, pods are run."""
        threads = [
            threading.Thread(target=self._server.serve_forever, daemon=True),
            threading.Thread(target=self._work, daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._server.shutdown()
            for thread in threads:
                thread.join()
            self.cluster.core.delete_node(self.name)

    def _work(self) -> None:
        done = set()
        while not self._ended.wait(0.2):
            pods = self.cluster.core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={self.name}")
            for pod in pods.items:
                if pod.metadata.deletion_timestamp:
                    self.cluster.core.delete_namespaced_pod(
                        pod.metadata.name, pod.metadata.namespace, grace_period_seconds=0
                    )
                elif pod.metadata.uid not in done:
                    done.add(pod.metadata.uid)
                    self._run(pod)

    def _run(self, pod: Any) -> None:
        container = pod.spec.containers[0]
        assert container.args[:3] == ["tax", "measure", "--local"]
        self._tell(pod, "Running", {"running": {}})
        with self._log(pod.metadata.namespace, pod.metadata.name).open("w") as log:
            environment = {**self._stub.environment, **{each.name: each.value for each in container.env}}
            command = [*self._stub.python_command("-m", "tests.stub_driver.measure"), *container.args[3:]]
            code = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False).returncode
        text = self._log(pod.metadata.namespace, pod.metadata.name).read_text()
        terminated = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        if code != 0:  # terminationMessagePolicy: FallbackToLogsOnError
            terminated["message"] = text[-2048:]
        self._tell(pod, "Succeeded" if code == 0 else "Failed", {"terminated": terminated})

    def _tell(self, pod: Any, phase: str, state: dict[str, Any]) -> None:
        status = {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": CONTAINER,
                    "image": "stub",
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        self.cluster.core.patch_namespaced_pod_status(
            pod.metadata.name, pod.metadata.namespace, {"status": status}
        )

    def _log(self, namespace: str, pod: str) -> Path:
        return self._folder / f"{namespace}-{pod}.log"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.split("?")[0].strip("/").split("/")
                found = path[0] == "containerLogs" and kubelet._log(path[1], path[2]).exists()
                body = kubelet._log(path[1], path[2]).read_bytes() if found else b"no such log"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        return Handler

    def _tls(self) -> ssl.SSLContext:
        pair = Authority("stub-kubelet", datetime.datetime.now(datetime.UTC)).server(
            "stub-kubelet", [ADDRESS]
        )
        file = self._folder / "kubelet.pem"
        write_private(file, pair.key + pair.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context
