"""`wattkeeper tax measure --node` on a real control plane: Job, scheduling, pod security, log, result."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.access import Cluster
from tests.e2e.stub_kubelet import StubKubelet
from tests.stub_driver.build import FIRST_UUID, StubNode, build
from wattkeeper.cli.tax_measure import EXIT_FAILED, EXIT_NOT_ALONE
from wattkeeper.core.power_samples import RestState
from wattkeeper.kube.manifests.tax_job import job_name
from wattkeeper.kube.manifests.tax_result import SELECTOR, tax_results

SHORT = ("--levels=0,6,12,21", "--image=example.test/wattkeeper:1")


class Site:
    """A test's namespace and GPU node; the node's name has dots, as those of some clouds have."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, stack: ExitStack) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.node = f"gpu-{secrets.token_hex(4)}.example.test"
        self._folder, self._stack = folder, stack

    def start(self, *faults: str, gpus: int = 1) -> None:
        """Create the node, with these faults of its GPU's driver."""
        stub = StubNode(build(), self._folder, faults=faults)
        kubelet = StubKubelet(self.cluster, self.node, stub, self._folder)
        kubelet.register(gpus)
        self._stack.enter_context(kubelet.running())

    def measure(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "wattkeeper",
            "tax",
            "measure",
            f"--node={self.node}",
            *SHORT,
            *options,
        ]
        command += [f"--namespace={self.namespace}", f"--kubeconfig={self.cluster.kubeconfig}"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @property
    def results(self) -> list[dict[str, Any]]:
        found = self.cluster.core.list_namespaced_config_map(self.namespace, label_selector=SELECTOR)
        return [self.cluster.api.sanitize_for_serialization(each) for each in found.items]

    @property
    def jobs(self) -> list[str]:
        names = self.cluster.kubectl("get", "jobs", f"--namespace={self.namespace}", "--output=name")
        return [line.removeprefix("job.batch/") for line in names.split()]


@pytest.fixture
def site(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(cluster, namespace, tmp_path, stack)


def test_a_gpu_of_a_cordoned_node_is_measured_and_its_figures_kept(site: Site) -> None:
    # The strictest pod security there is: what it refuses, no pod of the Job would come of.
    site.cluster.kubectl(
        "label", "namespace", site.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    site.start()
    site.cluster.kubectl("cordon", site.node)
    done = site.measure()
    assert done.returncode == 0, done.stderr
    assert "+40.0 W" in done.stdout and "phase4_21gb" in done.stderr
    kept, problems = tax_results(site.results)
    assert problems == [] and list(kept) == [FIRST_UUID]
    moments = kept[FIRST_UUID].moments
    tax = moments[RestState.CONTEXT].mean_watts - moments[RestState.BARE].mean_watts
    assert tax == pytest.approx(40.0, abs=0.1)
    assert min(each.weight for each in moments.values()) >= 6  # enough to count as measured
    # Called again, it finds what it did; nothing is measured twice.
    again = site.measure("--json")
    assert again.returncode == 0 and f"Job {job_name(site.node)} has measured already" in again.stderr
    assert len(site.cluster.core.list_namespaced_pod(site.namespace).items) == 1


def test_work_on_the_gpu_fails_the_job_and_keeps_nothing(site: Site, tmp_path: Path) -> None:
    site.start("intruder@30")
    done = site.measure(f"--record={tmp_path}/evidence.jsonl")
    assert done.returncode == EXIT_NOT_ALONE, done.stderr
    assert f"GPU {FIRST_UUID} isn't ours alone: process 4242 holds it" in done.stderr
    assert site.results == []
    assert len((tmp_path / "evidence.jsonl").read_text().splitlines()) == 29


def test_a_node_without_a_free_gpu(site: Site) -> None:
    site.start(gpus=0)
    done = site.measure("--start-timeout=6s")
    assert done.returncode == EXIT_FAILED
    assert "Insufficient nvidia.com/gpu" in done.stderr and f"free a GPU of {site.node}" in done.stderr
    site.cluster.wait("the Job is gone", lambda: job_name(site.node) not in site.jobs)
    assert site.results == []
