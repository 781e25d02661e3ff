"""Quantities and durations: exact both ways, and nothing else is taken."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.api.quantities import (
    QuantityError,
    format_bytes,
    format_duration,
    format_quantity,
    parse_duration,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("330m", "0.33"),
        ("0.33", "0.33"),
        ("1", "1"),
        (7, "7"),
        (-7, "-7"),
        ("+1.5", "1.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1k", "1000"),
        ("1E", "1000000000000000000"),
        ("1E3", "1000"),
        ("17e-3", "0.017"),
        ("2Gi", "2147483648"),
        ("0.5Ki", "512"),
        ("1n", "0.000000001"),
        ("3u", "0.000003"),
    ],
)
def test_a_quantity_is_read_exactly(text: str | int, number: str) -> None:
    assert parse_quantity(text, "f") == Decimal(number)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " 1",
        "1 ",
        "NaN",
        "nan",
        "Infinity",
        "-inf",
        "1e",
        "1ee3",
        "1e1000",
        "1_0",
        "0x10",
        "٣",
        "1K",
        "1ki",
        "1.2.3",
        "k",
        ".",
        "1\n",
        "9" * 33,
        10**40,
        0.33,
        float("nan"),
        True,
        None,
        [],
        {},
    ],
)
def test_what_is_no_quantity_is_refused_by_name(value: Any) -> None:
    with pytest.raises(
        QuantityError, match=r"^spec\.x: write an integer or a quantity such as 330m"
    ) as caught:
        parse_quantity(value, "spec.x")
    assert caught.value.field == "spec.x"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", "0.05"),
        ("5.9ms", "0.0059"),
        ("1h30m", "5400"),
        ("1m0.5s", "60.5"),
        ("250us", "0.00025"),
        ("10ns", "0.00000001"),
        ("0s", "0"),
    ],
)
def test_a_duration_is_read_exactly(text: str, seconds: str) -> None:
    assert parse_duration(text, "f") == Decimal(seconds)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "50",
        "-50ms",
        "+1s",
        "NaN",
        "NaNs",
        "infs",
        "1e3s",
        "1d",
        "1 s",
        "ms",
        ".5s",
        "1.s",
        "1s\n",
        "٣s",
        "1234567s",
        50,
        0.05,
        True,
        None,
        [],
    ],
)
def test_what_is_no_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(QuantityError, match=r"^spec\.x: write a duration with its unit"):
        parse_duration(value, "spec.x")


@pytest.mark.parametrize(
    ("number", "text"),
    [("0.33", "330m"), ("2000", "2k"), ("1500", "1500"), ("0", "0"), ("-1.5", "-1500m"), ("1e-9", "1n")],
)
def test_a_quantity_is_written_in_its_shortest_form(number: str, text: str) -> None:
    assert format_quantity(Decimal(number)) == text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e-10"])
def test_what_no_quantity_can_hold_is_not_written(number: str) -> None:
    with pytest.raises(ValueError):
        format_quantity(Decimal(number))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**18), max_value=10**18))
def test_quantities_survive_the_round_trip(number: Decimal) -> None:
    assert parse_quantity(format_quantity(number), "f") == number


@given(st.integers(min_value=0, max_value=2**62))
def test_bytes_survive_the_round_trip(size: int) -> None:
    assert parse_quantity(format_bytes(size), "f") == size


def test_bytes_are_written_in_binary_units() -> None:
    assert format_bytes(81559 * 1024**2) == "81559Mi"
    assert format_bytes(80 * 1024**3) == "80Gi"
    assert format_bytes(0) == "0"
    assert format_bytes(1000) == "1000"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.062, "62ms"),
        (0.0059, "5.9ms"),
        (0.02064, "20.6ms"),
        (0.9999, "1s"),
        (0.00025, "250us"),
        (1.25, "1.25s"),
        (95.0, "95s"),
        (1234.5, "1230s"),
        (3e-7, "300ns"),
        (0.0, "0s"),
    ],
)
def test_a_duration_is_written_for_reading(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_an_upper_bound_is_never_shown_below_itself() -> None:
    assert format_duration(0.05004, upward=True) == "50.1ms"
    assert format_duration(0.04996, upward=True) == "50ms"
    assert format_duration(0.08, upward=True) == "80ms"


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -0.001])
def test_what_is_no_duration_is_not_written(seconds: float) -> None:
    with pytest.raises(ValueError):
        format_duration(seconds)


@given(st.floats(min_value=1e-9, max_value=1e5), st.booleans())
def test_a_written_duration_can_be_read_and_is_close(seconds: float, upward: bool) -> None:
    read = float(parse_duration(format_duration(seconds, upward=upward), "f"))
    assert read == pytest.approx(seconds, rel=0.01)
    if upward:
        assert read >= seconds * (1 - 1e-12)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans()))
def test_parsers_only_ever_refuse(value: Any) -> None:
    for parse in (parse_quantity, parse_duration):
        try:
            assert parse(value, "f").is_finite()
        except QuantityError as error:
            assert str(error).startswith("f: ")
