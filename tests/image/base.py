"""The base image of the tests.

Users get the Dockerfile's default base from a registry. Tests must not depend on one: they import a
Debian 12 with Python, made by debootstrap from Debian's own signed packages, unless
``WATTKEEPER_TEST_BASE_IMAGE`` names an image.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.cluster.locks import exclusive
from tests.cluster.paths import cache_directory
from tests.image.engine import Engine, EngineError

SUITE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-venv"
# What a published slim image leaves out too; of the documentation, licences stay.
LEFT_OUT = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
)


def base_image(engine: Engine) -> str:
    """The name of an image with Python 3.11 in ``engine``; made, and kept in the user's cache, if need be."""
    named = os.environ.get("WATTKEEPER_TEST_BASE_IMAGE")
    if named:
        return named
    key = hashlib.sha256("\n".join([SUITE, PACKAGES, *LEFT_OUT]).encode()).hexdigest()[:12]
    tag = f"wattkeeper-test-base:{key}"
    if engine.run("image", "inspect", tag, check=False).returncode != 0:
        archive = cache_directory() / "image" / f"base-{key}.tar"
        with exclusive(archive.with_suffix(".lock"), print):
            if not archive.exists():
                _bootstrap(archive)
        engine.run("import", str(archive), tag)
    return tag


def _bootstrap(archive: Path) -> None:
    """Writes a root file system to ``archive``, whole or not at all."""
    debootstrap = shutil.which("debootstrap", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if debootstrap is None:
        raise EngineError(
            "debootstrap isn't installed: run scripts/system-packages image (as root, on Debian)"
        )
    print(f"Making the base image from Debian {SUITE}'s packages (about a minute, once)")
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="base-") as name:
        root, log = Path(name) / "root", Path(name) / "log"
        with log.open("wb") as output:
            made = subprocess.run(
                [debootstrap, "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root)],
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if made.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise EngineError(f"debootstrap ended with {made.returncode}. The end of its output:\n{tail}")
        excluded = [f"--exclude=./{path}/*" for path in LEFT_OUT]
        partial = Path(name) / "base.tar"
        subprocess.run(["tar", "-C", str(root), *excluded, "-cf", str(partial), "."], check=True)
        partial.rename(archive)
