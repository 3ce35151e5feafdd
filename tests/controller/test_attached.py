"""The whole controller on a real HAProxy and a real Prometheus."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from controller.attach import Target, attach, discover
from controller.config import ControllerConfig
from controller.errors import HAProxyAnswer, HAProxyUnavailable, RequestError, TelemetryError
from controller.haproxy import RuntimeSocket
from controller.policies import StaticPolicy, ThresholdPolicy
from controller.records import JsonlRecorder
from controller.telemetry.prometheus import Prometheus, TelemetryConfig
from tests.controller.fake_openai import FakeOpenAI, answer, completion, drip
from tests.controller.rig import Rig, free_port, wait_until

QUICK = ControllerConfig(interval_s=1.0, settle_s=0.1)


@pytest.fixture
def load(prometheus_rig: Rig, rig: Rig) -> Iterator[Rig]:
    """Requests all the time, `api-2` failing all of them."""
    rig.backends[1].status = 500
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.02):
            rig.get()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    yield rig
    stop.set()
    thread.join()


def target(rig: Rig) -> Target:
    return Target(rig.prometheus_url, rig.socket)


def test_threshold_drains_the_failing_server(load: Rig, tmp_path: Path) -> None:
    stop = threading.Event()
    records = []

    def on_step(record: dict) -> None:
        records.append(record)
        if any(r["ok"] and r["action"]["kind"] == "drain" for r in record["results"]):
            stop.set()

    recorder = JsonlRecorder(tmp_path)
    attached = attach(
        target(load),
        ThresholdPolicy(),
        90.0,
        QUICK,
        recorder=recorder,
        stop=stop,
        on_step=on_step,
    )
    result = attached.loop.run()
    attached.close()
    recorder.close()
    assert result.stopped, "nothing was drained"
    stats = {s.slot: s for s in RuntimeSocket(load.socket).server_stats("be_api")}
    assert [s.slot for s in stats.values() if s.admin_state == "drain"] == ["api-2"]
    assert stats["api-2"].weight == 25
    last = records[-1]
    assert {s["server"]: s["admin_state"] for s in last["post"]["servers"]} == {
        "api-1": "ready",
        "api-2": "drain",
        "api-3": "ready",
    }
    seen = {s["server"]: s for s in last["snapshot"]["servers"]}
    assert seen["api-2"]["errors_per_s"] > 0
    assert seen["api-1"]["errors_per_s"] == 0
    assert seen["api-2"]["series"]["status"]["values"][-1] == 1
    assert last["snapshot"]["algorithm"] == "leastconn"
    window = last["snapshot"]["window"]
    assert 0 < window["observed_s"] <= 120
    assert json.loads((tmp_path / "steps.jsonl").read_text().splitlines()[-1]) == last


def test_shadow_decides_and_touches_nothing(load: Rig) -> None:
    records: list[dict] = []
    stop = threading.Event()

    def on_step(record: dict) -> None:
        records.append(record)
        if record["guarded_plan"]:
            stop.set()

    attached = attach(
        target(load), ThresholdPolicy(), 90.0, QUICK, stop=stop, on_step=on_step, shadow=True
    )
    attached.loop.run()
    attached.close()
    assert [r["ok"] for r in records[-1]["results"]] == [False]
    stats = RuntimeSocket(load.socket).server_stats("be_api")
    assert [(s.weight, s.admin_state) for s in stats] == [(100, "ready")] * 3


def test_discovery_chooses_the_backend(rig: Rig) -> None:
    where = Target("http://127.0.0.1:1", rig.socket)
    assert discover(where, QUICK).backend == "be_api"
    assert discover(where, QUICK, "be_other").algorithm == "roundrobin"
    with pytest.raises(RequestError, match="unknown backend 'be_x'; HAProxy has be_api, be_other"):
        discover(where, QUICK, "be_x")


class _DataPlane(BaseHTTPRequestHandler):
    """Speaks v3 and knows `names` as servers of be_api."""

    names = ("api-1", "api-2", "api-3")

    def do_GET(self) -> None:
        pages = {
            "/v3/info": {"api": {"version": "v3.2.5"}},
            "/v3/services/haproxy/configuration/backends": [{"name": "be_api"}],
            "/v3/services/haproxy/runtime/backends/be_api/servers": [
                {"name": name} for name in self.names
            ],
        }
        body = json.dumps(pages.get(self.path)).encode()
        self.send_response(200 if self.path in pages else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.mark.parametrize("names", [("api-1", "api-2", "api-3"), ("api-1", "api-2", "api-4")])
def test_discovery_through_the_data_plane(rig: Rig, names: tuple[str, ...]) -> None:
    handler = type("Handler", (_DataPlane,), {"names": names})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = Target(
        "http://127.0.0.1:1",
        rig.socket,
        dataplane_url=f"http://127.0.0.1:{server.server_address[1]}",
    )
    try:
        if names[-1] == "api-3":
            assert discover(where, QUICK).fleet.servers == {"be_api": names}
        else:
            with pytest.raises(HAProxyAnswer, match="disagree on be_api: api-3, api-4"):
                discover(where, QUICK)
    finally:
        server.shutdown()
        server.server_close()


def test_no_prometheus_is_one_line(rig: Rig) -> None:
    attached = attach(
        Target(f"http://127.0.0.1:{free_port()}", rig.socket), StaticPolicy(), 10.0, QUICK
    )
    with pytest.raises(TelemetryError, match="connection refused"):
        attached.loop.run()
    attached.close()


def test_a_backend_that_prometheus_does_not_know(prometheus_rig: Rig, rig: Rig) -> None:
    prometheus = Prometheus(rig.prometheus_url, TelemetryConfig())
    results = prometheus.read("be_nope", 1_000_000_000.0)
    prometheus.close()
    assert (results.status, results.errors_per_s, results.oldest_s) == ({}, {}, None)


def test_a_haproxy_that_dies_ends_the_loop(prometheus_rig: Rig) -> None:
    own = Rig()
    try:
        process = own.start_haproxy()
        where = Target(prometheus_rig.prometheus_url, own.socket)

        def on_step(_record: dict) -> None:
            process.kill()
            process.wait()

        attached = attach(where, StaticPolicy(), 60.0, QUICK, on_step=on_step)
        with pytest.raises(HAProxyUnavailable):
            attached.loop.run()
        attached.close()
    finally:
        own.stop()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "controller", *arguments]


def test_command_line_runs_in_shadow_and_ends_on_ctrl_c(load: Rig, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(
            "--prometheus", load.prometheus_url, "--haproxy", load.socket, "--shadow",
            "--interval", "1", "--out", str(tmp_path),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    steps = tmp_path / "steps.jsonl"
    try:
        wait_until(lambda: steps.exists() and steps.read_text().count("\n") >= 2, "two steps")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert errors == ""
    assert output.startswith("backend be_api (leastconn): api-1, api-2, api-3; policy threshold,")
    assert "stopped: " in output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--haproxy", "/nonexistent.sock"), "No such file"),
        (("--haproxy", "tcp://x"), "expected tcp://host:port"),
        (("--policy", "llm"), "needs --base-url and --model"),
        (("--base-url", "http://h"), "--base-url is for --policy llm"),
        (("--max-tokens", "9", "--policy", "static"), "--max-tokens is for --policy llm"),
        (("--backend", "be_x"), "unknown backend 'be_x'"),
        (("--config", "/nonexistent.yaml"), "can't read /nonexistent.yaml"),
        (("--duration", "1"), "shorter than one interval"),
        (("--policy", "llm", "--base-url", "http://h", "--model", "m", "--postprocess", "x"),
         "unknown post-processing"),
        (("--prompt", "/nonexistent.yaml", "--policy", "llm", "--base-url", "http://h",
          "--model", "m"), "can't read /nonexistent.yaml"),
        (("--out", "/proc/nope"), "can't write to /proc/nope"),
        (("--prometheus", "http://127.0.0.1:1"), "connection refused"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_one_line_and_exit_code_2(
    rig: Rig, arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from controller.cli import main

    base = ["--prometheus", "http://127.0.0.1:1", "--haproxy", rig.socket]
    handler = signal.getsignal(signal.SIGINT)
    assert main([*base, *arguments]) == 2
    assert signal.getsignal(signal.SIGINT) is handler
    errors = capsys.readouterr().err
    assert word in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--prometheus", "http://h"),
        *(("--interval", "nan"), ("--duration", "-1"), ("--temperature", "x"), ("--policy", "x")),
        *(("--extra-body", "x"), ("--temperature", "nan"), ("--max-tokens", "0")),
        *(("--base-url", "localhost/v1"), ("--dataplane", "localhost")),
        *(("--base-url", "http://["), ("--dataplane", "http://"), ("--base-url", "http://:80")),
        *(("--dataplane", "http://h:99999"), ("--base-url", "http://a b/v1")),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    from controller.cli import main

    needed = ("--prometheus", "http://h", "--haproxy", "/h")
    with pytest.raises(SystemExit) as refused:
        main([*(needed if len(arguments) == 2 and arguments[0] not in needed else ()), *arguments])
    assert refused.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "--help" in line
    assert not arguments or arguments[0] in line or "--haproxy" in line


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    server = FakeOpenAI()
    yield server
    server.stop()


def ask(load: Rig, url: str, *arguments: str) -> int:
    from controller.cli import main

    where = ("--prometheus", load.prometheus_url, "--haproxy", load.socket, "--shadow")
    who = ("--policy", "llm", "--base-url", url, "--model", "m")
    return main([*where, *who, "--interval", "1", *arguments])


def test_an_endpoint_where_nobody_listens_is_refused_at_the_start(
    load: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(load, f"http://127.0.0.1:{free_port()}/v1", "--duration", "2") == 2
    output, errors = capsys.readouterr()
    assert "connection failed" in errors and "nothing was started" in errors
    assert (output, errors.count("\n")) == ("", 1)


def test_a_key_that_is_refused_is_refused_at_the_start(
    load: Rig, model: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    model.models = answer({"error": {"message": "Invalid API Key"}}, 401)
    assert ask(load, model.url, "--duration", "2") == 2
    assert "HTTP 401: Invalid API Key; nothing was started" in capsys.readouterr().err


@pytest.mark.parametrize("status", [404, 500, 503])
def test_an_endpoint_without_a_list_of_models_is_asked_all_the_same(
    load: Rig, model: FakeOpenAI, status: int
) -> None:
    model.models = answer({}, status)
    model.script(completion("Nothing to do."))
    assert ask(load, model.url, "--duration", "2") == 0
    assert model.requests


def test_steps_that_all_get_no_answer_end_with_1(
    load: Rig, model: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    model.script(answer({"error": {"message": "no such model"}}, 404))
    assert ask(load, model.url, "--duration", "2") == 1
    assert capsys.readouterr().err == (
        "error: no step got an answer; the last error: HTTP 404: no such model\n"
    )


def test_one_lost_step_costs_itself(load: Rig, model: FakeOpenAI) -> None:
    lost = answer({"error": {"message": "overloaded"}}, 503)
    model.script(lost, completion("Nothing to do."))
    assert ask(load, model.url, "--duration", "3") == 0
    assert len(model.requests) > 1


def test_a_duration_without_an_answer_in_it_is_said(
    load: Rig, model: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    model.script(drip)
    config = ("--duration", "1.5", "--config", "conf/controller/paper.yaml")
    assert ask(load, model.url, *config) == 1
    assert "no step got an answer; --duration ended" in capsys.readouterr().err


def test_python_m_controller_has_help() -> None:
    done = subprocess.run(
        command("--help"), capture_output=True, text=True, timeout=60, env=os.environ, check=False
    )
    assert done.returncode == 0
    assert "--shadow" in done.stdout
