"""Images as files, and the command line's part in it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import httpx
import pytest
from docker.errors import ImageNotFound

from testbed.backend.settings import to_environment
from testbed.docker import build, debian, images
from testbed.docker.engine import Engine
from testbed.docker.settings import DockerSettings
from testbed.docker.versions import versions_of
from testbed.errors import ProgramMissing, TestbedUnavailable
from tests.testbed import builders


@pytest.fixture
def scratch(engine: Engine) -> Iterator[str]:
    """A very small image."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo("hello")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"hello"))
    tag = uuid.uuid4().hex[:8]
    engine.api.import_image_from_data(content.getvalue(), "drainbench/test", tag)
    name = f"drainbench/test:{tag}"
    yield name
    engine.api.remove_image(name, force=True)


def test_an_image_moves_as_a_file(engine: Engine, scratch: str, tmp_path: Path) -> None:
    file = tmp_path / "images.tar"
    said: list[str] = []
    before = engine.api.inspect_image(scratch)["Id"]
    build.save(engine, [scratch], file, said.append)
    assert [path.name for path in tmp_path.iterdir()] == ["images.tar"]
    engine.api.remove_image(scratch, force=True)
    with pytest.raises(ImageNotFound):
        engine.api.inspect_image(scratch)
    assert build.load(engine, file, said.append) == [scratch]
    assert engine.api.inspect_image(scratch)["Id"] == before
    assert any("saved by another version" in line for line in said)


def test_files_that_can_not_be_used_are_named(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(TestbedUnavailable, match="can't load"):
        build.load(engine, tmp_path / "none.tar", print)
    (tmp_path / "no.tar").write_text("this is no image")
    with pytest.raises(TestbedUnavailable, match="can't load"):
        build.load(engine, tmp_path / "no.tar", print)
    with pytest.raises(TestbedUnavailable, match="can't write"):
        build.save(engine, [images.debian_image()], tmp_path / "no" / "dir.tar", print)


def test_an_engine_that_breaks_off_is_not_called_a_full_disk(
    engine: Engine, tmp_path: Path
) -> None:
    with pytest.raises(TestbedUnavailable, match="the engine did not give all of drainbench/no:1"):
        build.save(engine, ["drainbench/no:1"], tmp_path / "images.tar", print)
    assert list(tmp_path.iterdir()) == []


def test_the_backends_dockerfile_has_what_it_copies(tmp_path: Path) -> None:
    build.fill_backend_context(tmp_path)
    text = (tmp_path / "Dockerfile").read_text()
    copied = re.findall(r"(?m)^COPY (\S+) \S+$", text)
    assert copied and all((tmp_path / name).exists() for name in copied)
    assert text.count("COPY") == len(copied)
    # As pinned as the lock is, and the Python that the image with everything has.
    assert re.search(rf"(?m)^FROM python:{re.escape(debian.PYTHON)}\.\d+-slim-bookworm$", text)
    assert text.rstrip().splitlines()[-1] == "USER 65534:65534"


def test_the_backends_image_needs_nothing_beyond_its_lock(tmp_path: Path) -> None:
    """The application starts from what the Dockerfile copies and the lock installs, alone."""
    context, installed = tmp_path / "context", tmp_path / "installed"
    context.mkdir()
    installed.mkdir()
    build.fill_backend_context(context)
    lock = (context / "requirements.lock").read_text()
    for name in re.findall(r"(?m)^([\w.-]+)==", lock):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top != ".." and not (installed / top).exists():
                (installed / top).symlink_to(distribution(name).locate_file(top))
    code = (
        f"import sys; sys.path[:0] = [{str(context)!r}, {str(installed)!r}]\n"
        "import gunicorn.app.wsgiapp, gunicorn.workers.gthread\n"
        "import testbed.backend.app, testbed.backend.gunicorn_conf\n"
        "from testbed.backend.settings import to_environment\n"
        "app = testbed.backend.app.create_app({'INSTANCE': '1', 'DRAINBENCH_FLEET': sys.argv[1]})\n"
        "assert app.test_client().get('/work').status_code in (200, 500)\n"
        "assert app.test_client().get('/metrics').status_code == 200\n"
    )
    fleet = to_environment(builders.fleet())["DRAINBENCH_FLEET"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, fleet], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_data_plane_api_that_was_asked_for_must_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAINBENCH_DATAPLANEAPI", str(tmp_path / "none"))
    nobody = Engine(None)  # type: ignore[arg-type]
    with pytest.raises(ProgramMissing, match=r"none is no executable file.*DATAPLANEAPI"):
        build.build_debian(nobody, print)


def test_our_image_says_what_is_inside(engine: Engine) -> None:
    found = images.resolve(engine, DockerSettings())
    assert found.prometheus_version >= (2, 40)
    marks = engine.api.inspect_image(images.debian_image())["Config"]["Labels"]
    assert '"haproxy": "2.' in marks[images.VERSIONS_LABEL]


def test_versions_are_told_without_a_testbed(engine: Engine) -> None:
    settings = DockerSettings()
    found = versions_of(engine, images.resolve(engine, settings), None, httpx.Client())
    assert {"docker", "haproxy", "prometheus", "redis", "k6", "flask", "gunicorn"} <= found.keys()
    assert found["backend python"] == debian.PYTHON
    assert "python" not in found, "that is the version of the Python which makes the run"


def test_what_is_here_is_not_built_again(engine: Engine) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "build-image"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"ready: {images.debian_image()}"
    assert time.monotonic() - began < 60


def test_no_debootstrap_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(debian.shutil, "which", lambda *_, **__: None)
    with pytest.raises(TestbedUnavailable, match=r"apt-get install debootstrap.*--load FILE"):
        debian.bootstrap(tmp_path, print)
    monkeypatch.undo()
    monkeypatch.setattr(debian.shutil, "which", lambda *_, **__: "/bin/false")
    monkeypatch.setattr(debian.os, "geteuid", lambda: 1000)
    with pytest.raises(TestbedUnavailable, match=r"needs root.*--load FILE"):
        debian.bootstrap(tmp_path, print)


def test_a_failing_build_shows_the_tools_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "debootstrap"
    tool.write_text('#!/bin/sh\necho "I: Retrieving InRelease"\necho "E: no mirror"\nexit 7\n')
    tool.chmod(0o755)
    monkeypatch.setattr(debian.shutil, "which", lambda *_, **__: str(tool))
    monkeypatch.setattr(debian.os, "geteuid", lambda: 0)
    said: list[str] = []
    with pytest.raises(TestbedUnavailable, match=r"exit code 7.*no mirror"):
        debian.bootstrap(tmp_path / "root", said.append)
    assert said[0] == "Retrieving InRelease"
