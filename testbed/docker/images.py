"""Which images a testbed runs on, and whether they are here (paper, §4.1 and §4.3).

`official` are the vendors' images at pinned tags and a small one of ours for the backends;
`debian` is one image with every program, built without any registry (see `build`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from docker.errors import ImageNotFound

from testbed.docker.engine import Engine
from testbed.docker.settings import DockerSettings
from testbed.errors import TestbedUnavailable

Role = Literal["haproxy", "dataplane", "prometheus", "redis", "k6", "backend"]
ROLES: tuple[Role, ...] = ("haproxy", "dataplane", "prometheus", "redis", "k6", "backend")

SOURCES = Path(__file__).parent / "image"
"""What our own images are made of: Dockerfiles, package list, lock."""
ROOM = Path(__file__).parent.parent
BACKEND_FILES = ("__init__.py", "api.py", "backend")
"""Of this room: the Flask application, the same for every driver, and what it imports."""

DATAPLANE_LABEL = "drainbench.dataplaneapi"
VERSIONS_LABEL = "drainbench.versions"

# The paper's versions where it names one (Prometheus and k6). k6 2 has no `k6/experimental/redis`.
OFFICIAL: Mapping[str, str] = {
    "haproxy": "haproxytech/haproxy-debian:3.2.7",
    "prometheus": "prom/prometheus:v3.8.1",
    "redis": "redis:7.4.2-alpine",
    "k6": "grafana/k6:1.4.2",
}


@cache
def source_digest() -> str:
    """Twelve hex digits over everything that our own images are made of."""
    digest = hashlib.sha256()
    for root in (SOURCES, *(ROOM / name for name in BACKEND_FILES)):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOM)).encode() + b"\0")
                digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def debian_image() -> str:
    """Reference of the image with everything; it changes with its sources."""
    return f"drainbench/testbed:{source_digest()}"


def backend_image() -> str:
    """Reference of the backends' image in the `official` set; it changes with its sources."""
    return f"drainbench/backend:{source_digest()}"


def references(settings: DockerSettings) -> dict[str, str]:
    """Image reference by role. The Data Plane API's is HAProxy's unless it is named itself."""
    if settings.images == "debian":
        names = dict.fromkeys(ROLES, debian_image())
    else:
        names = {**OFFICIAL, "backend": backend_image()}
    unknown = settings.image_names.keys() - set(ROLES)
    if unknown:
        raise TestbedUnavailable(
            f"testbed.image_names: {', '.join(sorted(unknown))} is not one of {', '.join(ROLES)}"
        )
    names |= settings.image_names
    names["dataplane"] = settings.image_names.get("dataplane", names["haproxy"])
    return names


def how_to_get(reference: str) -> str:
    """The command that brings `reference` here."""
    if reference.startswith("drainbench/testbed:"):
        return f"python -m testbed build-image {_OR_LOAD}"
    if reference.startswith("drainbench/backend:") or reference in OFFICIAL.values():
        return f"python -m testbed build-image --set official {_OR_LOAD}"
    return f"docker pull {reference}"


_OR_LOAD = "(or --load FILE, saved on another node with --save FILE)"


def missing_text(references: Sequence[str]) -> str:
    """What is missing and how to get it, each command once."""
    by_command: dict[str, list[str]] = {}
    for name in references:
        by_command.setdefault(how_to_get(name), []).append(name)
    parts = (f"{', '.join(names)}: {command}" for command, names in by_command.items())
    return "missing Docker images: " + "; ".join(parts)


@dataclass(frozen=True)
class Images:
    """Images that are here: reference and id by role, and the labels of each."""

    references: Mapping[str, str]
    ids: Mapping[str, str]
    labels: Mapping[str, Mapping[str, str]]

    @property
    def dataplane(self) -> bool:
        """Whether HAProxy's image has the Data Plane API inside."""
        # The vendor's images have it; a mirror puts its own host before the name.
        vendors = "haproxytech" in self.references["dataplane"].split("/")
        return vendors or bool(self.labels["dataplane"].get(DATAPLANE_LABEL))

    @property
    def prometheus_version(self) -> tuple[int, ...]:
        """Version of Prometheus as far as label or tag tell; empty where they do not."""
        versions = json.loads(self.labels["prometheus"].get(VERSIONS_LABEL, "{}"))
        tag = self.references["prometheus"].rpartition(":")[2]
        text = str(versions.get("prometheus") or tag)
        return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def resolve(engine: Engine, settings: DockerSettings) -> Images:
    """The images of `settings`. Raises `TestbedUnavailable` naming all that are missing."""
    names = references(settings)
    found: dict[str, dict] = {}
    missing: list[str] = []
    for name in dict.fromkeys(names.values()):
        try:
            found[name] = engine.api.inspect_image(name)
        except ImageNotFound:
            missing.append(name)
    if missing:
        raise TestbedUnavailable(missing_text(missing))
    return Images(
        names,
        {role: found[name]["Id"] for role, name in names.items()},
        {role: found[name]["Config"].get("Labels") or {} for role, name in names.items()},
    )


def require_dataplane(settings: DockerSettings, found: Images) -> bool:
    """Whether a testbed has a Data Plane API. Raises `TestbedUnavailable` where it can't."""
    if settings.dataplane == "on" and not found.dataplane:
        raise TestbedUnavailable(
            f"testbed.dataplane=on, but {found.references['dataplane']} has no Data Plane API "
            "inside: build it again where dataplaneapi is on PATH, or use testbed.images=official"
        )
    return settings.dataplane != "off" and found.dataplane
