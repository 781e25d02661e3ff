"""How long a model server takes to start, from its weights: an upper estimate until it is measured.

A start fetches the weights (where no cache keeps them), reads them into the GPU, compiles and captures
graphs. The estimate only bounds how long a start may take before the kubelet gives up on it, so it errs
on the long side: a start that is cut off begins anew and never ends (kserve#3795).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Bytes a second from disk to GPU, by vLLM's `--load-format`. Run:ai's model streamer benchmarks (2024),
#: Llama-3-8B (15 GB) from a GP3 volume: 48.0 s with vLLM's safetensors loader, 14.3 s with the streamer.
LOADER_BYTES_PER_SECOND = {
    "safetensors": 0.33e9,
    "runai_streamer": 1.0e9,
}
_DEFAULT_LOADER = "safetensors"

#: 0.8 Gbit/s: a modest share of a node's link, towards a hub that is far away.
DOWNLOAD_BYTES_PER_SECOND = 100e6

#: Imports, CUDA context, torch.compile, CUDA graphs. The recorded start of Qwen2.5-7B on an H100 (seed 002's
#: data) took 30 s in all; compiling for a new GPU or model takes minutes.
ENGINE_START_SECONDS = 120.0

_MARGIN = 2.0
_LEAST_SECONDS = 600
_STEP_SECONDS = 60


def start_budget_seconds(weight_bytes: int, server_args: Sequence[str], *, cached: bool) -> int:
    """Longest time that a start may take (seconds, whole minutes). `cached`: the weights are on a volume."""
    rate = LOADER_BYTES_PER_SECOND[_loader(server_args)]
    # A cache is empty the first time, unless it is mounted read-only.
    download = 0.0 if cached else weight_bytes / DOWNLOAD_BYTES_PER_SECOND
    expected = download + weight_bytes / rate + ENGINE_START_SECONDS
    steps = math.ceil(max(_LEAST_SECONDS, expected * _MARGIN) / _STEP_SECONDS)
    return steps * _STEP_SECONDS


def _loader(server_args: Sequence[str]) -> str:
    """The loader that the arguments name, as far as its rate is known."""
    for position, argument in enumerate(server_args):
        flag, _, value = argument.partition("=")
        if flag.replace("_", "-") == "--load-format":
            value = value or next(iter(server_args[position + 1 : position + 2]), "")
            if value in LOADER_BYTES_PER_SECOND:
                return value
    return _DEFAULT_LOADER
