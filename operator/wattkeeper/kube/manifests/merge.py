"""Merging a user's PodTemplateSpec over the rendered one, lists by their keys.

As a strategic merge does it: maps are merged, lists whose entries have a key (containers, env, ports,
volumes …) are merged by it, other lists are replaced, null takes a value away. Tolerations and image pull
secrets, which only add up, are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattkeeper.api.errors import FieldError, SpecErrors, join_path, shorten

#: Fields whose lists are merged by the value of a key: the API's own patchMergeKey in PodTemplateSpec.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
_JOINED = frozenset({"tolerations"})
#: Maps of free keys: whatever they hold, it isn't a field of the list above.
_FREE_MAPS = frozenset({"labels", "annotations", "nodeSelector", "limits", "requests", "matchLabels"})

FIELD = "spec.server.template"


def merge_template(rendered: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """`template` over `rendered`; neither is changed. Raises SpecErrors naming the field."""
    return _merge_maps(rendered, template, FIELD)


def _merge_maps(base: Mapping[str, Any], over: Mapping[str, Any], path: str) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        where = join_path(path, key)
        if value is None:
            merged.pop(key, None)
        elif key in _FREE_MAPS and isinstance(value, Mapping):
            free = {**(base.get(key) or {}), **value}
            merged[key] = {name: each for name, each in free.items() if each is not None}
        else:
            merged[key] = _merged(key, base.get(key), value, where)
    return merged


def _merged(key: str, base: Any, value: Any, path: str) -> Any:
    if isinstance(base, Mapping) and not isinstance(value, Mapping):
        raise _wrong(path, "a map", value)
    if isinstance(value, Mapping) and (base is None or isinstance(base, Mapping)):
        return _merge_maps(base or {}, value, path)
    if key in _JOINED and isinstance(value, list):
        return [*(base or []), *(each for each in value if each not in (base or []))]
    if isinstance(value, list) and key in _MERGE_KEYS:
        return _merge_lists(base or [], value, _MERGE_KEYS[key], path)
    if isinstance(base, list) and not isinstance(value, list):
        raise _wrong(path, "a list", value)
    return value


def _merge_lists(base: Sequence[Any], over: Sequence[Any], key: str, path: str) -> list[Any]:
    merged = {_key_of(entry, key, path): entry for entry in base}
    for position, entry in enumerate(over):
        where = join_path(path, position)
        identity = _key_of(entry, key, where)
        merged[identity] = _merge_maps(merged.get(identity, {}), entry, where)
    return list(merged.values())


def _key_of(entry: Any, key: str, path: str) -> Any:
    if not isinstance(entry, Mapping):
        raise _wrong(path, "a map", entry)
    value = entry.get(key)
    if not isinstance(value, str | int):
        message = f"must be given: entries are merged by it; got {shorten(value)}"
        raise SpecErrors([FieldError(join_path(path, key), message)], reason="InvalidTemplate")
    return value


def _wrong(path: str, wanted: str, value: Any) -> SpecErrors:
    return SpecErrors([FieldError(path, f"must be {wanted}; got {shorten(value)}")], reason="InvalidTemplate")
