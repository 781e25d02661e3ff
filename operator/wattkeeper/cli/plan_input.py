"""What `wattkeeper plan` decides about, from its files: LLMDeployments, and the fleet they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wattkeeper.api.convert import (
    ParsedDeployment,
    config_reference,
    deployment_from,
    pool_from,
    status_from,
)
from wattkeeper.api.errors import SpecErrors
from wattkeeper.api.names import GPU_NODE_POOL, LLM_DEPLOYMENT
from wattkeeper.api.status import recorded_placement
from wattkeeper.cli.manifest_files import STDIN, BadInputError, InputError, Manifest, read_manifests
from wattkeeper.core.fleet import Assignment, Fleet
from wattkeeper.kube.nodes import ManifestError, bound_replicas, fleet_of, gpu_node, gpus_requested

_DEPLOYMENT_KINDS = (LLM_DEPLOYMENT, "ConfigMap")
_FLEET_KINDS = ("Node", "Pod", GPU_NODE_POOL, *_DEPLOYMENT_KINDS)

Key = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class Deployment:
    """An LLMDeployment: one asked about, or one in the fleet's files that holds GPUs already.

    `status` is what is known of it so far, `assignment` where it is by that status.
    """

    parsed: ParsedDeployment
    asked: bool
    status: Mapping[str, Any]
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class PlanInput:
    """All that a plan needs, and what was not used of the files."""

    deployments: tuple[Deployment, ...]
    fleet: Fleet
    notes: tuple[str, ...]


def read_input(files: Sequence[str], fleet_files: Sequence[str]) -> PlanInput:
    """Read all files. Raises BadInputError with everything that is wrong with them."""
    if [*files, *fleet_files].count(STDIN) > 1:
        raise BadInputError([InputError("standard input can be read once: use - for one file only")])
    errors: list[InputError] = []
    given = [each for file in files for each in _read(file, errors)]
    found = [each for file in fleet_files for each in _read(file, errors)]
    if errors:
        raise BadInputError(errors)
    asked = _by_key(_of_kind(given, LLM_DEPLOYMENT), errors)
    known = _by_key(_of_kind(found, LLM_DEPLOYMENT), errors)
    if not asked:
        errors.append(InputError(f"{', '.join(files)}: no LLMDeployment in it: add one"))
    if not _of_kind(found, "Node"):
        where = ", ".join(fleet_files)
        errors.append(InputError(f"{where}: no Node in it: kubectl get nodes -o yaml writes them"))
    config_maps = _config_maps([*found, *given], errors)
    fleet = _fleet(found, errors)
    _check_statuses((*known.values(), *asked.values()), errors)
    placed = {key: each for key, each in known.items() if recorded_placement(each.resource)}
    bound = {} if errors else bound_replicas(each.resource for each in _of_kind(found, "Pod"))
    deployments = []
    by_uid: dict[str, Manifest] = {}
    for position, (key, manifest) in enumerate({**placed, **asked}.items()):
        try:
            parsed = _parsed(manifest, position, config_maps, strict=key in asked)
        except SpecErrors as error:
            errors += [manifest.error(each) for each in error.errors]
            continue
        first = by_uid.setdefault(parsed.demand.uid, manifest)
        if first is not manifest:
            # The allocator tells them apart by it.
            problem = f"metadata.uid: is that of {first.name} in {first.where}: remove it from the copy"
            errors.append(manifest.error(problem))
        status = _status([manifest, *filter(None, [placed.get(key)])])
        deployments.append(Deployment(parsed, key in asked, status, _assignment(status, bound.get(key, 0))))
    if errors:
        raise BadInputError(errors)
    ignored = (*_ignored(given, _DEPLOYMENT_KINDS), *_ignored(found, _FLEET_KINDS))
    return PlanInput(tuple(deployments), fleet, ignored)


def _read(file: str, errors: list[InputError]) -> list[Manifest]:
    try:
        return read_manifests(file)
    except InputError as error:
        errors.append(error)
        return []


def _parsed(
    manifest: Manifest, position: int, config_maps: Mapping[Key, Mapping[str, str]], *, strict: bool
) -> ParsedDeployment:
    text = None
    if reference := config_reference(manifest.resource):
        text = config_maps.get((manifest.namespace, reference.name), {}).get(reference.key)
        if text is None and not strict:
            text = "{}"  # what it serves needn't be known: it holds its GPUs, wherever its ConfigMap is
    parsed = deployment_from(manifest.resource, text, unknown_fields="forbid" if strict else "ignore")
    if parsed.demand.created:
        return parsed
    # What isn't created yet comes after all that is, in the order of the files.
    later = replace(parsed.demand, created=f"9999-12-31T23:59:59.{position:09}Z")
    return replace(parsed, demand=later)


def _check_statuses(manifests: Iterable[Manifest], errors: list[InputError]) -> None:
    for each in manifests:
        try:
            status_from(each.resource)
        except SpecErrors as error:
            errors += [each.error(one) for one in error.errors]


def _status(manifests: Iterable[Manifest]) -> Mapping[str, Any]:
    """The first status that says where it is: its own, else that in the fleet's files."""
    for manifest in manifests:
        if recorded_placement(manifest.resource):
            return dict(manifest.resource["status"])
    return {}


