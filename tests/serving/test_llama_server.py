"""The real llama-server with a real model: it runs as asked or says why not; nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from serving.api import EndpointInfo, Mode, ModelSpec, Sampling, ServerSpec, Weights
from serving.errors import (
    EndpointUnreachable,
    ModeHasNoEffect,
    NoRoomOnGpu,
    ProgramMissing,
    ServerDied,
    ServerMismatch,
    StartTimeout,
    WeightsMissing,
)
from serving.leftovers import start_ticks, state_dir, sweep_leftovers
from serving.llama_server import LlamaServer
from serving.probe import http_client, render_prompt, verify_modes, warm_up
from tests.serving.test_child import wait_until_gone

TOOL = {
    "type": "function",
    "function": {"name": "drain", "parameters": {"type": "object", "properties": {}}},
}
OWNER = """
import sys, time
from pathlib import Path
from serving.api import ServerSpec
from serving.llama_server import LlamaServer
from serving.registry import load_model
server = LlamaServer(
    load_model(Path(sys.argv[1])), ServerSpec(context_per_slot=512, program=sys.argv[2])
)
print(server.start().report["pid"], flush=True)
time.sleep(600)
"""


def two_modes(model: ModelSpec) -> ModelSpec:
    sampling = Sampling(temperature=1.0, top_p=0.95)
    modes = tuple(
        Mode(name, sampling, {"enable_thinking": flag})
        for name, flag in (("think", True), ("nothink", False))
    )
    return replace(model, modes=modes)


def running_of_ours() -> set[str]:
    return {path.name for path in state_dir().glob("*.json")}


@pytest.fixture(scope="module")
def running(
    smollm2: ModelSpec, real_server: ServerSpec, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LlamaServer, EndpointInfo]]:
    server = LlamaServer(smollm2, real_server, tmp_path_factory.mktemp("log") / "server.log")
    info = server.start()
    yield server, info
    server.stop()


def test_it_reports_what_it_was_asked_for(running: tuple[LlamaServer, EndpointInfo]) -> None:
    server, info = running
    assert info.base_url.startswith("http://127.0.0.1:") and info.base_url.endswith("/v1")
    assert info.model == "smollm2-135m"
    assert info.context_per_slot == 2048
    assert info.report["slots"] == 1
    assert info.report["context_trained"] == 8192
    assert info.report["supports_tools"] is False
    assert "knows no tools" in info.report["warnings"][0]
    assert info.version.startswith("llama-server ")
    assert Path(info.report["log"]).read_text()
    assert server.start() is info  # a second start is the same server
    server.check()


def test_it_answers_and_is_alive_and_warm(running: tuple[LlamaServer, EndpointInfo]) -> None:
    server, info = running
    assert server.alive()
    assert warm_up(info, "You are a controller.", [TOOL]) > 0
    with http_client(info.base_url, info.api_key, 120.0) as client:
        answer = client.post(
            "chat/completions",
            json={"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4},
        ).json()
    assert answer["model"] == info.model
    assert 1 <= answer["usage"]["completion_tokens"] <= 4


def test_the_key_is_required_and_not_on_the_command_line(
    running: tuple[LlamaServer, EndpointInfo],
) -> None:
    _, info = running
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = httpx.post(f"{info.base_url}/chat/completions", json=body, headers=headers)
        assert answer.status_code == 401
    command_line = Path(f"/proc/{info.report['pid']}/cmdline").read_bytes().decode()
    assert info.api_key not in command_line
    assert info.api_key not in repr(info)
    assert info.api_key not in Path(info.report["log"]).read_text()
    assert len(info.api_key) >= 32


def test_prompts_of_others_can_not_be_read(running: tuple[LlamaServer, EndpointInfo]) -> None:
    _, info = running
    with http_client(info.base_url.removesuffix("/v1"), info.api_key, 60.0) as client:
        assert client.get("/slots").status_code == 501
        assert client.get("/").status_code == 404


def test_a_prompt_over_the_context_is_refused_at_warm_up(
    running: tuple[LlamaServer, EndpointInfo],
) -> None:
    with pytest.raises(EndpointUnreachable, match=r"HTTP 400.*context size"):
        warm_up(running[1], "word " * 4000)


def test_one_mode_has_nothing_to_differ_from(
    running: tuple[LlamaServer, EndpointInfo], smollm2: ModelSpec
) -> None:
    digests = verify_modes(running[1], smollm2)
    assert list(digests) == ["none"] and len(digests["none"]) == 64


def test_a_template_that_ignores_the_mode_is_refused(
    running: tuple[LlamaServer, EndpointInfo], smollm2: ModelSpec
) -> None:
    with pytest.raises(ModeHasNoEffect, match=r"`think` and `nothink` .* ignores enable_thinking"):
        verify_modes(running[1], two_modes(smollm2))


def test_a_template_that_heeds_the_mode_and_several_slots(
    smollm2: ModelSpec, real_server: ServerSpec, tmp_path: Path
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n{% if not enable_thinking %}<think></think>{% endif %}"
    )
    spec = replace(real_server, slots=2, extra_args=("--chat-template-file", str(template)), port=0)
    server = LlamaServer(smollm2, spec)
    try:
        info = server.start()
        assert info.report["slots"] == 2
        assert info.context_per_slot == 2048  # each, not shared
        digests = verify_modes(info, two_modes(smollm2))
        assert digests["think"] != digests["nothink"]
        messages = [{"role": "user", "content": "hi"}]
        assert render_prompt(info, messages, {"enable_thinking": False}).endswith("</think>")
        assert render_prompt(info, messages, {"enable_thinking": True}).endswith("assistant\n")
    finally:
        server.stop()


def test_a_wedged_server_is_not_alive_and_can_be_stopped(
    smollm2: ModelSpec, real_server: ServerSpec
) -> None:
    server = LlamaServer(smollm2, replace(real_server, liveness_timeout_s=1.0))
    pid = server.start().report["pid"]
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    assert not server.alive()
    assert time.monotonic() - start < 20.0
    server.stop()
    assert start_ticks(pid) is None
    assert not server.alive()
    server.stop()
    assert not (state_dir() / f"{pid}.json").exists()
    try:
        assert server.start().report["pid"] != pid  # the way on: start it again
    finally:
        server.stop()


def test_a_server_that_is_killed_is_noticed(smollm2: ModelSpec, real_server: ServerSpec) -> None:
    server = LlamaServer(smollm2, real_server)
    pid = server.start().report["pid"]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30.0
    with pytest.raises(ServerDied, match="ended by signal 9 while serving"):
        while time.monotonic() < deadline:  # its last threads may take a moment
            server.check()
            time.sleep(0.02)
    assert not server.alive()
    server.stop()


def test_nothing_is_left_when_the_owner_is_killed(real_server: ServerSpec) -> None:
    model = Path(__file__).resolve().parents[2] / "conf" / "model" / "local" / "smollm2-135m.yaml"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(model), str(real_server.program)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert start_ticks(pid) is not None
    owner.kill()
    owner.wait(30)
    owner.stdout.close()
    assert wait_until_gone(pid)
    assert sweep_leftovers() == []  # it was dead already; only its record is removed
    assert not (state_dir() / f"{pid}.json").exists()


def test_more_context_than_the_model_has_is_refused(
    smollm2: ModelSpec, real_server: ServerSpec
) -> None:
    before = running_of_ours()
    server = LlamaServer(
        replace(smollm2, context_max=None), replace(real_server, context_per_slot=16384)
    )
    with pytest.raises(
        ServerMismatch, match=r"asked for 16384 .* got 8192; .*set its context_max to that"
    ):
        server.start()
    assert running_of_ours() == before


def test_a_host_that_is_not_here_is_named(smollm2: ModelSpec, real_server: ServerSpec) -> None:
    server = LlamaServer(smollm2, replace(real_server, host="192.0.2.1"))
    with pytest.raises(ServerDied, match=r"192\.0\.2\.1 is no address of this machine") as died:
        server.start()
    server.stop()
    assert "\n" not in str(died.value)


def test_a_taken_port_is_named(smollm2: ModelSpec, real_server: ServerSpec) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = LlamaServer(smollm2, replace(real_server, port=port, liveness_timeout_s=1.0))
        with pytest.raises(ServerDied, match=f"port {port} is taken: port 0 stands for a free one"):
            server.start()


def test_a_file_that_is_no_model(
    smollm2: ModelSpec, real_server: ServerSpec, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    server = LlamaServer(replace(smollm2, weights=Weights(path=str(broken))), real_server)
    with pytest.raises(ServerDied, match="while loading"):
        server.start()


def test_what_is_missing_is_said_before_anything_starts(
    smollm2: ModelSpec, real_server: ServerSpec, tmp_path: Path
) -> None:
    with pytest.raises(ProgramMissing, match="make llama-server"):
        LlamaServer(smollm2, replace(real_server, program=str(tmp_path / "absent"))).start()
    absent = replace(smollm2, weights=Weights(path=str(tmp_path / "absent.gguf")))
    with pytest.raises(WeightsMissing):
        LlamaServer(absent, real_server).start()


FAKE = """#!{python}
import http.server, sys, time
if "--list-devices" in sys.argv:
    print("Available devices:"); print("  CUDA0: A GPU (80000 MiB, {free} MiB free)"); sys.exit()
