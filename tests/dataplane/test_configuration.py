"""The file and the options that the Data Plane API is started with, against those it has."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from testbed.config.dataplane import render
from testbed.docker import plan
from testbed.local.layout import Layout
from tests.dataplane import derive
from tests.dataplane.server import DATA, MAJORS


def published(major: str) -> dict[str, Any]:
    return json.loads((DATA / f"configuration-{major}.json").read_text())


def ours() -> dict[str, Any]:
    text = render(
        bind="127.0.0.1",
        port=0,
        user="me",
        password="secret",
        haproxy_config="/copy/haproxy.cfg",
        haproxy="/bin/haproxy",
        scratch="/scratch",
    )
    return json.loads(text)


@pytest.mark.parametrize("major", MAJORS)
def test_the_schema_names_its_source(major: str) -> None:
    schema = published(major)
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["x-derived-from"] == derive.CONFIGURATIONS[major].named()


def test_every_key_is_one_that_v3_reads() -> None:
    jsonschema.validate(ours(), published("v3"))


def test_v2_reads_all_but_the_store_that_came_with_v3() -> None:
    # Its loader passes over keys that it does not know, so one file serves both.
    config = ours()
    config["dataplaneapi"]["resources"].pop("dataplane_storage_dir")
    jsonschema.validate(config, published("v2"))


@pytest.mark.parametrize("major", MAJORS)
def test_a_wrong_key_or_type_would_be_seen(major: str) -> None:
    good = ours()
    good["dataplaneapi"]["resources"].pop("dataplane_storage_dir")
    for path, value in [
        (("haproxy", "config"), "x"),
        (("dataplaneapi", "users"), []),
        (("dataplaneapi", "port"), "5555"),
        (("haproxy", "reload", "reload_command"), "true"),
    ]:
        wrong = copy.deepcopy(good)
        inner = wrong
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, published(major))


def test_it_can_not_touch_haproxys_own() -> None:
    haproxy = ours()["haproxy"]
    assert haproxy["config_file"] == "/copy/haproxy.cfg"
    # The custom strategy demands both commands; neither does anything.
    reload = haproxy["reload"]
    assert reload["reload_strategy"] == "custom"
    assert (reload["reload_cmd"], reload["restart_cmd"]) == ("true", "true")


def test_only_who_has_the_password_is_let_in_and_only_here() -> None:
    config = ours()["dataplaneapi"]
    assert config["host"] == "127.0.0.1"
    assert config["user"] == [{"name": "me", "password": "secret", "insecure": True}]


@pytest.mark.parametrize("major", MAJORS)
def test_options_are_ones_that_the_program_has(major: str, tmp_path: Path) -> None:
    options = published(major)["options"]
    plans = plan.service_plans(dataplane=True, prometheus_version=(3, 8))
    docker = next(p.command for p in plans if p.component == "dataplane")
    local = Layout(tmp_path).dataplane("dataplaneapi").argv
    for command in (docker, local):
        assert command[0] == "dataplaneapi"
        assert command[1] in options and len(command) == 3
    assert "--version" in options
