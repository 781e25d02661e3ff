"""Builds the programs of the local cluster from pinned Go modules, once, and keeps them in the cache.

Each folder of tools/go is a module that pins one tool. Its programs go to
``${XDG_CACHE_HOME:-~/.cache}/wattkeeper/bin/<tool>-<digest>/``, where the digest covers go.mod, go.sum and
the build flags: a changed pin builds anew, anything else is found in the cache without starting Go.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.cluster import gotoolchain
from tests.cluster.errors import BuildError
from tests.cluster.gobuild import GoBuild
from tests.cluster.locks import exclusive
from tests.cluster.paths import GO_MODULES, cache_directory

# One setting for every program: a cgo build shares almost nothing in Go's cache with one without, and
# only the latter runs in an image made FROM scratch.
CGO_ENABLED = "0"
BUILD_FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")


@dataclass(frozen=True)
class Tool:
    """One module of tools/go.

    ``stamps`` are linker variables that name the version ({version} v1.36.3, {minor} 36); without them
    Kubernetes clients see v0.0.0. ``data`` maps a folder of the module to one beside the programs.
    """

    name: str
    module: str
    programs: Mapping[str, str]
    stamps: Mapping[str, str]
    data: Mapping[str, str]


KUBERNETES = Tool(
    name="kubernetes",
    module="k8s.io/kubernetes",
    programs={
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-proxy",
            "kube-scheduler",
            "kubeadm",
            "kubectl",
            "kubelet",
        )
    },
    stamps={
        "k8s.io/component-base/version.gitVersion": "{version}",
        "k8s.io/component-base/version.gitMajor": "{major}",
        "k8s.io/component-base/version.gitMinor": "{minor}",
    },
    data={},
)
ETCD = Tool("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"}, {}, {})
KWOK = Tool(
    name="kwok",
    module="sigs.k8s.io/kwok",
    programs={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    stamps={},
    # The program does nothing without stages, and its module carries the maintained ones.
    data={"kustomize/stage": "stages"},
)
HELM = Tool(
    name="helm",
    module="helm.sh/helm/v3",
    programs={"helm": "helm.sh/helm/v3/cmd/helm"},
    stamps={
        "helm.sh/helm/v3/internal/version.version": "{version}",
        # What `helm template` and `helm lint` take as the cluster's version: without it, 1.20.
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": "36",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": "36",
    },
    data={},
)
TOOLS = (KUBERNETES, ETCD, KWOK, HELM)

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
DEFAULT = (*CONTROL_PLANE, "kubectl", "helm")
ALL = tuple(sorted(program for tool in TOOLS for program in tool.programs))


def tool_of(program: str) -> Tool:
    """Raises BuildError for a program that no tool builds."""
    for tool in TOOLS:
        if program in tool.programs:
            return tool
    raise BuildError(f"No tool builds {program!r}; there are: {', '.join(ALL)}")


def pinned_version(tool: Tool, go_mod: str) -> str:
    """The version of the tool's module in the text of its go.mod, such as ``v1.36.3``."""
    match = re.search(rf"^(?:require )?\s*{re.escape(tool.module)} (v\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise BuildError(f"tools/go/{tool.name}/go.mod does not require {tool.module}")
    return match[1]


def linker_flags(tool: Tool, version: str) -> str:
    """The value of -ldflags: stripped, with the version stamped in."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = (
        f"-X {variable}={value.format(version=version, major=major, minor=minor)}"
        for variable, value in tool.stamps.items()
    )
    return " ".join(("-s -w", *stamps))


def digest(tool: Tool, go_mod: str, go_sum: str) -> str:
    """Twelve hexadecimal digits that change with whatever changes the programs."""
    flags = (*BUILD_FLAGS, f"CGO_ENABLED={CGO_ENABLED}", linker_flags(tool, pinned_version(tool, go_mod)))
    content = "\0".join((go_mod, go_sum, *flags, *tool.data.keys(), *tool.data.values()))
    return hashlib.sha256(content.encode()).hexdigest()[:12]


class Binaries:
    """The programs by name; what is not in the cache is built on first use."""

    def __init__(
        self,
        cache: Path | None = None,
        modules: Path = GO_MODULES,
        say: Callable[[str], None] = print,
    ) -> None:
        self.cache = cache or cache_directory()
        self.modules = modules
        self.say = say

    @cached_property
    def kubectl(self) -> Path:
        return self.path("kubectl")

    @cached_property
    def helm(self) -> Path:
        return self.path("helm")

    @cached_property
    def kwok_stages(self) -> Path:
        """The folder of kwok's stages: ``node/fast``, ``pod/general`` and so on."""
        return self.path("kwok").parent / "stages"

    def path(self, program: str) -> Path:
        """The path of one program, built if need be."""
        return self.ensure((program,))[program]

    def missing(self, programs: Iterable[str]) -> list[str]:
        """Those that would have to be built."""
        return [program for program in programs if not self._location(program).is_file()]

    def ensure(self, programs: Iterable[str] = DEFAULT) -> dict[str, Path]:
        """Builds what is missing, one Go run a tool; returns the path of each program.

        Raises BuildError with the end of Go's output and what to do.
        """
        programs = tuple(programs)
        missing = self.missing(programs)
        for tool in TOOLS:
            wanted = [program for program in missing if program in tool.programs]
            if wanted:
                self._build(tool, wanted)
        return {program: self._location(program) for program in programs}

    def _location(self, program: str) -> Path:
        return self._directory(tool_of(program)) / program

    def _directory(self, tool: Tool) -> Path:
        folder = self.modules / tool.name
        key = digest(tool, (folder / "go.mod").read_text(), (folder / "go.sum").read_text())
        return self.cache / "bin" / f"{tool.name}-{key}"

    def _build(self, tool: Tool, programs: list[str]) -> None:
        directory = self._directory(tool)
        with exclusive(directory.with_name(f"{directory.name}.lock"), self.say):
            programs = self.missing(programs)  # another process may have built them meanwhile
            if not programs:
                return
            go_mod = (self.modules / tool.name / "go.mod").read_text()
            build = GoBuild(
                go=gotoolchain.find_go(gotoolchain.required_version(go_mod), self.cache, self.say),
                module=self.modules / tool.name,
                flags=(
                    *BUILD_FLAGS,
                    *_jobs(),
                    f"-ldflags={linker_flags(tool, pinned_version(tool, go_mod))}",
                ),
                environment={"CGO_ENABLED": CGO_ENABLED},
                say=self.say,
            )
            directory.mkdir(parents=True, exist_ok=True)
            for abandoned in directory.glob(".building-*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            # Programs appear under their names only when whole: an interrupted build leaves none.
            with tempfile.TemporaryDirectory(prefix=".building-", dir=directory) as scratch:
                build.run({program: tool.programs[program] for program in programs}, Path(scratch))
                self._copy_data(tool, build.module_directory(tool.module), directory)
                for program in programs:
                    (Path(scratch) / program).replace(directory / program)

    @staticmethod
    def _copy_data(tool: Tool, module: Path, directory: Path) -> None:
        for source, target in tool.data.items():
            shutil.rmtree(directory / target, ignore_errors=True)
            # copyfile leaves the module cache's read-only bits behind.
            shutil.copytree(module / source, directory / target, copy_function=shutil.copyfile)
            for folder in (directory / target, *(directory / target).rglob("*/")):
                folder.chmod(0o755)


def _jobs() -> tuple[str, ...]:
    """``WATTKEEPER_BUILD_JOBS`` limits what Go compiles at once; by default it takes every core."""
    jobs = os.environ.get("WATTKEEPER_BUILD_JOBS", "")
    if not jobs:
        return ()
    if not jobs.isdigit() or int(jobs) == 0:
        raise BuildError(f"WATTKEEPER_BUILD_JOBS is {jobs!r}: give a whole number above 0, or leave it unset")
    return ("-p", jobs)
