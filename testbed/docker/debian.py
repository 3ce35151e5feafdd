"""A root file system from Debian's packages alone: the base of the image with everything."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.docker.images import SOURCES
from testbed.errors import TestbedUnavailable

SUITE = "bookworm"
PYTHON = "3.11"
"""Python of `SUITE`: the wheels of the lock are chosen for it, whatever runs the build."""

PROGRAMS = {"haproxy": "haproxy", "prometheus": "prometheus", "redis-server": "redis"}
"""Debian package to component: whose versions the image's label records."""

# Nothing that a testbed runs reads any of this; it is a third of the size.
_SURPLUS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/bin/promtool",
    "var/lib/apt/lists",
    "var/cache/apt",
)

Report = Callable[[str], None]


def packages() -> list[str]:
    """Names in packages.txt."""
    lines = (SOURCES / "packages.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def digest() -> str:
    """Changes whenever the base has to be built anew."""
    return hashlib.sha256(f"{SUITE} {packages()} {_SURPLUS}".encode()).hexdigest()[:12]


def base_image() -> str:
    """Reference of the base image."""
    return f"drainbench/base:{digest()}"


def parse_versions(dpkg_status: str) -> dict[str, str]:
    """Upstream version of each of `PROGRAMS` by component, from dpkg's status file."""
    versions = {}
    for paragraph in dpkg_status.split("\n\n"):
        fields = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if ": " in line and line[0] != " "
        )
        component = PROGRAMS.get(fields.get("Package", ""))
        if component:
            upstream = fields["Version"].split(":", 1)[-1].rsplit("-", 1)[0]
            versions[component] = upstream.split("+", 1)[0]
    return versions


def bootstrap(root: Path, report: Report) -> dict[str, str]:
    """Fill `root` and return the programs' versions by component.

    Raises `TestbedUnavailable` without debootstrap or root's rights, or with its last lines.
    """
    tool = shutil.which("debootstrap") or shutil.which("debootstrap", path="/usr/sbin:/sbin")
    if tool is None:
        raise TestbedUnavailable(
            "debootstrap is missing: apt-get install debootstrap, or take the image from a node "
            "that has it (python -m testbed build-image --save FILE there, --load FILE here)"
        )
    if os.geteuid() != 0:
        raise TestbedUnavailable(
            "debootstrap needs root: run build-image with sudo, or take the image from a node "
            "that has it (--save FILE there, --load FILE here)"
        )
    command = [tool, "--variant=minbase", "--include=" + ",".join(packages()), SUITE, str(root)]
    _run(command, report)
    for surplus in _SURPLUS:
        path = root / surplus
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return parse_versions((root / "var/lib/dpkg/status").read_text())


def _run(command: Iterable[str], report: Report) -> None:
    lines: list[str] = []
    with subprocess.Popen(
        list(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            report(line.strip().removeprefix("I: "))
    if process.returncode:
        last = " | ".join(lines[-4:])
        raise TestbedUnavailable(f"debootstrap failed (exit code {process.returncode}): {last}")
