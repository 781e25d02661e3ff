"""A measured parking tax as a ConfigMap, from which the operator takes it into its pools' figures.

One ConfigMap a measured GPU, found by its label:

    data:
      GPU-5a5a…: '{"bare": [7, 71.78, 0.01, 345.0], "context": [14, 121.6, 0.2, 1980.0]}'
      study.json: the figures of the study, for people
    binaryData:
      recording.jsonl.gz: the readings themselves, for `wattkeeper tax analyze`

The value under the UUID is in the form in which the operator keeps the running figures of each GPU
(`core.power_samples.to_plain`). It is combined with those when read and never added to them, so a ConfigMap
may be read any number of times, replaced by a newer measurement, or deleted.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wattkeeper.core.power_samples import GpuPowerState, from_plain, to_plain
from wattkeeper.core.tax_measurement import combine
from wattkeeper.kube.manifests.labels import MANAGED_BY, MANAGER

LABEL = "wattkeeper.dev/parking-tax"
MEASURED = "measured"
#: What finds the ConfigMaps.
SELECTOR = f"{LABEL}={MEASURED}"
STUDY = "study.json"
RECORDING = "recording.jsonl.gz"
#: A ConfigMap holds 1 MiB; base64 takes a third more than the bytes.
_MOST_RECORDING_BYTES = 700_000
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{8,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxResult:
    """One GPU's measurement. `study` are its figures as JSON values, `recording` its lines."""

    uuid: str
    node: str
    state: GpuPowerState
    study: Mapping[str, Any]
    recording: str
    unboosted: bool = False


def tax_result(result: TaxResult, namespace: str) -> dict[str, Any]:
    """The ConfigMap. Raises ValueError for what isn't a whole GPU's UUID, and for too short a measurement."""
    if _UUID.fullmatch(result.uuid) is None:
        raise ValueError(
            f"{result.uuid!r:.60} isn't the UUID of a GPU, such as GPU-5a5a5a5a-…: nothing to keep"
        )
    if not result.state.moments:
        raise ValueError("the measurement is too short to be kept: it fills no batch of five minutes")
    ending = "-unboosted" if result.unboosted else ""
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"wattkeeper-tax-{result.uuid.lower()}{ending}",
            "namespace": namespace,
            "labels": {MANAGED_BY: MANAGER, LABEL: MEASURED},
            "annotations": {"wattkeeper.dev/node": result.node},
        },
        "data": {
            result.uuid: json.dumps(to_plain(result.state)),
            STUDY: json.dumps(result.study, indent=2),
        },
    }
    packed = gzip.compress(result.recording.encode(), mtime=0)
    if len(packed) <= _MOST_RECORDING_BYTES:
        manifest["binaryData"] = {RECORDING: base64.b64encode(packed).decode()}
    return manifest


def tax_results(config_maps: Iterable[Mapping[str, Any]]) -> tuple[dict[str, GpuPowerState], list[str]]:
    """The measured figures by UUID, and what couldn't be read, for people.

    A GPU measured with and without CUDA_DISABLE_PERF_BOOST has two ConfigMaps: its bare batches add up.
    """
    states: dict[str, GpuPowerState] = {}
    problems: list[str] = []
    for config_map in config_maps:
        metadata = config_map.get("metadata") or {}
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        for uuid, text in (config_map.get("data") or {}).items():
            if _UUID.fullmatch(uuid) is None:
                continue
            state = _state(text)
            if state is None:
                problems.append(
                    f"ConfigMap {name}: data.{uuid} holds no figures: measure again, or delete it"
                )
                continue
            states[uuid] = combine(states[uuid], state) if uuid in states else state
    return states, problems


def _state(text: object) -> GpuPowerState | None:
    try:
        plain = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    state = from_plain(plain) if isinstance(plain, Mapping) else None
    return state if state is not None and state.moments else None
