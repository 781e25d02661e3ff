"""The image as it is shipped: built by the project's Dockerfile, run as the chart runs it."""

import json
import secrets
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fixtures import ClusterFactory
from tests.cluster.paths import REPOSITORY
from tests.cluster.ports import reserve
from tests.e2e.chart import SYSTEM, install, operator_container
from tests.image.conftest import HARDENED, Image

pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]

# Libraries that only plots and comparisons on a developer's machine need, imported where they are used.
OPTIONAL = {"matplotlib", "sklearn"}
MAX_COMPRESSED_BYTES = 200e6
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def python(image: Image, program: str, *options: str) -> str:
    return image.run("-c", program, options=("--entrypoint=/opt/wattkeeper/bin/python", *options))


def test_help_is_what_it_says_first(image: Image) -> None:
    output = image.run("--help")
    assert "plan" in output
    assert "operator" in output


def test_plans_as_it_does_outside(image: Image) -> None:
    """Without network, on a read-only root, as a user without a name: the same, to the last digit."""
    examples = REPOSITORY / "examples"
    plan = ["plan", "-f", "{0}/llmdeployments.yaml", "--fleet", "{0}/fleet.yaml", "-o", "json"]
    inside = image.run(
        *(argument.format("/examples") for argument in plan), options=(f"--volume={examples}:/examples:ro",)
    )
    command = [sys.executable, "-m", "wattkeeper", *(argument.format(examples) for argument in plan)]
    outside = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert _placements(inside) == _placements(outside)
    pools = {name: status["pool"] for name, status in _placements(inside).items()}
    assert pools == {"summarizer": "l4", "chat": "a30", "agent": "h100-nvl"}


def test_the_operator_leads_from_the_image_and_ends_when_told(
    image: Image, cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """The chart's container by hand: its command, environment and ServiceAccount, hardened as in the pod."""
    cluster = cluster_factory()
    install(cluster)
    arguments, environment, account = operator_container(cluster)
    kubeconfig = cluster.service_account_kubeconfig(SYSTEM, account, tmp_path / "kubeconfig")
    kubeconfig.chmod(0o644)  # the image's user isn't this one
    (port,) = reserve(1)
    environment |= {"KUBECONFIG": "/kubeconfig", "WATTKEEPER_LISTEN_PORT": str(port)}
    hardened = [option for option in HARDENED if not option.startswith("--network")]
    options = [f"--env={name}={value}" for name, value in environment.items()]
    options += ["--network=host", f"--volume={kubeconfig}:/kubeconfig:ro"]
    name = f"wattkeeper-{secrets.token_hex(4)}"
    began = time.monotonic()
    image.engine.run("run", "--detach", f"--name={name}", *hardened, *options, image.tag, *arguments)
    try:

        def leads() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    return b"wattkeeper_leader 1.0" in answer.read()
            except OSError:
                return False

        def log() -> str:
            result = image.engine.run("logs", name)
            return f"the operator leads; it said:\n{result.stdout}{result.stderr}"

        cluster.wait(log, leads)
        print(f"\nthe operator leads {time.monotonic() - began:.1f} s after its container was started")
        image.engine.run("stop", "--time=30", name)
        state = json.loads(image.engine.run("inspect", "--format={{json .State}}", name).stdout)
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False), log()
    finally:
        image.engine.run("rm", "--force", name)


def test_every_module_imports_and_none_of_them_writes(image: Image) -> None:
    """Nothing that the product imports was trimmed away, and a read-only root is enough to import it."""
    program = (
        "import importlib, json, pkgutil, sys, wattkeeper, wattkeeper_predictor\n"
        "names = [m.name for p in (wattkeeper, wattkeeper_predictor)"
        " for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.') if not m.name.endswith('__main__')]\n"
        "missing = {}\n"
        "for name in names:\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error: missing[name] = error.name\n"
        "print(json.dumps([names, missing]))"
    )
    names, missing = json.loads(python(image, program).splitlines()[-1])
    assert {"wattkeeper.core.fleet", "wattkeeper_predictor.memory"} <= set(names)
    assert {name: library for name, library in missing.items() if library not in OPTIONAL} == {}


