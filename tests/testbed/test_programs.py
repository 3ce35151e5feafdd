"""Looking programs up."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import programs
from testbed.errors import ProgramMissing
from testbed.factory import check
from tests.testbed import builders


def script(path: Path, says: str) -> str:
    """A program that only says its version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program anywhere, and none in packages."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("DRAINBENCH_CACHE", str(tmp_path / "cache"))
    for program in programs.PROGRAMS.values():
        monkeypatch.delenv(program.variable, raising=False)
    monkeypatch.setattr(programs, "_in_package", lambda *_: None)
    monkeypatch.setattr(programs.sysconfig, "get_path", lambda _: str(tmp_path / "scripts"))


def test_all_that_is_missing_is_said_in_one_go_with_the_way_to_get_it() -> None:
    lines = programs.missing()
    assert [line.split(":")[0] for line in lines] == ["haproxy", "prometheus", "redis", "k6"]
    assert all("get it with: " in line and "\n" not in line for line in lines)
    assert check("local", builders.spec()) == lines


def test_the_order_of_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    says = "prometheus, version 2.42.0"
    cached = script(tmp_path / "cache" / "prometheus" / "usr" / "bin" / "prometheus", says)
    assert programs.find("prometheus") == cached
    on_path = script(tmp_path / "bin" / "prometheus", says)
    assert programs.find("prometheus") == on_path
    variable = script(tmp_path / "variable", says)
    monkeypatch.setenv("DRAINBENCH_PROMETHEUS", variable)
    assert programs.find("prometheus") == variable
    configured = script(tmp_path / "configured", says)
    assert programs.find("prometheus", {"prometheus": configured}) == configured


def test_what_was_asked_for_is_never_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script(tmp_path / "bin" / "prometheus", "prometheus, version 2.42.0")
    with pytest.raises(ProgramMissing, match="/nowhere is no executable file"):
        programs.find("prometheus", {"prometheus": "/nowhere"})
    monkeypatch.setenv("DRAINBENCH_PROMETHEUS", script(tmp_path / "other", "hello"))
    with pytest.raises(ProgramMissing, match="DRAINBENCH_PROMETHEUS"):
        programs.find("prometheus")


def test_an_haproxy_without_the_exporter_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script(tmp_path / "bin" / "haproxy", "HAProxy version 2.8.0")
    with pytest.raises(ProgramMissing, match="without the Prometheus exporter"):
        programs.find("haproxy")
    full = "HAProxy version 2.6.12\nBuilt with the Prometheus exporter as a service"
    script(tmp_path / "wheel" / "haproxy", full)
    monkeypatch.setattr(programs, "_in_package", lambda *_: tmp_path / "wheel" / "haproxy")
    assert programs.find("haproxy") == str(tmp_path / "wheel" / "haproxy")
    assert programs.versions({"haproxy": programs.find("haproxy")}) == {"haproxy": "2.6.12"}


def test_an_old_haproxy_is_refused(tmp_path: Path) -> None:
    old = "HA-Proxy version 2.2.9-2+deb11u6\nBuilt with the Prometheus exporter as a service"
    script(tmp_path / "bin" / "haproxy", old)
    with pytest.raises(ProgramMissing, match=r"HAProxy 2\.2\.9, 2\.4 or newer"):
        programs.find("haproxy")


@pytest.mark.parametrize(
    ("version", "works"), [("0.53.0", True), ("1.4.2", True), ("2.0.1", False)]
)
def test_k6_2_has_no_redis_but_can_write_a_file(tmp_path: Path, version: str, works: bool) -> None:
    path = script(tmp_path / "bin" / "k6", f"k6 v{version} (commit/0, go1.24, linux/amd64)")
    assert programs.missing(["k6"], telemetry="file") == []
    lines = programs.missing(["k6"], telemetry="redis")
    assert (lines == []) is works
    if not works:
        assert f"{path} is version {version}" in lines[0]
        assert "0.53 to 1.x" in lines[0]
        assert "load.telemetry=file" in lines[0]


def test_a_program_that_hangs_or_crashes_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "bin" / "redis-server"
    path.parent.mkdir()
    path.write_text("#!/nonexistent\n")
    path.chmod(0o755)
    with pytest.raises(ProgramMissing, match="is no redis that can be run"):
        programs.find("redis")
