"""The models take what is good, and refuse what is bad by the field's name and with its cure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.cases import BAD, GOOD, Case
from wattkeeper.api.convert import deployment_from, pool_from
from wattkeeper.api.errors import SpecErrors


def parse(resource: dict[str, Any]) -> Any:
    if resource["kind"] == "GPUNodePool":
        return pool_from(resource, unknown_fields="forbid")
    return deployment_from(resource, config_text='{"model_type": "llama"}', unknown_fields="forbid")


@pytest.mark.parametrize("case", GOOD, ids=str)
def test_good_input_is_taken(case: Case) -> None:
    assert parse(case.resource()) is not None


@pytest.mark.parametrize("case", BAD, ids=str)
def test_bad_input_is_refused_by_name_and_with_the_cure(case: Case) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse(case.resource())
    (error,) = caught.value.errors
    assert case.refused is not None
    assert error.field.startswith(case.refused)
    assert (case.words or case.python_words) in str(error).replace(
        "metadata.name: must", "metadata.name must"
    )
