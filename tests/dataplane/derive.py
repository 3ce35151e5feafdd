"""Derives `data/` from what HAProxy Technologies publishes, so that anyone can do it again.

    git clone --bare https://github.com/haproxytech/client-native CLONES/client-native
    git clone --bare https://github.com/haproxytech/dataplaneapi CLONES/dataplaneapi
    python -m tests.dataplane.derive CLONES

What is kept are facts of the interface and nothing else: paths, parameters, security, status codes,
and schemas down to names, types, bounds, patterns, enumerations and what is required. Descriptions,
examples and code stay where they are. Definitions that a backend refers to are cut to their type:
nothing here reads them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data"

Json = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Files of one repository at one commit."""

    repository: str
    """Owner and name on GitHub; the clone is a folder of that name."""
    tag: str
    commit: str
    paths: tuple[str, ...]

    def read(self, clones: Path) -> list[str]:
        """Text of each file. Raises `subprocess.CalledProcessError` where the clone lacks it."""
        clone = clones / self.repository.split("/")[1]
        show = ["git", "-C", str(clone), "show"]
        return [
            subprocess.run(
                [*show, f"{self.commit}:{path}"], check=True, capture_output=True, text=True
            ).stdout
            for path in self.paths
        ]

    def named(self) -> Json:
        """What is written into the data."""
        return {
            "repository": self.repository,
            "tag": self.tag,
            "commit": self.commit,
            "paths": list(self.paths),
        }


# What the API's 3.2.12 (which CI builds where it can) and its last 2.9 are made from.
SPECIFICATIONS = {
    "v3": Source(
        "haproxytech/client-native",
        "v6.2.13",
        "562f0d2c417ae576991fceccdc8a9fd20a3611b2",
        ("specification/build/haproxy_spec.yaml",),
    ),
    "v2": Source(
        "haproxytech/client-native",
        "v5.1.27",
        "6887952609a28a3c83f93e80e0cd0e1c792c52f8",
        ("specification/build/haproxy_spec.yaml",),
    ),
}
OPERATIONS = {
    "v3": (
        "/info",
        "/services/haproxy/configuration/backends",
        "/services/haproxy/runtime/backends/{parent_name}/servers",
    ),
    "v2": (
        "/info",
        "/services/haproxy/configuration/backends",
        "/services/haproxy/runtime/servers",
    ),
}
"""What drainbench asks for, all of it by GET."""

_FOLLOWED = {"info", "error", "backends", "backend", "backend_base"}
_FOLLOWED |= {"runtime_servers", "runtime_server"}

CONFIGURATIONS = {
    "v3": Source(
        "haproxytech/dataplaneapi",
        "v3.2.12",
        "2abf6232e329700061d13a4ab0976f82fd9260a5",
        (
            "configuration/configuration_storage.go",
            "storagetype/user.go",
            "configuration/configuration.go",
            "cmd/dataplaneapi/main.go",
        ),
    ),
    "v2": Source(
        "haproxytech/dataplaneapi",
        "v2.9.27",
        "9818b7d10e6ba88d247a9a547814ab854da4038e",
        (
            "configuration/configuration_storage.go",
            "configuration/configuration.go",
            "cmd/dataplaneapi/main.go",
        ),
    ),
}


# --- the API's own description --------------------------------------------------------------------


def contract(specification: Json, paths: tuple[str, ...]) -> Json:
    """An OpenAPI 3.0 document of these paths out of the published Swagger 2.0 one."""
    return {
        "openapi": "3.0.3",
        "info": {key: specification["info"][key] for key in ("title", "version")},
        "servers": [{"url": specification["basePath"]}],
        "security": specification["security"],
        "paths": {
            path: {"get": _operation(specification, specification["paths"][path]["get"])}
            for path in paths
        },
        "components": {
            "securitySchemes": {
                name: {"type": "http", "scheme": scheme["type"]}
                for name, scheme in specification["securityDefinitions"].items()
                if scheme["type"] == "basic"
            }
        },
    }


def _operation(specification: Json, operation: Json) -> Json:
    parameters = [_resolve(specification, p) for p in operation.get("parameters", [])]
    return {
        "operationId": operation["operationId"],
        **({"security": operation["security"]} if "security" in operation else {}),
        "parameters": [_parameter(specification, parameter) for parameter in parameters],
        "responses": {
            status: _response(specification, _resolve(specification, response))
            for status, response in operation["responses"].items()
        },
    }


def _parameter(specification: Json, parameter: Json) -> Json:
    return {
        "name": parameter["name"],
        "in": parameter["in"],
        "required": parameter.get("required", False),
        "schema": _schema(specification, parameter, names_required=False),
    }


