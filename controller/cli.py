"""Command line of the controller: attach to an HAProxy that exists, first in shadow.

Exit codes: 0 the loop ended (also after Ctrl-C); 1 HAProxy, Prometheus or the model's endpoint
failed; 2 the request itself is wrong. Errors are one line.
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
from controller.policies import LlmPolicy, LlmPolicyConfig, StaticPolicy, ThresholdPolicy
from controller.records import JsonlRecorder, NullRecorder

_CONF = Path(__file__).resolve().parent.parent / "conf"


def parser() -> argparse.ArgumentParser:
    """The options of `python -m controller`."""
    cli = Parser(
        prog="python -m controller",
        description="Attach the control loop to an HAProxy and a Prometheus that exist already.",
    )
    where = cli.add_argument_group("where")
    where.add_argument("--prometheus", required=True, type=url, metavar="URL")
    where.add_argument(
        "--haproxy", required=True, metavar="SOCKET", help="admin socket: a path or tcp://host:port"
    )
    where.add_argument("--dataplane", type=url, metavar="URL", help="Data Plane API, for discovery")
    where.add_argument("--dataplane-user", default="admin", metavar="NAME")
    where.add_argument(
        "--dataplane-password-env",
        default="DATAPLANE_PASSWORD",
        metavar="VAR",
        help="environment variable that holds the password",
    )
    where.add_argument("--backend", metavar="NAME", help="default: be_api, or the only one")
    who = cli.add_argument_group("who decides")
    who.add_argument("--policy", choices=("static", "threshold", "llm"), default="threshold")
    who.add_argument(
        "--base-url", type=url, metavar="URL", help="OpenAI-compatible endpoint, ends in /v1"
    )
    who.add_argument("--model", metavar="NAME")
    who.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VAR",
        help="environment variable that holds the key",
    )
    who.add_argument("--temperature", type=not_negative)
    who.add_argument("--top-p", type=not_negative)
    who.add_argument("--max-tokens", type=positive)
    who.add_argument(
        "--extra-body",
        type=_json_object,
        default={},
        metavar="JSON",
        help='sent along, such as {"chat_template_kwargs": {"enable_thinking": false}}',
    )
    who.add_argument("--postprocess", help="markup family: qwen3, gemma4, granite, gpt-oss, …")
    who.add_argument("--prompt", type=Path, default=_CONF / "prompt" / "paper.yaml", metavar="FILE")
    how = cli.add_argument_group("how")
    how.add_argument("--shadow", action="store_true", help="decide and record, act on nothing")
    how.add_argument("--duration", type=seconds, metavar="SECONDS", help="default: until Ctrl-C")
    how.add_argument("--interval", type=seconds, metavar="SECONDS", help="default: the config's 10")
    how.add_argument(
        "--config", type=Path, default=_CONF / "controller" / "paper.yaml", metavar="FILE"
    )
    how.add_argument("--out", type=Path, metavar="DIR", help="steps.jsonl, conversations.jsonl")
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
            on_step=_print_step,
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
    return 0


def _attach(*args: Any, **kwargs: Any) -> Attached:
    """Attach and observe once: what fails now was asked for wrongly."""
    try:
        attached = attach(*args, **kwargs)
        try:
            attached.telemetry.observe()
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
        first = str(error).splitlines()[0]
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
    if options.policy == "static":
        return StaticPolicy()
    if options.policy == "threshold":
        return ThresholdPolicy()
    if not options.base_url or not options.model:
        raise RequestError("--policy llm needs --base-url and --model")
    prompt = _yaml(options.prompt).get("system")
    if not isinstance(prompt, str):
        raise RequestError(f"{options.prompt}: no text under `system`")
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
                extra_body=options.extra_body,
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
