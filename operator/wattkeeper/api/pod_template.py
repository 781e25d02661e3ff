"""The parts of server.template that placement must know: tolerations and node selector.

The template as a whole is the API server's to judge (a server-side dry-run of what is made of it). Only
what would silently change where a pod can go is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattkeeper.api.errors import FieldError, shorten
from wattkeeper.core.demand import Toleration

_FIELD = "spec.server.template"
_TOLERATION_FIELDS = ("key", "operator", "value", "effect")
_OPERATORS = ("", "Equal", "Exists")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


def template_errors(template: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with the parts that placement reads; the rest isn't judged."""
    spec = template.get("spec", {})
    if not isinstance(spec, Mapping):
        return [FieldError(f"{_FIELD}.spec", f"must be a map; got {shorten(spec)}")]
    errors = _toleration_errors(spec.get("tolerations"))
    selector = spec.get("nodeSelector")
    if selector is not None and not _is_string_map(selector):
        errors.append(
            FieldError(f"{_FIELD}.spec.nodeSelector", f"must map labels to strings; got {shorten(selector)}")
        )
    if spec.get("nodeName"):
        errors.append(
            FieldError(f"{_FIELD}.spec.nodeName", "can't be set: choose nodes by placement.poolSelector")
        )
    if _required_node_affinity(spec):
        errors.append(
            FieldError(
                f"{_FIELD}.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
                "can't be set, as it holds the chosen pool: use placement.poolSelector or the template's "
                "spec.nodeSelector",
            )
        )
    return errors


def tolerations_of(template: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """The template's tolerations; call only when `template_errors` found none."""
    listed = template.get("spec", {}).get("tolerations") or []
    return tuple(
        Toleration(
            key=each.get("key") or "",
            operator=each.get("operator") or "Equal",
            value=each.get("value") or "",
            effect=each.get("effect") or "",
        )
        for each in listed
    )


def node_selector_of(template: Mapping[str, Any]) -> dict[str, str]:
    """The template's node selector; call only when `template_errors` found none."""
    return dict(template.get("spec", {}).get("nodeSelector") or {})


def _toleration_errors(tolerations: Any) -> list[FieldError]:
    field = f"{_FIELD}.spec.tolerations"
    if tolerations is None:
        return []
    if not isinstance(tolerations, list):
        return [FieldError(field, f"must be a list; got {shorten(tolerations)}")]
    errors = []
    for index, each in enumerate(tolerations):
        where = f"{field}[{index}]"
        if not isinstance(each, Mapping):
            errors.append(FieldError(where, f"must be a map; got {shorten(each)}"))
            continue
        wrong = [name for name in _TOLERATION_FIELDS if not isinstance(each.get(name) or "", str)]
        errors += [
            FieldError(f"{where}.{name}", f"must be a string; got {shorten(each[name])}") for name in wrong
        ]
        if not wrong and (each.get("operator") or "") not in _OPERATORS:
            errors.append(
                FieldError(f"{where}.operator", f"must be Equal or Exists; got {shorten(each['operator'])}")
            )
        if not wrong and (each.get("effect") or "") not in _EFFECTS:
            errors.append(
                FieldError(
                    f"{where}.effect",
                    f"must be NoSchedule, PreferNoSchedule or NoExecute; got {shorten(each['effect'])}",
                )
            )
    return errors


def _required_node_affinity(spec: Mapping[str, Any]) -> bool:
    affinity = spec.get("affinity")
    node = affinity.get("nodeAffinity") if isinstance(affinity, Mapping) else None
    return isinstance(node, Mapping) and bool(node.get("requiredDuringSchedulingIgnoredDuringExecution"))


def _is_string_map(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(item, str) for key, item in value.items()
    )