def _response(specification: Json, response: Json) -> Json:
    schema = _schema(specification, response["schema"])
    # OpenAPI wants a description; ours is empty.
    return {"description": "", "content": {specification["produces"][0]: {"schema": schema}}}


def _resolve(specification: Json, node: Json) -> Json:
    while "$ref" in node:
        _, kind, name = node["$ref"].split("/")
        node = specification[kind][name]
    return node


def _schema(specification: Json, schema: Json, *, names_required: bool = True) -> Json:
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        target = _resolve(specification, schema)
        if name not in _FOLLOWED:
            kind = target.get("type", "object")
            return {"type": kind, "items": {}} if kind == "array" else {"type": kind}
        return _schema(specification, target)
    if "allOf" in schema:
        parts = [_schema(specification, part) for part in schema["allOf"]]
        merged: Json = {"type": "object", "properties": {}}
        for part in parts:
            merged["properties"] |= part.pop("properties", {})
            required = [*merged.get("required", []), *part.get("required", [])]
            merged |= part
            if required:
                merged["required"] = list(dict.fromkeys(required))
        return merged
    plain = ("type", "format", "enum", "pattern", "minimum", "maximum")
    kept = {key: schema[key] for key in plain if key in schema}
    if names_required and "required" in schema:
        kept["required"] = schema["required"]
    if schema.get("x-nullable"):
        kept["nullable"] = True
    if "properties" in schema:
        kept.setdefault("type", "object")
        kept["properties"] = {
            name: _schema(specification, inner) for name, inner in schema["properties"].items()
        }
    if "items" in schema:
        kept["items"] = _schema(specification, schema["items"])
    more = schema.get("additionalProperties")
    if more is not None:
        kept["additionalProperties"] = (
            more if isinstance(more, bool) else _schema(specification, more)
        )
    return kept


# --- the API's configuration file and options -----------------------------------------------------

_STRUCT = re.compile(r"^\t?(?:type )?(\w+) +struct \{\n(.*?)^\t?\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r'^\s*\w+\s+(\S+)\s+`[^`\n]*?\byaml:"(\w+)[^`]*`', re.MULTILINE)
_OPTION = re.compile(r'`[^`\n]*?(?:short:"(\w)" ?)?(?:long:"([\w-]+)" )?description:"')
_SCALARS = {"string": "string", "flags.Filename": "string", "bool": "boolean"}
_SCALARS |= {"int": "integer", "int64": "integer"}


def configuration(sources: list[str]) -> Json:
    """JSON Schema of the configuration file, and the names of the program's options.

    `sources` are Go files; the fields' tags carry the keys. Types of other packages are open.
    """
    structs: dict[str, str] = {}
    for text in sources:
        for name, body in _STRUCT.findall(text):
            structs.setdefault(name, body)
    options = set()
    for name in ("HAProxyConfiguration", "cliOptions"):
        body = structs.get(name) or _variable(sources, name)
        for short, long in _OPTION.findall(body):
            options |= {f"-{short}"} if short else set()
            options |= {f"--{long}"} if long else set()
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "options": sorted(options),
        **_go_type("StorageDataplaneAPIConfiguration", structs),
    }


def _variable(sources: list[str], name: str) -> str:
    pattern = re.compile(rf"^var {name} struct \{{\n(.*?)^\}}", re.MULTILINE | re.DOTALL)
    return next(found[1] for text in sources if (found := pattern.search(text)))


def _go_type(kind: str, structs: dict[str, str]) -> Json:
    kind = kind.removeprefix("*")
    if kind.startswith("[]"):
        return {"type": "array", "items": _go_type(kind[2:], structs)}
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    name = kind.removeprefix("storagetype.")
    if "." in name or name not in structs:
        return {}
    fields = _FIELD.findall(structs[name])
    return {
        "type": "object",
        "properties": {key: _go_type(inner, structs) for inner, key in fields},
        "additionalProperties": False,
    }


def main() -> None:
    """Write `data/` anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", type=Path, help="folder with both clones")
    clones = parser.parse_args().clones
    for major, source in SPECIFICATIONS.items():
        specification = yaml.load(source.read(clones)[0], yaml.SafeLoader)
        document = contract(specification, OPERATIONS[major])
        document["info"]["x-derived-from"] = source.named()
        _write(f"dataplane-{major}.json", document)
    for major, source in CONFIGURATIONS.items():
        schema = configuration(source.read(clones))
        _write(f"configuration-{major}.json", {"x-derived-from": source.named(), **schema})


def _write(name: str, document: Json) -> None:
    (DATA / name).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
