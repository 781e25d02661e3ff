"""Builds the stubs once (cached by their sources) and gives tests processes that run over them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.paths import REPOSITORY, cache_directory

HERE = Path(__file__).parent
SOURCES = ("board.h", "nvml.c", "cuda.c")
LIBRARIES = {"nvml.c": "libnvidia-ml.so.1", "cuda.c": "libcuda.so.1"}
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC")
NO_COMPILER = (
    "the stub GPU driver needs a C compiler: install gcc and libc6-dev (scripts/system-packages base)"
)
STATE_BYTES = 65536

#: What a constructed board does: a step of 40 W, no slope worth the name.
CONSTRUCTED = HERE / "recording.jsonl"
FIRST_UUID = "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00"
SECOND_UUID = "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a01"


def build(*, old: bool = False) -> Path:
    """The folder with both libraries. Raises RuntimeError where there is no compiler."""
    digest = hashlib.sha256("\0".join((HERE / name).read_text() for name in SOURCES).encode()).hexdigest()
    target = cache_directory() / "stub-driver" / f"{digest[:16]}-{'old' if old else 'new'}"
    if target.is_dir():
        return target
    if (compiler := shutil.which("cc") or shutil.which("gcc")) is None:
        raise RuntimeError(NO_COMPILER)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=target.parent))
    for source, library in LIBRARIES.items():
        define = ("-DOLD_DRIVER",) if old else ()
        command = [compiler, *FLAGS, *define, "-o", str(made / library), str(HERE / source)]
        subprocess.run(command, check=True)
    try:
        made.rename(target)  # whoever comes second finds the folder there
    except OSError:
        shutil.rmtree(made)
    return target


def broken(folder: Path) -> Path:
    """A folder whose libraries can't be loaded: as where there is no driver, whatever the machine has."""
    for library in LIBRARIES.values():
        (folder / library).write_text("no library\n")
    return folder


@dataclass(frozen=True)
class StubNode:
    """A node with stub boards: their recording, and a folder for what they remember."""

    libraries: Path
    folder: Path
    recording: Path = CONSTRUCTED
    boards: int = 1
    faults: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        records = readings(self.recording)
        (self.folder / "rows").write_text("".join(f"{_row(record)}\n" for record in records))
        (self.folder / "state").write_bytes(bytes(STATE_BYTES))

    @property
    def environment(self) -> dict[str, str]:
        """For processes that should meet this driver and no other."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.libraries),
            "PYTHONPATH": str(REPOSITORY),
            "WATTKEEPER_STUB_ROWS": str(self.folder / "rows"),
            "WATTKEEPER_STUB_STATE": str(self.folder / "state"),
            "WATTKEEPER_STUB_CALLS": str(self.folder / "calls"),
            "WATTKEEPER_STUB_BOARDS": str(self.boards),
            "WATTKEEPER_STUB_NAME": str(readings(self.recording)[0]["gpu_name"]),
            "WATTKEEPER_STUB_FAULTS": ",".join(self.faults),
            **self.variables,
        }

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A Python process on this node, run to its end."""
        command = self.python_command(*arguments)
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A Python process on this node, left running."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.python_command(*arguments), env=self.environment, stdout=pipe, stderr=pipe, text=True
        )

    def python_command(self, *arguments: str) -> list[str]:
        return [sys.executable, *arguments]

    def calls(self) -> list[tuple[str, int, int]]:
        """What was taken and given back: call, board, bytes."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(call, int(board), int(size)) for call, board, size in map(str.split, lines)]


def readings(recording: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recording.read_text().splitlines()]


def _row(record: dict[str, Any]) -> str:
    bare = record["phase"] == "bare_idle"
    fields = (
        -1 if bare else round(1024 * record["target_vram_gb"]),
        round(1000 * record["power_w"]),
        round(record["sm_clock_mhz"]),
        round(record["mem_clock_mhz"]),
        round(record["gpu_temp_c"]),
        -1 if record["mem_temp_c"] is None else round(record["mem_temp_c"]),
        round(record["mem_used_mb"]),
        round(record["mem_free_mb"]),
        round(record["mem_total_mb"]),
        round(1000 * record["power_limit_w"]),
    )
    return " ".join(map(str, fields))
