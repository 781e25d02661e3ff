"""How wrong values are repeated: in their own spelling, and at a bounded cost whatever they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.api.errors import shorten
from wattkeeper.api.quantities import QuantityError, parse_duration


def _bomb(levels: int) -> list[Any]:
    """What a few lines of YAML aliases stand for: 10 ** levels entries, in `levels` lists."""
    value: list[Any] = ["x"] * 10
    for _ in range(levels):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("50 ms", "'50 ms'"),
        (None, "None"),
        (True, "True"),
        (0.33, "0.33"),
        ({"type": "Ready"}, "{'type': 'Ready'}"),
        ([1, 2], "[1, 2]"),
        ("a\n b", "'a\\n b'"),
        ("x" * 100, "'" + "x" * 39 + "…"),
        (10**60, "1" + "0" * 39 + "…"),
        (1 << 100_000, "an integer of 100001 bits"),
    ],
    ids=lambda each: "" if isinstance(each, int) else None,
)
def test_a_wrong_value_is_repeated_in_its_own_spelling(value: Any, text: str) -> None:
    assert shorten(value) == text


@pytest.mark.parametrize("value", [_bomb(40), {"a": _bomb(40)}, "x" * 10**7, [1 << 100_000]], ids="abcd")
def test_a_value_of_any_size_is_repeated_at_once(value: Any) -> None:
    assert len(shorten(value)) <= 41
    with pytest.raises(QuantityError, match="write a duration"):
        parse_duration(value, "f")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_gives_one_short_line(value: Any) -> None:
    assert len(shorten(value)) <= 41
    assert "\n" not in shorten(value)
