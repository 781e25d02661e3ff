"""The newest version wins, whoever tells of it."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.kube.cache import NewestCache


@dataclass(frozen=True)
class Thing:
    uid: str
    version: str
    value: int = 0


def cache() -> tuple[NewestCache[Thing], list[Any]]:
    changes: list[Any] = []
    return NewestCache(lambda before, after: changes.append((before, after))), changes


def test_older_news_are_ignored() -> None:
    known, changes = cache()
    known.observe(Thing("a", "9", 1))
    known.observe(Thing("a", "10", 2))  # as numbers: 9 comes before 10
    known.observe(Thing("a", "9", 1))
    assert known.get("a") == Thing("a", "10", 2)
    assert len(changes) == 2


def test_the_same_again_is_no_change() -> None:
    known, changes = cache()
    known.observe(Thing("a", "1"))
    known.observe(Thing("a", "1"))
    assert changes == [(None, Thing("a", "1"))]


def test_a_late_event_does_not_bring_back_what_is_gone() -> None:
    known, changes = cache()
    known.observe(Thing("a", "1"))
    known.forget("a")
    known.observe(Thing("a", "1"))
    assert list(known) == []
    assert changes[-1] == (Thing("a", "1"), None)
    known.forget("a")
    assert len(changes) == 2


def test_a_list_removes_what_it_lacks_but_not_what_is_newer() -> None:
    known, _ = cache()
    known.observe(Thing("old", "5"))
    known.observe(Thing("new", "25"))
    known.reconcile([Thing("listed", "7")], "20")
    assert {thing.uid for thing in known} == {"listed", "new"}


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    known, _ = cache()
    known.observe(Thing("a", "z"))
    known.observe(Thing("a", "b", 1))
    assert known.get("a") == Thing("a", "b", 1)


@given(st.permutations(list(range(1, 8))))
def test_any_order_of_news_ends_with_the_newest(order: list[int]) -> None:
    known, _ = cache()
    for version in order:
        known.observe(Thing("a", str(version), version))
    assert known.get("a") == Thing("a", "7", 7)
