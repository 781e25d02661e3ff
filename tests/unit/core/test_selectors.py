from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.demand import LabelRequirement as Req
from wattkeeper.core.selectors import contradict, describe, label_equals, matches, matches_any, negated

KEYS = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["1", "2", "3"])
LABELS = st.dictionaries(KEYS, VALUES)
REQUIREMENTS = st.one_of(
    st.builds(
        Req, KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1, max_size=3).map(tuple)
    ),
    st.builds(Req, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)


@pytest.mark.parametrize(
    ("requirement", "labels", "met"),
    [
        (Req("a", "In", ("1", "2")), {"a": "2"}, True),
        (Req("a", "In", ("1", "2")), {"a": "3"}, False),
        (Req("a", "In", ("1", "2")), {}, False),
        (Req("a", "NotIn", ("1",)), {"a": "2"}, True),
        (Req("a", "NotIn", ("1",)), {"a": "1"}, False),
        (Req("a", "NotIn", ("1",)), {}, True),  # as Kubernetes has it: an absent label isn't in the values
        (Req("a", "Exists"), {"a": ""}, True),
        (Req("a", "Exists"), {"b": "1"}, False),
        (Req("a", "DoesNotExist"), {"b": "1"}, True),
        (Req("a", "DoesNotExist"), {"a": ""}, False),
    ],
)
def test_one_requirement(requirement: Req, labels: dict[str, str], met: bool) -> None:
    assert matches([requirement], labels) is met
    assert matches([negated(requirement)], labels) is not met


def test_all_requirements_must_hold_and_none_match_everything() -> None:
    assert matches((), {})
    assert not matches([Req("a", "Exists"), Req("b", "Exists")], {"a": "1"})


def test_unknown_operator_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"Gt.*use In, NotIn, Exists or DoesNotExist"):
        matches([Req("a", "Gt", ("1",))], {"a": "2"})


def test_terms_are_alternatives() -> None:
    terms = ((Req("a", "Exists"),), (Req("b", "In", ("1",)),))
    assert matches_any(terms, {"b": "1"})
    assert not matches_any(terms, {"b": "2"})
    assert not matches_any((), {"a": "1"})


def test_description_is_what_kubectl_takes() -> None:
    requirements = [
        *label_equals({"tier": "gpu"}),
        Req("zone", "In", ("a", "b")),
        Req("spot", "DoesNotExist"),
        Req("x", "Exists"),
        Req("y", "NotIn", ("1",)),
    ]
    assert describe(requirements) == "tier=gpu,zone in (a,b),!spot,x,y!=1"
    assert describe(()) == "everything"


@given(st.lists(REQUIREMENTS, max_size=5), LABELS)
def test_what_contradicts_itself_matches_nothing(requirements: list[Req], labels: dict[str, str]) -> None:
    if contradict(requirements):
        assert not matches(requirements, labels)


@given(st.lists(REQUIREMENTS, max_size=4))
def test_what_does_not_contradict_itself_matches_something(requirements: list[Req]) -> None:
    values: list[str | None] = [None, "1", "2", "3", "other"]
    some = any(
        matches(requirements, {key: value for key, value in (("a", a), ("b", b)) if value is not None})
        for a in values
        for b in values
    )
    assert contradict(requirements) is not some
