"""The data are what they say they are, and the server made of them lets nothing else pass."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from openapi_spec_validator import validate

from tests.dataplane import derive
from tests.dataplane.server import (
    DATA,
    MAJORS,
    PASSWORD,
    SERVERS_OPERATION,
    USER,
    Answers,
    ContractServer,
    document,
    of_backends,
    schema,
)

major_versions = pytest.mark.parametrize("major", MAJORS)


@major_versions
def test_a_description_is_valid_and_names_its_source(major: str) -> None:
    described = document(major)
    validate(described)
    assert described["info"]["x-derived-from"] == derive.SPECIFICATIONS[major].named()
    assert tuple(described["paths"]) == derive.OPERATIONS[major]
    assert described["servers"] == [{"url": f"/{major}"}]
    schemes = described["components"]["securitySchemes"]
    assert schemes == {"basic_auth": {"type": "http", "scheme": "basic"}}
    assert described["security"] == [{"basic_auth": []}]


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.name)
def test_data_hold_names_and_types_alone(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r'"description": (.*)', text)) <= {'"",', "{"}
    assert not re.search(r'"(example|title|summary|x-go-name)": "(?!HAProxy Data Plane API")', text)
    source = json.loads(text)
    source = source.get("x-derived-from") or source["info"]["x-derived-from"]
    assert source["repository"].startswith("haproxytech/")
    assert re.fullmatch(r"[0-9a-f]{40}", source["commit"])


def test_derivation_keeps_facts_and_leaves_words() -> None:
    specification = {
        "info": {"title": "T", "version": "9", "description": "words"},
        "basePath": "/v9",
        "produces": ["application/json"],
        "security": [{"basic_auth": []}],
        "securityDefinitions": {"basic_auth": {"type": "basic"}},
        "parameters": {
            "which": {"name": "which", "in": "query", "type": "string", "description": "words"}
        },
        "responses": {"Bad": {"description": "words", "schema": {"$ref": "#/definitions/error"}}},
        "definitions": {
            "error": {"type": "object", "properties": {"code": {"type": "integer"}}},
            "acls": {"type": "array", "items": {"$ref": "#/definitions/acl"}},
            "backend_base": {
                "required": ["name"],
                "properties": {"name": {"type": "string", "x-nullable": True, "example": "words"}},
            },
            "backend": {
                "allOf": [
                    {"$ref": "#/definitions/backend_base"},
                    {"properties": {"acl_list": {"$ref": "#/definitions/acls"}}},
                ]
            },
        },
        "paths": {
            "/b": {
                "get": {
                    "operationId": "getB",
                    "summary": "words",
                    "parameters": [{"$ref": "#/parameters/which"}],
                    "responses": {
                        "200": {"schema": {"$ref": "#/definitions/backend"}},
                        "default": {"$ref": "#/responses/Bad"},
                    },
                }
            }
        },
    }
    found = derive.contract(specification, ("/b",))
    validate(found)
    assert "words" not in json.dumps(found)
    get = found["paths"]["/b"]["get"]
    assert get["parameters"] == [
        {"name": "which", "in": "query", "required": False, "schema": {"type": "string"}}
    ]
    assert get["responses"]["200"]["content"]["application/json"]["schema"] == {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "nullable": True},
            "acl_list": {"type": "array", "items": {}},
        },
    }


def test_what_any_part_requires_is_required() -> None:
    parts = [
        {"required": ["name", "id"], "properties": {"name": {}, "id": {}}},
        {"properties": {"mode": {}}},
        {"required": ["mode", "name"]},
    ]
    assert derive._schema({}, {"allOf": parts})["required"] == ["name", "id", "mode"]
    assert "required" not in derive._schema({}, {"allOf": parts[1:2]})


def test_derivation_reads_keys_from_tags() -> None:
    source = (
        'type StorageDataplaneAPIConfiguration struct {\n\tA *int `yaml:"a,omitempty"`\n'
        '\tU []storagetype.U `json:"u" yaml:"us"`\n\tL *x.L `yaml:"l"`\n}\n'
        'type (\n\tU struct {\n\t\tN string `json:"n" yaml:"n"`\n\t}\n)\n'
        'type HAProxyConfiguration struct {\n\tF string `short:"f" description:"words"`\n}\n'
        'var cliOptions struct {\n\tV bool `short:"v" long:"version" description:"words"`\n}\n'
    )
    found = derive.configuration([source])
    assert found["options"] == ["--version", "-f", "-v"]
    assert found["properties"] == {
        "a": {"type": "integer"},
        "us": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"n": {"type": "string"}},
                "additionalProperties": False,
            },
        },
        "l": {},
    }


@major_versions
def test_fields_that_we_read_are_there(major: str) -> None:
    row = schema(major, SERVERS_OPERATION[major])["items"]
    assert row["properties"]["name"] == {"type": "string"}
    assert "required" not in row
    backends = schema(major, "getBackends")
    backend = (backends["properties"]["data"] if major == "v2" else backends)["items"]
    assert backend["required"] == ["name"]
    assert schema(major, "getInfo")["properties"]["api"]["properties"]["version"]


@pytest.fixture(params=MAJORS)
def strict(request: pytest.FixtureRequest) -> ContractServer:
    server = ContractServer(request.param)
    request.addfinalizer(server.stop)
    return server


@pytest.mark.parametrize(
    ("method", "path", "signed", "said"),
    [
        ("GET", "/v1/info", True, "no major version"),
        ("GET", "/{major}/services/haproxy/configuration/backend", True, "Path not found"),
        ("POST", "/{major}/info", True, "Operation post not found"),
        ("GET", "/{major}/info?verbose=1", True, "no such parameter: verbose"),
        ("GET", "/v2/services/haproxy/runtime/servers", True, "parameter: backend"),
        ("GET", "/v2/services/haproxy/runtime/servers?backend=a%3Bb", True, "backend"),
        ("GET", "/v3/services/haproxy/runtime/backends/a%3Bb/servers", True, "parent_name"),
        ("GET", "/{major}/info", False, "Security"),
    ],
)
def test_what_is_not_described_is_a_violation(
    strict: ContractServer, method: str, path: str, signed: bool, said: str
) -> None:
    url = strict.url + path.format(major=strict.speaks)
    auth = (USER, PASSWORD) if signed else None
    answer = httpx.request(method, url, auth=auth, trust_env=False)
    assert answer.status_code in (400, 404)
    assert len(strict.violations) == 1 and said in strict.violations[0]


@pytest.mark.parametrize("rows", [[{"name": 7}], [None], {"name": "x"}, [{"port": 0}]])
def test_answers_of_a_test_must_conform_too(strict: ContractServer, rows: object) -> None:
    strict.answers = Answers(servers={"b": rows})
    path = {
        "v3": "/v3/services/haproxy/runtime/backends/b/servers",
        "v2": "/v2/services/haproxy/runtime/servers?backend=b",
    }[strict.speaks]
    httpx.get(strict.url + path, auth=(USER, PASSWORD), trust_env=False)
    assert len(strict.violations) == 1 and "the test's own answer" in strict.violations[0]


def test_v2_wraps_what_v3_does_not(strict: ContractServer) -> None:
    other = "v2" if strict.speaks == "v3" else "v3"
    strict.answers = Answers(backends=of_backends(other, [{"name": "b"}]))
    path = f"{strict.url}/{strict.speaks}/services/haproxy/configuration/backends"
    httpx.get(path, auth=(USER, PASSWORD), trust_env=False)
    assert strict.violations
