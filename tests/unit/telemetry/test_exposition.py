"""Pages in the Prometheus text format, well and badly written."""

import math
import string
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.core.readings import Sample
from wattkeeper.telemetry.exposition import ExpositionError, parse
from wattkeeper.telemetry.series import FaultKind, Faults, Series

NOW = 1_700_000_000.0


def read(text: str) -> tuple[list[Series], Faults]:
    faults = Faults()
    return parse(text, NOW, faults), faults


def test_a_counter_keeps_its_name() -> None:
    page = "# HELP energy Energy.\n# TYPE energy counter\nenergy 5\n# TYPE a_total counter\na_total 6\n"
    series, faults = read(page)
    assert [(each.name, each.sample.value) for each in series] == [("energy", 5.0), ("a_total", 6.0)]
    assert faults.found() == ()


def test_samples_are_dated_by_the_scrape_unless_they_say_more() -> None:
    series, _ = read('a{x="1"} 5\na{x="2"} 6 1699999999500\n')
    assert [each.sample for each in series] == [Sample(5.0, NOW), Sample(6.0, 1_699_999_999.5)]


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ('a{x="b"} 1', {"x": "b"}, 1.0),
        ("a 1", {}, 1.0),
        ("a{} 1", {}, 1.0),
        ('a { x = "b" , y="c", } 1', {"x": "b", "y": "c"}, 1.0),
        ('a{x="} 5",y="{"} 7', {"x": "} 5", "y": "{"}, 7.0),
        (r'a{x="q\"uote\\ \n"} 7', {"x": 'q"uote\\ \n'}, 7.0),
        ('a{x="# 5"} 7', {"x": "# 5"}, 7.0),
        ('a{x="\u2028\x85\x0c"} 7', {"x": "\u2028\x85\x0c"}, 7.0),
        ('a{x=""} 7', {"x": ""}, 7.0),
        ("\ta\t7\r", {}, 7.0),
        ("a 7.557572e+06", {}, 7557572.0),
        ("a +Inf", {}, math.inf),
    ],
)
def test_lines_as_the_format_allows_them(line: str, labels: Mapping[str, str], value: float) -> None:
    series, faults = read(line + "\n")
    assert faults.found() == ()
    assert [(each.name, dict(each.labels), each.sample.value) for each in series] == [("a", labels, value)]


@pytest.mark.parametrize(
    "line",
    [
        'a{x="b"} ERROR - FAILED TO CONVERT TO STRING',
        'a{x="b" 1',
        'a{x="b"}',
        'a{x="b"} 1_000',
        "a{x=b} 1",
        'a{x="b",x="c"} 1',
        "a",
        "{} 1",
        '7{x="b"} 1',
        "a 0x10",
    ],
)
def test_a_bad_line_is_reported_and_hides_no_other(line: str) -> None:
    series, faults = read(f'before{{x="b"}} 1\n{line}\nafter{{x="b"}} 2\n')
    assert [each.name for each in series] == ["before", "after"]
    (fault,) = faults.found()
    assert (fault.kind, fault.count, fault.example) == (FaultKind.UNPARSABLE, 1, line.strip())


def test_a_page_that_was_cut_off_is_refused() -> None:
    with pytest.raises(ExpositionError, match="cut off"):
        read('power{gpu="0"} 12')


def test_an_empty_page_has_no_series() -> None:
    assert read("")[0] == []
    assert read("\n# EOF\n")[0] == []


def test_only_wanted_metrics_are_read() -> None:
    faults = Faults()
    page = "a 1\nb nonsense\nab 3\n"
    assert [each.name for each in parse(page, NOW, faults, wanted=lambda name: name == "a")] == ["a"]
    assert faults.found() == ()


_NAMES = st.text(string.ascii_letters + "_:", min_size=1, max_size=8)
_LABEL_NAMES = st.text(string.ascii_letters, min_size=1, max_size=6)
_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@given(
    st.lists(st.tuples(_NAMES, st.dictionaries(_LABEL_NAMES, _VALUES, max_size=3), st.floats()), max_size=6)
)
def test_what_is_written_is_read_again(rows: list[tuple[str, dict[str, str], float]]) -> None:
    page = ""
    for name, labels, value in rows:
        block = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        page += f"{name}{{{block}}} {value!r}\n"
    series, faults = read(page)
    assert faults.found() == ()
    assert len(series) == len(rows)
    for each, (name, labels, value) in zip(series, rows, strict=True):
        assert (each.name, dict(each.labels)) == (name, labels)
        assert each.sample.value == value or (math.isnan(each.sample.value) and math.isnan(value))


@given(st.text(max_size=60))
def test_nothing_at_all_is_too_strange_to_be_reported(text: str) -> None:
    read(text + "\n")
