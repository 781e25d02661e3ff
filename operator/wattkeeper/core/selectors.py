"""Label selectors as Kubernetes evaluates them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wattkeeper.core.demand import LabelRequirement

#: Any of these groups, all of whose requirements: the shape of a node affinity's nodeSelectorTerms.
LabelTerms = tuple[tuple[LabelRequirement, ...], ...]


def matches(requirements: Iterable[LabelRequirement], labels: Mapping[str, str]) -> bool:
    """Whether the labels meet all requirements; no requirement at all is met by anything.

    Raises ValueError for an operator that label selectors don't have.
    """
    return all(_meets(requirement, labels) for requirement in requirements)


def matches_any(terms: LabelTerms, labels: Mapping[str, str]) -> bool:
    """Whether the labels meet all requirements of at least one term."""
    return any(matches(term, labels) for term in terms)


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(
        f"{requirement.operator!r} is no operator of a label selector: use In, NotIn, Exists or DoesNotExist"
    )


def label_equals(labels: Mapping[str, str]) -> tuple[LabelRequirement, ...]:
    """The requirements that `matchLabels` stands for, in the order of the keys."""
    return tuple(LabelRequirement(key, "In", (value,)) for key, value in sorted(labels.items()))


def negated(requirement: LabelRequirement) -> LabelRequirement:
    """The requirement that is met exactly when this one isn't."""
    opposite = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
    return LabelRequirement(requirement.key, opposite[requirement.operator], requirement.values)


def contradict(requirements: Iterable[LabelRequirement]) -> bool:
    """Whether no labels can meet all of them, as far as the requirements of one key tell."""
    by_key: dict[str, list[LabelRequirement]] = {}
    for requirement in requirements:
        by_key.setdefault(requirement.key, []).append(requirement)
    return any(_contradict_on_one_key(of_key) for of_key in by_key.values())


def _contradict_on_one_key(requirements: list[LabelRequirement]) -> bool:
    # A label has finitely many values that matter: those named, absence, and any other value.
    named = {value for requirement in requirements for value in requirement.values}
    other = "".join(sorted(named)) + "-other"
    key = requirements[0].key
    possible: list[dict[str, str]] = [{}, *({key: value} for value in sorted(named | {other}))]
    return not any(matches(requirements, labels) for labels in possible)


def describe(requirements: Iterable[LabelRequirement]) -> str:
    """The requirements as `kubectl -l` takes them."""
    return ",".join(_describe(requirement) for requirement in requirements) or "everything"


def _describe(requirement: LabelRequirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "NotIn" if len(values) == 1:
            return f"{key}!={values[0]}"
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
    return f"{key} {requirement.operator.lower()} ({','.join(values)})"
