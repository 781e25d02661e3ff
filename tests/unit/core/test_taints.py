from __future__ import annotations

import pytest

from wattkeeper.core.demand import Toleration
from wattkeeper.core.fleet import Taint
from wattkeeper.core.taints import first_untolerated, tolerates

GPU = Taint("nvidia.com/gpu", "present", "NoSchedule")
SPOT = Taint("cloud.google.com/gke-spot", "true", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), Taint("k", "v", "NoSchedule"), True),
        (Toleration("k", "Equal", "v", "NoSchedule"), Taint("k", "v", "NoExecute"), False),
        (Toleration("k", "Equal", "v"), Taint("k", "v", "NoExecute"), True),
        (Toleration("k", "Equal", "v"), Taint("k", "w"), False),
        (Toleration("k", "", "v"), Taint("k", "v"), True),
        (Toleration("k", "Equal"), Taint("k", ""), True),
        (Toleration("k", "Exists"), Taint("k", "anything"), True),
        (Toleration("k", "Exists"), Taint("other", "anything"), False),
        (Toleration(operator="Exists"), Taint("k", "v", "NoExecute"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), Taint("k", "v", "NoExecute"), False),
        (Toleration("k", "Gt", "1"), Taint("k", "2"), False),
    ],
)
def test_as_kubernetes_matches_them(toleration: Toleration, taint: Taint, tolerated: bool) -> None:
    assert tolerates(toleration, taint) is tolerated


@pytest.mark.parametrize("value", ["present", "true", ""])
def test_the_gpu_taint_is_always_tolerated_whatever_its_value(value: str) -> None:
    assert first_untolerated([Taint("nvidia.com/gpu", value)], ()) is None


def test_other_taints_need_a_toleration() -> None:
    assert first_untolerated([GPU, SPOT], ()) == SPOT
    assert first_untolerated([GPU, SPOT], [Toleration("cloud.google.com/gke-spot", "Exists")]) is None


def test_prefer_no_schedule_keeps_nothing_off() -> None:
    assert first_untolerated([Taint("k", "v", "PreferNoSchedule")], ()) is None


def test_the_first_is_the_same_whatever_the_order() -> None:
    other = Taint("a", "b", "NoExecute")
    assert first_untolerated([SPOT, other], ()) == first_untolerated([other, SPOT], ()) == other