def _assignment(status: Mapping[str, Any], bound: int) -> Assignment | None:
    placement = recorded_placement({"status": status})
    return Assignment(placement.pool, placement.gpus_per_replica, bound) if placement else None


def _of_kind(manifests: Iterable[Manifest], kind: str) -> list[Manifest]:
    return [each for each in manifests if each.kind == kind]


def _by_key(manifests: Iterable[Manifest], errors: list[InputError]) -> dict[Key, Manifest]:
    """By namespace and name; what is there twice is an error."""
    known: dict[Key, Manifest] = {}
    for each in manifests:
        key = (each.namespace, each.name)
        if key in known:
            errors.append(each.error(f"metadata.name: is there already, in {known[key].where}: remove one"))
        known[key] = each
    return known


def _config_maps(manifests: Iterable[Manifest], errors: list[InputError]) -> dict[Key, Mapping[str, str]]:
    config_maps = {}
    for each in _of_kind(manifests, "ConfigMap"):
        data = each.resource.get("data") or {}
        if not isinstance(data, Mapping):
            errors.append(each.error("data: must be a map of texts"))
            continue
        errors += [
            each.error(f"data[{key}]: must be a text: write it as a block, after |")
            for key, value in data.items()
            if not isinstance(value, str)
        ]
        config_maps[each.namespace, each.name] = data
    return config_maps


def _fleet(manifests: Sequence[Manifest], errors: list[InputError]) -> Fleet:
    """The fleet, after each of its manifests was read by itself, so that an error names where it stands."""
    readers: dict[str, Callable[[Mapping[str, Any]], object]] = {
        "Node": lambda node: gpu_node(node, assume_ready=True),
        "Pod": gpus_requested,
        GPU_NODE_POOL: lambda pool: pool_from(pool, unknown_fields="forbid"),
    }
    before = len(errors)
    for kind, reader in readers.items():
        _by_key(_of_kind(manifests, kind), errors)
        for each in _of_kind(manifests, kind):
            try:
                reader(each.resource)
            except ManifestError as error:
                errors.append(each.error(error))
            except SpecErrors as error:
                errors += [each.error(one) for one in error.errors]
    if len(errors) > before:
        return Fleet(())
    nodes, pods, pools = ([each.resource for each in _of_kind(manifests, kind)] for kind in readers)
    return fleet_of(nodes, pods, pools, assume_ready=True)


def _ignored(manifests: Iterable[Manifest], used: Sequence[str]) -> list[str]:
    counts = Counter(
        (each.where.partition(": ")[0], each.kind) for each in manifests if each.kind not in used
    )
    return [f"{file}: {count} {kind} not used here" for (file, kind), count in counts.items()]