def test_the_predictor_artifacts_are_inside(image: Image) -> None:
    program = (
        "import json; from importlib.resources import files\n"
        "folder = files('wattkeeper_predictor').joinpath('artifacts')\n"
        "print(json.dumps(sorted(path.name for path in folder.iterdir())))"
    )
    assert "wattgpu" in json.loads(python(image, program))


def test_runs_as_a_numbered_user_who_owns_nothing(image: Image) -> None:
    assert image.inspect()["Config"]["User"] == "65532:65532"
    program = (
        "import os, json\n"
        "writable = [os.path.join(d, n) for d, _, ns in os.walk('/opt') for n in [*ns, '.']"
        " if os.access(os.path.join(d, n), os.W_OK) and not os.path.islink(os.path.join(d, n))]\n"
        "print(json.dumps([os.getuid(), os.getgid(), writable]))"
    )
    # Without --read-only, so that only ownership and modes protect the files.
    result = image.engine.run(
        "run", "--rm", "--network=none", "--entrypoint=/opt/wattkeeper/bin/python", image.tag, "-c", program
    )
    assert json.loads(result.stdout) == [65532, 65532, []]


def test_the_root_file_system_is_read_only_when_asked(image: Image) -> None:
    program = (
        "import json\n"
        "def can_write(path):\n"
        "    try: open(path, 'w').close(); return True\n"
        "    except OSError as error: return error.strerror\n"
        "print(json.dumps([can_write('/opt/x'), can_write('/tmp/x')]))"
    )
    assert json.loads(python(image, program)) == ["Read-only file system", True]


def test_configuration_and_labels(image: Image) -> None:
    configuration = image.inspect()["Config"]
    labels = configuration["Labels"]
    assert configuration["Entrypoint"] == ["wattkeeper"]
    assert not configuration["Cmd"]
    assert labels["org.opencontainers.image.title"] == PROJECT["name"]
    assert labels["org.opencontainers.image.version"] == PROJECT["version"]
    assert labels["org.opencontainers.image.licenses"] == PROJECT["license"]
    assert labels["org.opencontainers.image.base.name"] == image.base


def test_holds_neither_installer_nor_secrets(image: Image) -> None:
    program = (
        "import importlib.util, json, os\n"
        "places = ('/run/secrets', '/src', '/wheels', '/opt/build', '/etc/pip.conf')\n"
        "print(json.dumps([importlib.util.find_spec('pip') is not None,"
        " [place for place in places if os.path.exists(place)],"
        " sorted(n for n in os.listdir('/opt/wattkeeper/bin') if not n.startswith('python'))]))"
    )
    pip_found, leftovers, commands = json.loads(python(image, program))
    assert not pip_found
    assert leftovers == []
    assert commands == ["wattkeeper", "wattkeeper-predictor"]
    history = image.engine.run("history", "--no-trunc", image.tag).stdout
    assert "ca-certificates" not in history


def test_size(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    layers = image.engine.layers(image.tag)
    compressed = sum(size for _, size in layers)
    with capsys.disabled():
        parts = " + ".join(f"{plain / 1e6:.0f} ({size / 1e6:.1f})" for plain, size in layers)
        print(
            f"\nimage: {compressed / 1e6:.0f} MB compressed; its layers, the base first, in MB (compressed): "
            f"{parts}; built in {image.build_seconds:.0f} s"
        )
    assert compressed < MAX_COMPRESSED_BYTES


def _placements(output: str) -> dict[str, Any]:
    """Status by name, without the moments at which it was decided."""
    statuses = {item["metadata"]["name"]: item["status"] for item in json.loads(output)["items"]}
    for status in statuses.values():
        for condition in status["conditions"]:
            del condition["lastTransitionTime"]
    return statuses
