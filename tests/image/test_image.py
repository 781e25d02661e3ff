"""The image as it is shipped: built by the project's Dockerfile, run as the chart runs it."""

import json
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from tests.cluster.paths import REPOSITORY
from tests.image.conftest import Image

pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]

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


def test_every_module_imports_and_none_of_them_writes(image: Image) -> None:
    """Nothing that the product imports was trimmed away, and a read-only root is enough to import it."""
    program = (
        "import importlib, json, pkgutil, sys, wattkeeper, wattkeeper_predictor\n"
        "names = [m.name for p in (wattkeeper, wattkeeper_predictor)"
        " for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.') if not m.name.endswith('__main__')]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(json.dumps(names))"
    )
    names = json.loads(python(image, program).splitlines()[-1])
    assert {"wattkeeper.core.fleet", "wattkeeper_predictor.memory"} <= set(names)


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
    plain, compressed = image.engine.saved_bytes(image.tag)
    base_plain, base_compressed = image.engine.saved_bytes(image.base)
    with capsys.disabled():
        print(
            f"\nimage: {plain / 1e6:.0f} MB, {compressed / 1e6:.0f} MB compressed; of these the base "
            f"{base_plain / 1e6:.0f} and {base_compressed / 1e6:.0f} MB; built in {image.build_seconds:.0f} s"
        )
    assert compressed < MAX_COMPRESSED_BYTES


def _placements(output: str) -> dict[str, Any]:
    """Status by name, without the moments at which it was decided."""
    statuses = {item["metadata"]["name"]: item["status"] for item in json.loads(output)["items"]}
    for status in statuses.values():
        for condition in status["conditions"]:
            del condition["lastTransitionTime"]
    return statuses