print("offloaded {layers} layers to GPU", flush=True)
{then}
"""


def fake_program(tmp_path: Path, free: int, layers: str = "31/31", then: str = "") -> str:
    path = tmp_path / "llama-server"
    path.write_text(FAKE.format(python=sys.executable, free=free, layers=layers, then=then))
    path.chmod(0o755)
    return str(path)


SERVE = """
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (b'{"default_generation_settings": {"n_ctx": 512}, "total_slots": 1, "data": [{}]}')
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", 0), Handler).serve_forever()
"""


@pytest.fixture
def tiny(smollm2: ModelSpec, tmp_path: Path) -> ModelSpec:
    weights = tmp_path / "tiny.gguf"
    weights.write_bytes(b"GGUF")
    return replace(smollm2, weights=Weights(path=str(weights)))


def test_too_little_gpu_memory_is_refused_before_loading(tiny: ModelSpec, tmp_path: Path) -> None:
    spec = ServerSpec(program=fake_program(tmp_path, free=100))
    with pytest.raises(NoRoomOnGpu, match=r"about 1024 MiB .* has 100 .*nvidia-smi"):
        LlamaServer(tiny, spec).start()


def test_layers_that_went_to_the_host_are_refused(tiny: ModelSpec, tmp_path: Path) -> None:
    program = fake_program(tmp_path, free=9000, layers="20/31", then=SERVE)
    server = LlamaServer(tiny, ServerSpec(program=program, context_per_slot=512))
    with pytest.raises(ServerMismatch, match="only 20 of 31 layers are on the GPU"):
        server.start()


def test_fewer_layers_than_the_number_asked_for_are_refused(
    tiny: ModelSpec, tmp_path: Path
) -> None:
    program = fake_program(tmp_path, free=9000, layers="4/31", then=SERVE)
    server = LlamaServer(tiny, ServerSpec(program=program, context_per_slot=512, gpu_layers=8))
    with pytest.raises(ServerMismatch, match="only 4 of 31 layers"):
        server.start()


def test_gpu_layers_without_a_gpu_are_refused(smollm2: ModelSpec, real_server: ServerSpec) -> None:
    from serving.program import list_devices

    if list_devices(Path(str(real_server.program))):
        pytest.skip("this machine has a GPU")
    with pytest.raises(NoRoomOnGpu, match="sees no GPU"):
        LlamaServer(smollm2, replace(real_server, gpu_layers=8)).start()


def test_a_start_that_takes_too_long_explains_itself(tiny: ModelSpec, tmp_path: Path) -> None:
    program = fake_program(tmp_path, free=9000, then="time.sleep(600)")
    server = LlamaServer(tiny, ServerSpec(program=program, load_timeout_s=1.0))
    with pytest.raises(
        StartTimeout, match=r"not ready after 1 s .*last seen: no listening socket"
    ) as caught:
        server.start()
    assert "offloaded 31/31" in str(caught.value)
