"""`python -m serving`: the models of the registry, their weights, a server by hand.

Exit codes: 0 done; 1 a download or a server failed; 2 the request itself is wrong; 130 stopped by
Ctrl-C before it was done.
"""

from __future__ import annotations

import argparse
import sys
import threading
from dataclasses import replace
from pathlib import Path
from signal import SIGINT, SIGTERM, signal
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from serving.api import ModelSpec, ServerSpec
from serving.arguments import Parser
from serving.endpoints import server_spec_from_config
from serving.errors import (
    BadModel,
    BadServing,
    ProgramMissing,
    ServingError,
    UnknownModel,
    WeightsMissing,
)
from serving.leftovers import sweep_leftovers
from serving.llama_server import LlamaServer
from serving.probe import verify_modes
from serving.registry import find_model, load_registry
from serving.weights import is_present, size_bytes

_PROJECT = Path(__file__).resolve().parent.parent
_WRONG_REQUEST = (BadModel, BadServing, UnknownModel, WeightsMissing, ProgramMissing)
_LIVENESS_EVERY_S = 1.0
_EXAMPLES = """\
examples:
  python -m serving list
  python -m serving pull qwen3-4b gemma-4-e4b
  python -m serving serve local/smollm2-135m --port 8080 --threads 2

A model is a file of conf/model; copy one to add your own (docs/models.md).
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    args = _parser().parse_args(argv)
    try:
        registry = load_registry(args.conf)
        if args.command == "list":
            _list(registry)
            return 0
        models = [find_model(registry, name) for name in args.names]
        if wrong := next((model for model in models if model.policy != "llm"), None):
            raise UnknownModel(f"{wrong.name} is a policy without a model ({wrong.policy})")
        if args.command == "pull":
            return _pull(models, args.conf.parent)
        return _serve(models[0], _server_spec(args))
    except ServingError as error:
        print(f"serving: {error}", file=sys.stderr)
        return 2 if isinstance(error, _WRONG_REQUEST) else 1
    except KeyboardInterrupt:
        return 130


def _list(registry: dict[str, ModelSpec]) -> None:
    # Without a frame it fits on 80 columns.
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column("model", no_wrap=True)
    table.add_column("params\n(B)", justify="right")
    table.add_column("active\n(B)", justify="right")
    table.add_column("arch.")
    table.add_column("modes", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("weights")
    for name, model in sorted(registry.items(), key=_by_size):
        modes = "/".join(mode.name for mode in model.modes)
        if model.weights is None:
            table.add_row(name, "", "", "", modes, "", "[dim]none needed[/dim]")
            continue
        size, measured = size_bytes(model)
        present = "[green]here[/green]" if is_present(model.weights) else "not here"
        table.add_row(
            name,
            f"{model.total_params_b:g}",
            f"{model.active_params_b:g}",
            (model.architecture or "").replace("efficient_sparse", "eff. sparse"),
            modes,
            f"{'' if measured else '~'}{size / 1e9:.1f} GB",
            present,
        )
    console = Console()
    console.print(table)
    console.print("~ is estimated, at 2 bytes per parameter.")
    console.print("Fetch weights with [bold]python -m serving pull MODEL[/bold].")


def _by_size(item: tuple[str, ModelSpec]) -> tuple[bool, float, str]:
    name, model = item
    return "/" in name, model.total_params_b or 0.0, name


def _pull(models: list[ModelSpec], project_dir: Path) -> int:
    from serving.pull import pull  # the hub's client takes a while to import

    failed = 0
    for model in models:
        try:
            path = pull(model, project_dir)
        except ServingError as error:  # the others may still be had
            print(f"serving: {error}", file=sys.stderr)
            failed += 1
        else:
            print(f"{model.name}: {path}")
    return 1 if failed else 0


def _serve(model: ModelSpec, spec: ServerSpec) -> int:
    for leftover in sweep_leftovers():
        print(f"ended a leftover of a dead owner: {leftover}", file=sys.stderr)
    stop, loaded = threading.Event(), threading.Event()

    def end(*_: Any) -> None:
        first = not stop.is_set()
        stop.set()
        if first and not loaded.is_set():
            raise KeyboardInterrupt  # loading takes minutes, and nobody would see the event

    for number in (SIGINT, SIGTERM):
        signal(number, end)
    server = LlamaServer(model, spec)
    print(f"loading {model.title} …", file=sys.stderr)
    try:
        info = server.start()
        verify_modes(info, model)
        loaded.set()
        for warning in info.report["warnings"]:
            print(f"note: {warning}", file=sys.stderr)
        print(f"base URL  {info.base_url}\nAPI key   {info.api_key}\nmodel     {info.model}")
        print(
            f"{info.version}, context {info.context_per_slot} x {spec.slots}, GPU layers "
            f"{info.report['gpu_layers']}, log {info.report['log']}; Ctrl-C ends it",
            file=sys.stderr,
            flush=True,
        )
        sys.stdout.flush()
        while not stop.wait(_LIVENESS_EVERY_S):
            server.check()
    finally:
        loaded.set()
        server.stop()
    return 0


def _server_spec(args: argparse.Namespace) -> ServerSpec:
    file = args.conf / "serving" / "llama_server.yaml"
    try:
        spec = server_spec_from_config(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise BadServing(f"{file}: {' '.join(str(error).split())}") from None
    asked: dict[str, Any] = {
        key: getattr(args, key)
        for key in ("host", "port", "threads", "slots", "context_per_slot", "gpu_layers")
        if getattr(args, key) is not None
    }
    return replace(spec, **asked)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m serving",
        description="Models of the registry, their weights, a llama-server by hand.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--conf",
        type=Path,
        default=_PROJECT / "conf",
        metavar="DIR",
        help="configuration folder (default: the project's conf/)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="all models: size, modes, whether their weights are here")
    fetch = commands.add_parser("pull", help="fetch the weights of models, at the pinned commit")
    fetch.add_argument("names", nargs="+", metavar="MODEL")
    serve = commands.add_parser(
        "serve", help="serve a model until Ctrl-C; prints its base URL and API key"
    )
    serve.add_argument("names", nargs=1, metavar="MODEL")
    serve.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=_port, help="port (default: a free one)")
    serve.add_argument("--threads", type=_positive, help="CPU threads (default: 1)")
    serve.add_argument("--slots", type=_positive, help="requests at a time (default: 1)")
    serve.add_argument(
        "--context", type=_positive, dest="context_per_slot", help="tokens of context per slot"
    )
    serve.add_argument(
        "--gpu-layers", type=_layers, help="layers on the GPU: auto (default), or a number"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _layers(text: str) -> int | str:
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number of layers")
    return text if text == "auto" else int(text)


if __name__ == "__main__":
    sys.exit(main())
