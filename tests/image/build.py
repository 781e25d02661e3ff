"""Building the project's image with the Dockerfile's own options for proxies and mirrors."""

import configparser
import os
import ssl
import tempfile
from pathlib import Path

from tests.cluster.paths import REPOSITORY
from tests.image.engine import Engine

# pip's settings that say where packages come from; the rest of a developer's configuration stays at home.
SOURCES = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")


def build_image(engine: Engine, tag: str, base: str) -> str:
    """Builds ``tag`` on ``base`` with this machine's package index and authorities; gives the log."""
    with tempfile.TemporaryDirectory(prefix="wk-build-") as name:
        pip_conf = Path(name) / "pip.conf"
        pip_conf.write_text(_pip_configuration())
        arguments = [
            "build",
            "--progress=plain",
            "--network=host",
            f"--tag={tag}",
            f"--build-arg=BASE_IMAGE={base}",
            f"--secret=id=pip.conf,src={pip_conf}",
        ]
        if authorities := _authorities():
            arguments.append(f"--secret=id=ca.pem,src={authorities}")
        return engine.run(*arguments, str(REPOSITORY)).stderr


def _authorities() -> str | None:
    """The bundle that pip trusts on this machine, or the system's."""
    candidates = (
        os.environ.get("PIP_CERT"),
        os.environ.get("SSL_CERT_FILE"),
        ssl.get_default_verify_paths().cafile,
    )
    return next((path for path in candidates if path and Path(path).is_file()), None)


def _pip_configuration() -> str:
    """A pip.conf of this machine's package sources; the environment wins over the files, as in pip."""
    values: dict[str, str] = {}
    for path in (
        "/etc/pip.conf",
        "~/.pip/pip.conf",
        "~/.config/pip/pip.conf",
        os.environ.get("PIP_CONFIG_FILE", ""),
    ):
        parser = configparser.RawConfigParser()
        parser.read(Path(path).expanduser() if path else [])
        for section in ("global", "install"):
            if parser.has_section(section):
                values.update({key: value for key, value in parser.items(section) if key in SOURCES})
    for key in SOURCES:
        if from_environment := os.environ.get(f"PIP_{key.upper().replace('-', '_')}"):
            values[key] = from_environment
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
