"""Command line of the controller: attach to an HAProxy that exists, first in shadow.

Exit codes: 0 the loop ended (also after Ctrl-C); 1 HAProxy or Prometheus failed on the way, or no
step got an answer; 2 the request itself is wrong, or one of its addresses can't be reached at the
start. Errors are one line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from controller.api import Policy
from controller.arguments import Parser, not_negative, positive, seconds, url
from controller.attach import Attached, Target, attach
from controller.config import ControllerConfig
from controller.errors import ControllerError, RequestError
from controller.loop import LoopResult
from controller.policies import LlmPolicy, LlmPolicyConfig, StaticPolicy, ThresholdPolicy
from controller.records import JsonlRecorder, NullRecorder

_CONF = Path(__file__).resolve().parent.parent / "conf"

_EXAMPLES = """
examples (python -m testbed up prints a URL and a socket to try them on):
  python -m controller --prometheus http://127.0.0.1:9090 --haproxy /run/haproxy/admin.sock --shadow
  … --policy llm --base-url http://127.0.0.1:8080/v1 --model qwen3-4b    key in OPENAI_API_KEY
"""

_OF_MODELS = (
    *("base_url", "model", "temperature", "top_p", "max_tokens"),
    *("extra_body", "postprocess", "prompt"),
)


def parser() -> argparse.ArgumentParser:
    """The options of `python -m controller`."""
    cli = Parser(
        prog="python -m controller",
        description="Attach the control loop to an HAProxy and a Prometheus that exist already.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = cli.add_argument_group("where")
    where.add_argument(
        "--prometheus", required=True, type=url, metavar="URL", help="the one that scrapes HAProxy"
    )
    where.add_argument(
        "--haproxy", required=True, metavar="SOCKET", help="admin socket: a path or tcp://host:port"
    )
    where.add_argument("--dataplane", type=url, metavar="URL", help="Data Plane API, for discovery")
    where.add_argument(
        "--dataplane-user", default="admin", metavar="NAME", help="default: %(default)s"
    )
    where.add_argument(
        "--dataplane-password-env",
        default="DATAPLANE_PASSWORD",
        metavar="VAR",
        help="environment variable that holds the password (default: %(default)s)",
    )
    where.add_argument("--backend", metavar="NAME", help="default: be_api, or the only one")
    who = cli.add_argument_group("who decides")
    who.add_argument(
        "--policy",
        choices=("static", "threshold", "llm"),
        default="threshold",
        help="static acts never; threshold is a rule (default); llm asks a model",
    )
    who.add_argument(
        "--base-url", type=url, metavar="URL", help="OpenAI-compatible endpoint, ends in /v1"
    )
    who.add_argument("--model", metavar="NAME", help="as the endpoint knows it")
    who.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VAR",
        help="environment variable that holds the key (default: %(default)s)",
    )
    who.add_argument(
        "--temperature", type=not_negative, metavar="X", help="default: the endpoint's own"
    )
    who.add_argument("--top-p", type=not_negative, metavar="X", help="likewise")
    who.add_argument("--max-tokens", type=positive, metavar="N", help="of one answer; likewise")
    who.add_argument(
        "--extra-body",
        type=_json_object,
        metavar="JSON",
        help='sent along, such as {"chat_template_kwargs": {"enable_thinking": false}}',
    )
    who.add_argument(
        "--postprocess",
        metavar="FAMILY",
        help="whose markup is stripped: qwen3, qwen3.5, gemma4, granite, gpt-oss, none (default)",
    )
    who.add_argument(
        "--prompt",
        type=Path,
        metavar="FILE",
        help="YAML with the text under `system` (default: conf/prompt/paper.yaml)",
    )
    how = cli.add_argument_group("how")
    how.add_argument("--shadow", action="store_true", help="decide and record, act on nothing")
    how.add_argument("--duration", type=seconds, metavar="SECONDS", help="default: until Ctrl-C")
    how.add_argument("--interval", type=seconds, metavar="SECONDS", help="default: the config's 10")
    how.add_argument(
        "--config",
        type=Path,
        default=_CONF / "controller" / "paper.yaml",
        metavar="FILE",
        help="interval, guardrails, deadlines (default: conf/controller/paper.yaml)",
    )
    how.add_argument(
        "--out", type=Path, metavar="DIR", help="write steps.jsonl and conversations.jsonl there"
    )
    return cli


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = parser().parse_args(argv)
    try:
        return _run(options)
    except RequestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ControllerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    config = _config(options)
    duration_s = 1e9 if options.duration is None else options.duration
    if duration_s < config.interval_s:
        raise RequestError(f"--duration is shorter than one interval ({config.interval_s:g} s)")
    policy = _policy(options, config)
    errors: list[str] = []

    def on_step(record: dict[str, Any]) -> None:
        _print_step(record)
        errors[:] = [record["error"]]

    stop = threading.Event()
    recorder = None
    attached: Attached | None = None
    previous = _on_interrupt(stop, policy)
    try:
        recorder = _recorder(options.out)
        attached = _attach(
            _target(options),
            policy,
            duration_s,
            config,
            backend=options.backend,
            recorder=recorder,
            stop=stop,
            on_step=on_step,
            shadow=options.shadow,
            endure_endpoint=True,
        )
        found = attached.discovery
        print(
            f"backend {found.backend} ({found.algorithm}): "
            f"{', '.join(found.fleet.servers[found.backend])}; policy {options.policy}"
            f"{', shadow' if options.shadow else ''}",
            flush=True,
        )
        result = attached.loop.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for part in (attached, recorder, policy):
            if part is not None:
                part.close()
    ended = "stopped" if result.stopped else "done"
    print(f"{ended}: {result.completed} steps, {result.failed} lost, {result.late} late")
    return 1 if _unanswered(result, errors) else 0


def _unanswered(result: LoopResult, errors: Sequence[str]) -> bool:
    """Whether nobody decided anything; then says why."""
    if result.completed > result.failed or (result.stopped and not result.completed):
        return False
    why = f"the last error: {errors[-1]}" if errors else "--duration ended before the first did"
    print(f"error: no step got an answer; {why}", file=sys.stderr)
    return True


def _attach(target: Target, policy: Policy, *args: Any, **kwargs: Any) -> Attached:
    """Attach, observe once and ask a model's endpoint: what fails now was asked for wrongly."""
    try:
        attached = attach(target, policy, *args, **kwargs)
        try:
            attached.telemetry.observe()
            if isinstance(policy, LlmPolicy):
                policy.check()
        except BaseException:
            attached.close()
            raise
    except RequestError:
        raise
    except ControllerError as error:
        raise RequestError(f"{error}; nothing was started") from error
    return attached


