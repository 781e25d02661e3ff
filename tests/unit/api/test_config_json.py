"""A config.json as users hand it in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.api.config_json import config_from_text
from wattkeeper.api.errors import SpecErrors


def test_a_config_json_is_read() -> None:
    assert config_from_text('{"model_type": "llama", "rope_theta": 500000.0}') == {
        "model_type": "llama",
        "rope_theta": 500000.0,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at line 1, column 1)"),
        ('{"a": 1,\n "b" 2}', "at line 2, column 6)"),
        ("{'a': 1}", "no valid JSON"),
        ('{"a": NaN}', "no usable JSON (NaN is no number)"),
        ('{"a": Infinity}', "no usable JSON (Infinity is no number)"),
        ('{"a": -Infinity}', "no usable JSON (-Infinity is no number)"),
        ('{"a": 1e400}', "no usable JSON (1e400 is too large)"),
        ('{"a": ' + "9" * 5000 + "}", "no usable JSON"),
        ("[" * 100_000, "nested too deep"),
        ("[1]", "no JSON object"),
        ("null", "no JSON object"),
        (" " * 1_048_577, "longer than 1048576 characters"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_config_json_is_refused_with_the_cure(text: str, words: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        config_from_text(text)
    (error,) = caught.value.errors
    assert error.field == "spec.model.configMapRef.key"
    assert words in error.message
    assert ":" in error.message
    assert caught.value.reason == "InvalidModelConfig"


@given(st.dictionaries(st.text(), st.integers(-(2**63), 2**63) | st.text() | st.booleans() | st.none()))
def test_whatever_json_says_is_kept(config: dict[str, object]) -> None:
    assert config_from_text(json.dumps(config)) == config


@given(st.text())
def test_no_text_is_a_crash(text: str) -> None:
    try:
        assert isinstance(config_from_text(text), dict)
    except SpecErrors as errors:
        assert errors.errors
