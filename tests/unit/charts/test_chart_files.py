"""The chart's files agree with each other, with the generated CRDs and with the operator's settings.

What helm makes of them is tested with the real helm, in tests/e2e/test_chart.py.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any

import pytest
import yaml

from tests.cluster.paths import REPOSITORY
from wattkeeper.settings import Settings

CHART = REPOSITORY / "charts" / "wattkeeper"
VALUES_TEXT = (CHART / "values.yaml").read_text()
VALUES: dict[str, Any] = yaml.safe_load(VALUES_TEXT)
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())

# Settings that the templates write themselves, from the pod's own facts or from values with another meaning.
OF_THE_TEMPLATES = {
    "identity": "the host name, which is the pod's",
    "lease_name": "the Deployment's name",
    "lease_namespace": "the pod's namespace",
    "listen_host": "all addresses, for probes and scrapes",
    "listen_port": "the port that probes and Service name",
    "namespaces": "watchNamespaces, which the roles follow too",
}
# Objects whose content is Kubernetes's own API, or free names.
FREE_OBJECTS = {"global"}


def camel(name: str) -> str:
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)


def schema_objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in schema.get("properties", {}).items():
        yield f"{path}{name}", child
        yield from schema_objects(child, f"{path}{name}.")


def value_paths(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The names of all values, as deep as the schema names them."""
    for name, value in values.items():
        yield f"{path}{name}"
        child = schema["properties"].get(name, {})
        if isinstance(value, dict) and "properties" in child:
            yield from value_paths(value, child, f"{path}{name}.")


def chart_settings() -> list[Field[Any]]:
    return [setting for setting in fields(Settings) if setting.name not in OF_THE_TEMPLATES]


def test_the_schema_names_the_values_and_no_others() -> None:
    described = {path for path, _ in schema_objects(SCHEMA)}
    assert described - FREE_OBJECTS == set(value_paths(VALUES, SCHEMA))


def test_the_schema_refuses_what_it_does_not_name() -> None:
    for path, child in [("", SCHEMA), *schema_objects(SCHEMA)]:
        if "properties" in child:
            assert child["additionalProperties"] is False, path


def test_everything_is_described() -> None:
    for path, child in schema_objects(SCHEMA):
        assert child["description"].endswith("."), path


def test_every_value_has_its_comment() -> None:
    """A comment that begins with ``# --`` stands right above each value that isn't a mere group."""
    above: list[str] = []
    undocumented = []
    keys: list[tuple[int, str]] = []
    for line in VALUES_TEXT.splitlines():
        key = re.match(r"( *)([A-Za-z]+):", line)
        if line.lstrip().startswith("#"):
            above.append(line.strip())
            continue
        if key is not None:
            indent = len(key[1])
            keys = [*[entry for entry in keys if entry[0] < indent], (indent, key[2])]
            path = ".".join(name for _, name in keys)
            group = dict(schema_objects(SCHEMA)).get(path, {}).get("properties")
            inside_free_object = path not in dict(schema_objects(SCHEMA))
            if not group and not inside_free_object and not any(text.startswith("# -- ") for text in above):
                undocumented.append(path)
        above = []
    assert undocumented == []


def test_one_version_for_project_chart_and_image() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project
    assert f"ARG VERSION={project}\n" in (REPOSITORY / "Dockerfile").read_text()


def test_the_chart_has_the_generated_crds_word_for_word() -> None:
    generated = {path.name: path.read_text() for path in (REPOSITORY / "crds").glob("*.yaml")}
    assert generated
    assert generated == {path.name: path.read_text() for path in (CHART / "files" / "crds").iterdir()}


def test_every_setting_of_the_operator_is_a_value_or_the_templates_own() -> None:
    names = {setting.name for setting in fields(Settings)}
    assert set(OF_THE_TEMPLATES) <= names
    assert set(VALUES["operator"]["settings"]) == {camel(setting.name) for setting in chart_settings()}


@pytest.mark.parametrize("setting", chart_settings(), ids=lambda setting: setting.name)
def test_a_setting_has_the_same_default_and_bounds_in_the_chart(setting: Field[Any]) -> None:
    name, read = camel(setting.name), setting.metadata["read"]
    schema = SCHEMA["properties"]["operator"]["properties"]["settings"]["properties"][name]
    assert VALUES["operator"]["settings"][name] == setting.default

    if schema.get("type") == "boolean":
        assert [read("true"), read("false")] == [True, False]
        return
    if "enum" in schema:
        assert [read(choice) for choice in schema["enum"]] == schema["enum"]
        with pytest.raises(ValueError, match=f"one of {', '.join(schema['enum'])}$"):
            read("?")
        return
    least, most = schema["minimum"], schema["maximum"]
    assert [read(str(least)), read(str(most))] == [least, most]
    for outside in (least - 1, most + 1):
        with pytest.raises(ValueError, match="write"):
            read(str(outside))
