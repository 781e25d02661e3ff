"""The CRDs: what Kubernetes and people ask of every field, and that the files are those of the models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from wattkeeper.api import generate
from wattkeeper.api.crd import all_crds, gpu_node_pool_crd, llm_deployment_crd

ROOT = Path(__file__).parents[3]

Json = dict[str, Any]


def walk(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from walk(schema[key], f"{path}[]")


def schema_of(crd: Json) -> Json:
    schema: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


NODES = [
    pytest.param(schema, id=f"{crd['spec']['names']['kind']}{path}")
    for crd in all_crds().values()
    for path, schema in walk(schema_of(crd), "")
    if path not in {".apiVersion", ".kind", ".metadata"}  # these are the API server's
]
FIELDS = [each for each in NODES if not str(each.id).endswith("[]")]


@pytest.mark.parametrize("schema", FIELDS)
def test_every_field_says_what_it_is(schema: Json) -> None:
    text = schema["description"]
    assert len(text) > 8
    assert text[0].isupper() or text[0].islower()
    assert text.endswith(".")


@pytest.mark.parametrize("schema", NODES)
def test_every_node_is_structural(schema: Json) -> None:
    assert schema.get("type") in {"object", "array", "string", "integer", "boolean"} or (
        schema.get("x-kubernetes-int-or-string") is True
    )
    assert not schema.keys() & {"$ref", "$defs", "title", "const", "nullable", "oneOf", "allOf"}
    if "anyOf" in schema:
        assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        assert "type" not in schema


@pytest.mark.parametrize("schema", NODES)
def test_every_node_is_bounded(schema: Json) -> None:
    match schema.get("type"):
        case "string":
            assert schema.keys() & {"maxLength", "enum", "format"}
        case "integer":
            # The API server keeps bounds as float64: the largest int64 can't be one.
            assert "enum" in schema or "minimum" in schema
            assert schema["format"] == ("int32" if "enum" in schema or "maximum" in schema else "int64")
        case "array":
            assert "maxItems" in schema
            assert schema["x-kubernetes-list-type"] in {"atomic", "map"}
        case "object":
            free = schema.get("x-kubernetes-preserve-unknown-fields", False)
            assert "properties" in schema or free or "maxProperties" in schema


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        (r"Watts$", "(watts"),
        (r"Tokens$|^maxPositionEmbeddings$|^slidingWindow$", "(tokens)"),
        (r"Percent$", "(percent)"),
        (r"[Ll]atency|[tT]imeToFirst|Duration$|^minIdle$|^idleTimeout$", "(duration"),
        (r"^memory", "(bytes"),
        (r"PerSecond$", "(requests per second"),
        (r"[Ss]ize$|Dim$", "("),
    ],
)
def test_every_unit_is_said(name: str, unit: str) -> None:
    fields = {
        path: schema["description"]
        for crd in all_crds().values()
        for path, schema in walk(schema_of(crd), "")
        if re.search(name, path.rsplit(".", maxsplit=1)[-1]) and schema.get("type") != "object"
    }
    exempt = {"spec.placement.tensorParallelSize", "vocabSize"}  # counts: their words name what is counted
    silent = [
        path for path, words in fields.items() if unit not in words and not path.endswith(tuple(exempt))
    ]
    assert fields
    assert not silent


def test_only_the_template_is_free() -> None:
    free = [
        path
        for crd in all_crds().values()
        for path, schema in walk(schema_of(crd), "")
        if schema.get("x-kubernetes-preserve-unknown-fields")
    ]
    assert free == [".spec.server.template"]


def test_names_subresources_and_columns() -> None:
    llmd, gnp = llm_deployment_crd()["spec"], gpu_node_pool_crd()["spec"]
    assert (llmd["names"]["shortNames"], llmd["scope"]) == (["llmd"], "Namespaced")
    assert (gnp["names"]["shortNames"], gnp["scope"]) == (["gnp"], "Cluster")
    assert llmd["names"]["categories"] == gnp["names"]["categories"] == ["wattkeeper"]
    version = llmd["versions"][0]
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == ["Phase", "Pool", "GPU", "Watts", "ITL", "SLA", "Age"]


def test_defaults_reach_objects_that_are_left_out() -> None:
    spec = schema_of(llm_deployment_crd())["properties"]["spec"]["properties"]
    assert spec["server"]["default"] == spec["placement"]["default"] == spec["parking"]["default"] == {}
    assert spec["server"]["properties"]["port"]["default"] == 8000
    assert spec["parking"]["properties"]["policy"]["default"] == "BreakEven"


def test_columns_point_to_fields_of_their_type() -> None:
    for crd in all_crds().values():
        schemas = dict(walk(schema_of(crd), ""))
        for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]:
            if "[?" not in column["jsonPath"] and not column["jsonPath"].startswith(".metadata"):
                assert schemas[column["jsonPath"]]["type"] == column["type"]


def test_the_files_are_those_of_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    """`make generate` brings them up to date."""
    assert generate.main(["--check", str(ROOT / "crds")]) == 0, capsys.readouterr().err


def test_check_names_the_command_that_cures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main([str(tmp_path)]) == 0
    assert generate.main([str(tmp_path), "--check"]) == 0
    stale = tmp_path / "wattkeeper.dev_gpunodepools.yaml"
    stale.write_text(stale.read_text().replace("gnp", "pool"))
    capsys.readouterr()
    assert generate.main(["--check", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert message == f"{stale} is stale: run `python -m wattkeeper.api.generate {tmp_path}`\n"
    assert "pool" in stale.read_text()


def test_the_files_hold_the_crds_and_say_where_they_come_from(tmp_path: Path) -> None:
    generate.main([str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == set(all_crds())
    for path in tmp_path.iterdir():
        assert path.read_text().startswith("# Generated by ")
        assert yaml.safe_load(path.read_text()) == all_crds()[path.name]
