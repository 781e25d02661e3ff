"""The builder with a stand-in for Go that records how it is called."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster import binaries
from tests.cluster.binaries import ETCD, HELM, KUBERNETES, KWOK, TOOLS, Binaries
from tests.cluster.errors import BuildError
from tests.cluster.gotoolchain import required_version
from tests.cluster.paths import GO_MODULES, REPOSITORY

GO_MOD = "module example.test/tools/etcd\n\ngo 1.26.0\n\nrequire go.etcd.io/etcd/server/v3 v3.6.16\n"
KWOK_MOD = "module example.test/tools/kwok\n\ngo 1.26.0\n\nrequire sigs.k8s.io/kwok v0.8.0\n"
KUBERNETES_MOD = "module example.test/tools/kubernetes\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.36.3\n"

FAKE_GO = """#!{python}
import os, pathlib, sys, time
calls = pathlib.Path({calls!r})
arguments = sys.argv[1:]
with calls.open("a") as log:
    log.write(" ".join(arguments) + f" GOFLAGS={{os.environ.get('GOFLAGS')}}\\n")
if arguments[:2] == ["env", "GOVERSION"]:
    print("go1.26.1")
elif arguments[0] == "list":
    print({source!r} if "-m" in arguments else "one/package")
elif pathlib.Path({fail!r}).exists():
    print("go: example.test/x@v1: dial tcp: no route to host", file=sys.stderr)
    sys.exit(1)
else:
    target = arguments[arguments.index("-o") + 1]
    packages = [a for a in arguments[arguments.index("-o") + 2:]]
    print("one/package", file=sys.stderr)
    for package in packages:
        whole = pathlib.Path(target)
        if target.endswith("/"):
            whole /= package.rsplit("/", 1)[-1]
        whole.write_text(package)
        whole.chmod(0o755)
"""


class Workshop:
    """A folder of modules, a cache and a recording go."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.modules, self.cache, self.fail = root / "modules", root / "cache", root / "fail"
        self.said: list[str] = []
        self._calls = root / "calls"
        for tool, text in (("etcd", GO_MOD), ("kwok", KWOK_MOD), ("kubernetes", KUBERNETES_MOD)):
            (self.modules / tool).mkdir(parents=True)
            (self.modules / tool / "go.mod").write_text(text)
            (self.modules / tool / "go.sum").write_text("sum\n")
        stage = root / "source" / "kustomize" / "stage" / "node" / "fast"
        stage.mkdir(parents=True)
        (stage / "a.yaml").write_text("kind: Stage\n")
        stage.chmod(0o555)  # as in Go's module cache
        program = root / "bin" / "go"
        program.parent.mkdir()
        program.write_text(
            FAKE_GO.format(
                python=sys.executable,
                calls=str(self._calls),
                source=str(root / "source"),
                fail=str(self.fail),
            )
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.setenv("GOFLAGS", "-mod=vendor")
        monkeypatch.delenv("WATTKEEPER_BUILD_JOBS", raising=False)

    def binaries(self) -> Binaries:
        return Binaries(self.cache, self.modules, self.said.append)

    def builds(self) -> list[str]:
        text = self._calls.read_text() if self._calls.exists() else ""
        return [line for line in text.splitlines() if line.startswith("build")]


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


def test_second_use_does_not_build(workshop: Workshop) -> None:
    first = workshop.binaries().path("etcd")
    assert first.read_text() == "go.etcd.io/etcd/server/v3"
    assert workshop.binaries().path("etcd") == first
    assert len(workshop.builds()) == 1


def test_programs_of_one_tool_are_built_together(workshop: Workshop) -> None:
    paths = workshop.binaries().ensure(("kube-apiserver", "etcd", "kubectl"))
    assert [path.name for path in paths.values()] == ["kube-apiserver", "etcd", "kubectl"]
    assert len(workshop.builds()) == 2
    workshop.binaries().ensure(("kubelet", "kubectl"))
    (latest,) = workshop.builds()[2:]
    assert "cmd/kubelet" in latest and "cmd/kubectl" not in latest


def test_changed_pin_builds_anew(workshop: Workshop) -> None:
    first = workshop.binaries().path("etcd")
    (workshop.modules / "etcd" / "go.sum").write_text("another sum\n")
    assert workshop.binaries().path("etcd") != first
    assert first.is_file()
    assert len(workshop.builds()) == 2


def test_two_at_once_build_once(workshop: Workshop) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: workshop.binaries().path("etcd"), range(4)))
    assert len(set(paths)) == 1
    assert len(workshop.builds()) == 1


