"""What a llama-server is asked for, and whether its own report agrees. Nothing here does I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.api import ModelSpec, ServerSpec
from serving.errors import ServerMismatch

_CONTEXT_GRANULE = 256  # llama.cpp rounds the size of a context up to this


def context_per_slot(model: ModelSpec, spec: ServerSpec) -> int:
    """Tokens of context that each slot is asked to have."""
    return min(spec.context_per_slot, model.context_max or spec.context_per_slot)


def server_args(
    program: Path, weights: Path, model: ModelSpec, spec: ServerSpec, gpu_layers: int
) -> list[str]:
    """The command line. Everything that a result depends on is on it; no default is relied on."""
    args: list[str] = [
        *(str(program), "--model", str(weights), "--alias", model.name),
        *("--host", spec.host, "--port", str(spec.port)),
        *("--ctx-size", str(context_per_slot(model, spec) * spec.slots)),
        *("--parallel", str(spec.slots)),
        *("--threads", str(spec.threads), "--threads-batch", str(spec.threads)),
        *("--gpu-layers", str(gpu_layers)),
        # Without this, llama-server moves layers to the host when memory is short, and says ok.
        *("--fit", "off"),
        *("--flash-attn", spec.flash_attention),
        *("--seed", str(spec.seed)),
        *("--cache-ram", str(spec.cache_ram_mib)),
        "--jinja",
        # A generation that overflows is cut, as in the paper's server, never shifted.
        "--no-context-shift",
        # `/slots` would show prompts, the rest is not needed or reaches out to the network.
        *("--no-slots", "--no-ui", "--offline"),
        *("--verbosity", "4"),
    ]
    if not gpu_layers:
        # Else long prompts are computed on a GPU that it sees, even with all layers on the host.
        args += ("--device", "none")
    if spec.slots > 1:
        args.append("--no-kv-unified")
    return [*args, *spec.extra_args]


def verified_report(
    model: ModelSpec,
    spec: ServerSpec,
    gpu_layers: int,
    props: Mapping[str, Any],
    listed: Mapping[str, Any],
    log: str,
) -> dict[str, Any]:
    """The record of a server that runs as it was asked to; raises `ServerMismatch` for any other.

    `props` is its `/props`, `listed` its entry in `/v1/models`, `log` its output so far.
    """
    context = int(props["default_generation_settings"]["n_ctx"])
    trained = (listed.get("meta") or {}).get("n_ctx_train")
    asked = context_per_slot(model, spec)
    if not asked <= context < asked + _CONTEXT_GRANULE:
        known = trained and trained < asked
        hint = f"; it was trained for {trained}: set its context_max to that" if known else ""
        raise ServerMismatch(
            f"{model.name}: asked for {asked} tokens of context per slot, got {context}{hint}"
        )
    slots = int(props["total_slots"])
    if slots != spec.slots:
        raise ServerMismatch(f"{model.name}: asked for {spec.slots} slots, got {slots}")
    tools = bool((props.get("chat_template_caps") or {}).get("supports_tools"))
    warning = "the chat template knows no tools: the model is never told of them"
    return {
        "build": props.get("build_info", ""),
        "context_per_slot": context,
        "context_trained": trained,
        "slots": slots,
        "gpu_layers": _layers_on_gpu(model, gpu_layers, log),
        "model_type": props.get("model_ftype", ""),
        "supports_tools": tools,
        "warnings": [] if tools else [warning],
    }


def _layers_on_gpu(model: ModelSpec, asked: int, log: str) -> str:
    """Layers on the GPU such as `29/29`; `0` when none were asked for."""
    if not asked:
        return "0"
    found = re.findall(r"offloaded (\d+)/(\d+) layers to GPU", log)
    if not found:
        raise ServerMismatch(
            f"{model.name}: {asked} layers asked for on the GPU, but llama-server does not say how "
            f"many are there"
        )
    there, of = map(int, found[-1])
    if there < min(asked, of):
        raise ServerMismatch(
            f"{model.name}: only {there} of {of} layers are on the GPU; free its memory "
            f"(nvidia-smi shows who holds it) or lower serving.context_per_slot"
        )
    return f"{there}/{of}"
