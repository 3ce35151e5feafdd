"""The words of this room: a model of the registry, how it is served, where it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Architecture = Literal["dense", "moe", "efficient_sparse"]
PolicyKind = Literal["llm", "static", "rule"]


@dataclass(frozen=True)
class Sampling:
    """Decoding parameters of one mode (paper, Table 4). None: the server's default."""

    temperature: float
    top_p: float
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None


@dataclass(frozen=True)
class Mode:
    """One reasoning mode of a model and how it reaches the chat template (paper, §3.2.2).

    `sampling` is None for the modes of policies without a model (`error_on`, `error_off`, `none`).
    """

    name: str
    sampling: Sampling | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Passed as `chat_template_kwargs`, such as `{"enable_thinking": false}`."""
    max_tokens: int | None = None


@dataclass(frozen=True)
class Weights:
    """Where the weights are (paper, Table 15).

    Exactly one of: a repository on a model hub (`repo`, `revision`, `quant`), a file that a Python
    package ships (`package`, `package_file`), or a path on this machine (`path`).
    """

    repo: str | None = None
    revision: str | None = None
    quant: str | None = None
    file: str | None = None
    """Glob that picks the repository's files where `quant` alone is ambiguous."""
    package: str | None = None
    package_file: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class ModelSpec:
    """One entry of the registry: a checkpoint (paper, Tables 3, 4 and 15) or a policy without one.

    For `static` and `rule`, everything from `family` to `weights` is None.
    """

    name: str
    title: str
    policy: PolicyKind
    modes: tuple[Mode, ...]
    family: str | None = None
    active_params_b: float | None = None
    total_params_b: float | None = None
    architecture: Architecture | None = None
    weights: Weights | None = None
    postprocess: str | None = None
    """Family whose reasoning and tool-call markup is stripped from texts (paper, §4.4)."""
    context_max: int | None = None
    """Tokens that the model was trained for, where that is less than what servers are asked for."""
    rule: str | None = None
    """Name of the rule, for `policy: rule`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the rule."""

    def mode(self, name: str) -> Mode:
        """The mode called `name`; KeyError when the model lacks it."""
        for mode in self.modes:
            if mode.name == name:
                return mode
        raise KeyError(name)


@dataclass(frozen=True)
class ServerSpec:
    """How llama-server is run. `context_per_slot` x `slots` tokens of context in all."""

    context_per_slot: int = 16384
    slots: int = 1
    threads: int = 1
    gpu_layers: int | Literal["auto"] = "auto"
    """`auto`: all layers where there is a GPU, none where there is not."""
    flash_attention: Literal["on", "off", "auto"] = "auto"
    seed: int = 42
    cache_ram_mib: int = 0
    """Host memory that the prompt cache may take beyond the slots (llama-server's own: 8 GiB)."""
    host: str = "127.0.0.1"
    port: int = 0
    """0: the system picks a free one."""
    load_timeout_s: float = 600.0
    liveness_timeout_s: float = 60.0
    program: str | None = None
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class EndpointInfo:
    """An OpenAI-compatible endpoint that answers."""

    base_url: str
    """Ends in `/v1`."""
    api_key: str = field(repr=False)
    model: str = ""
    context_per_slot: int | None = None
    version: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)
    """What the server said of itself: layers on the GPU, slots, context, build."""


class ModelEndpoint(Protocol):
    """Something that serves a model: a llama-server child, one behind a tunnel, or any URL."""

    def start(self) -> EndpointInfo:
        """Bring it up and verify it; raises `serving.errors.ServingError`."""

    def alive(self) -> bool:
        """One tiny completion within a deadline (`/health` says ok even when nothing decodes)."""

    def stop(self) -> None:
        """End it and wait until it is gone. Idempotent."""