def _on_interrupt(stop: threading.Event, policy: Policy) -> dict[int, Any]:
    """Let the first Ctrl-C end the loop cleanly; a second one kills as usual."""

    def handle(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()
        if isinstance(policy, LlmPolicy):
            policy.interrupt()

    return {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}


def _config(options: argparse.Namespace) -> ControllerConfig:
    values = dict(_yaml(options.config))
    if options.interval is not None:
        values["interval_s"] = options.interval
    return ControllerConfig.from_mapping(values)


def _yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        first = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise RequestError(f"can't read {path}: {first}") from error
    if not isinstance(values, dict):
        raise RequestError(f"{path}: expected a mapping")
    return values


def _target(options: argparse.Namespace) -> Target:
    return Target(
        prometheus_url=options.prometheus,
        runtime_socket=options.haproxy,
        dataplane_url=options.dataplane,
        dataplane_user=options.dataplane_user,
        dataplane_password=os.environ.get(options.dataplane_password_env, ""),
    )


def _policy(options: argparse.Namespace, config: ControllerConfig) -> Policy:
    given = [name for name in _OF_MODELS if getattr(options, name) is not None]
    if given and options.policy != "llm":
        raise RequestError(f"--{given[0].replace('_', '-')} is for --policy llm")
    if options.policy == "static":
        return StaticPolicy()
    if options.policy == "threshold":
        return ThresholdPolicy()
    if not options.base_url or not options.model:
        raise RequestError("--policy llm needs --base-url and --model")
    prompt_file = options.prompt or _CONF / "prompt" / "paper.yaml"
    prompt = _yaml(prompt_file).get("system")
    if not isinstance(prompt, str):
        raise RequestError(f"{prompt_file}: no text under `system`")
    try:
        return LlmPolicy(
            LlmPolicyConfig(
                base_url=options.base_url,
                model=options.model,
                system_prompt=prompt,
                api_key=os.environ.get(options.api_key_env, ""),
                temperature=options.temperature,
                top_p=options.top_p,
                max_tokens=options.max_tokens,
                deadline_s=config.decision_deadline_s,
                postprocess=options.postprocess,
                extra_body=options.extra_body or {},
                observation=config.observation,
            )
        )
    except KeyError as error:
        raise RequestError(str(error.args[0])) from error


def _recorder(out: Path | None) -> JsonlRecorder | NullRecorder:
    if out is None:
        return NullRecorder()
    try:
        return JsonlRecorder(out)
    except OSError as error:
        raise RequestError(f"can't write to {out}: {error.strerror}") from error


def _print_step(record: dict[str, Any]) -> None:
    """One line a step for the terminal."""
    snapshot = record["snapshot"]
    rate = snapshot["errors_per_s_total"]
    results = record["results"]
    acted = ", ".join(
        f"{r['action']['kind']} {r['action']['server']}"
        + (f" {r['action']['weight']}" if r["action"]["weight"] is not None else "")
        + ("" if r["ok"] else f" ({r['message']})")
        for r in results
    )
    print(
        f"step {record['step']:>3}  {record['started_s']:7.1f} s  "
        f"5xx/s {'-' if rate is None else f'{rate:.2f}'}  "
        f"up {snapshot['servers_up']}/{snapshot['servers_total']}  "
        f"{record['error'] or acted or 'no action'}",
        flush=True,
    )