def test_failure_says_what_go_said_and_leaves_nothing(workshop: Workshop) -> None:
    workshop.fail.touch()
    with pytest.raises(BuildError, match=r"no route to host(?s:.*)go env GOPROXY"):
        workshop.binaries().path("etcd")
    assert [path for path in workshop.cache.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
    workshop.fail.unlink()
    assert workshop.binaries().path("etcd").is_file()


def test_scratch_of_a_killed_build_is_removed(workshop: Workshop) -> None:
    directory = workshop.binaries().path("etcd").parent
    (directory / ".building-killed").mkdir()
    (directory / "etcd").unlink()
    workshop.binaries().path("etcd")
    assert sorted(path.name for path in directory.iterdir()) == ["etcd"]


def test_kwok_brings_its_stages(workshop: Workshop) -> None:
    stages = workshop.binaries().kwok_stages
    assert (stages / "node" / "fast" / "a.yaml").read_text() == "kind: Stage\n"
    (stages / "node" / "fast" / "b.yaml").touch()  # writable, unlike the source


def test_flags_of_the_build(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTKEEPER_BUILD_JOBS", "2")
    workshop.binaries().path("kubectl")
    (build,) = workshop.builds()
    assert "-trimpath -buildvcs=false -p 2 -ldflags=-s -w" in build
    assert "gitVersion=v1.36.3" in build and "gitMajor=1" in build and "gitMinor=36" in build
    assert build.endswith("GOFLAGS=")  # the user's -mod=vendor would break the build


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5"])
def test_bad_number_of_jobs_is_named(workshop: Workshop, monkeypatch: pytest.MonkeyPatch, jobs: str) -> None:
    monkeypatch.setenv("WATTKEEPER_BUILD_JOBS", jobs)
    with pytest.raises(BuildError, match=f"WATTKEEPER_BUILD_JOBS is '{jobs}'"):
        workshop.binaries().path("etcd")


def test_unknown_program_lists_the_known() -> None:
    with pytest.raises(BuildError, match=r"'kubeletd'; there are: .*kubelet"):
        Binaries().path("kubeletd")


@given(go_mod=st.text(max_size=20), go_sum=st.text(max_size=20))
def test_digest_tells_files_apart(go_mod: str, go_sum: str) -> None:
    base = binaries.digest(ETCD, GO_MOD, "")
    changed = binaries.digest(ETCD, GO_MOD + go_mod, go_sum)
    assert (changed == base) == (go_mod == "" and go_sum == "")


def test_digest_covers_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    before = binaries.digest(ETCD, GO_MOD, "")
    monkeypatch.setattr(binaries, "CGO_ENABLED", "1")
    assert binaries.digest(ETCD, GO_MOD, "") != before


def test_missing_requirement_is_named() -> None:
    with pytest.raises(BuildError, match=r"tools/go/kwok/go.mod does not require sigs\.k8s\.io/kwok"):
        binaries.pinned_version(KWOK, GO_MOD)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_committed_modules_are_complete(tool: binaries.Tool) -> None:
    folder = GO_MODULES / tool.name
    go_mod = (folder / "go.mod").read_text()
    version = binaries.pinned_version(tool, go_mod)
    assert f"{tool.module} {version} h1:" in (folder / "go.sum").read_text()
    assert required_version(go_mod) >= (1, 26, 0)
    imports = (folder / "tools.go").read_text()
    assert all(f'"{package}"' in imports for package in tool.programs.values())


def test_helm_assumes_the_version_of_our_cluster() -> None:
    version = binaries.pinned_version(KUBERNETES, (GO_MODULES / "kubernetes" / "go.mod").read_text())
    assert version.startswith("v1.")
    minor = version.split(".")[1]
    assert HELM.stamps["helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor"] == minor
    assert HELM.stamps["helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor"] == minor


def test_built_files_are_outside_the_tree() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "tools"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {Path(path).name for path in listed} == {"go.mod", "go.sum", "tools.go"}
