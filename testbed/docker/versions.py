"""Which version of every program a testbed runs, from the programs and images themselves."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import httpx

from testbed.api import Addresses
from testbed.docker.engine import Engine
from testbed.docker.images import ROLES, VERSIONS_LABEL, Images
from testbed.runtime_socket import ask

_OCI_VERSION = "org.opencontainers.image.version"


def versions_of(
    engine: Engine, images: Images, addresses: Addresses | None, http: httpx.Client
) -> dict[str, str]:
    """By program name; `docker` is the engine, `image <reference>` the id of an image.

    HAProxy and Prometheus are asked when they run; else the images' labels and tags have to do.
    """
    versions = {"docker": engine.api.version()["Version"]}
    for role in ROLES:
        reference = images.references[role]
        versions[f"image {reference}"] = images.ids[role]
        marks = images.labels[role]
        with suppress(ValueError):
            inside = json.loads(marks.get(VERSIONS_LABEL, "{}"))
            # Not to be taken for the Python that the run itself was made with.
            python = inside.pop("python", None)
            versions |= inside | ({"backend python": python} if python else {})
        if role not in versions and role not in ("backend", "dataplane"):
            tag = reference.rsplit(":", 1)[-1]
            versions[role] = str(marks.get(_OCI_VERSION) or tag).removeprefix("v")
    if addresses is not None:
        with suppress(OSError, httpx.HTTPError, KeyError, ValueError):
            versions["haproxy"] = haproxy_version(ask(addresses.runtime_socket, "show info"))
            build: Any = http.get(f"{addresses.prometheus_url}/api/v1/status/buildinfo").json()
            versions["prometheus"] = build["data"]["version"]
    return versions


def haproxy_version(info: str) -> str:
    """The version in the answer to `show info`. Raises ValueError."""
    for line in info.splitlines():
        if line.startswith("Version: "):
            return line.removeprefix("Version: ").split("-")[0].strip()
    raise ValueError("`show info` names no version")
