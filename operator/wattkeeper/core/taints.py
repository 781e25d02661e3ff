"""Taints and tolerations as kube-scheduler's TaintToleration plugin matches them."""

from __future__ import annotations

from collections.abc import Iterable

from wattkeeper.core.demand import Toleration
from wattkeeper.core.fleet import Taint

#: On every pod the operator makes. GPU nodes carry this taint with the values `present` and `true`.
GPU_TOLERATION = Toleration(key="nvidia.com/gpu", operator="Exists")

#: Effects that keep a pod off a node; PreferNoSchedule only asks.
_KEEPING_OFF = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration covers the taint. An empty key or effect covers every key or effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def first_untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint, in their sorted order, that keeps the operator's pods off; None when they may come."""
    held = (GPU_TOLERATION, *tolerations)
    untolerated = (
        taint
        for taint in taints
        if taint.effect in _KEEPING_OFF and not any(tolerates(toleration, taint) for toleration in held)
    )
    return min(untolerated, default=None)
