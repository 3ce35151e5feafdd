"""The words of this room: a model of the registry, how it is served, where it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Architecture = Literal["dense", "moe", "efficient_sparse"]


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
    """One reasoning mode of a model and how it reaches the chat template (paper, §3.2.2)."""

    name: str
    sampling: Sampling
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Passed as `chat_template_kwargs`, such as `{"enable_thinking": false}`."""
    max_tokens: int | None = None


@dataclass(frozen=True)
class Weights:
    """Where the weights are (paper, Table 15).

    Either a repository on a model hub (`repo`, `revision`, `quant`), a file that a Python package
    ships (`package`, `package_file`), or a path on this machine (`path`).
    """

    repo: str | None = None
    revision: str | None = None
    quant: str | None = None
    package: str | None = None
    package_file: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class ModelSpec:
    """One checkpoint of the registry (paper, Tables 3, 4 and 15)."""

    name: str
    title: str
    family: str
    active_params_b: float
    total_params_b: float
    architecture: Architecture
    weights: Weights
    modes: tuple[Mode, ...]
    postprocess: str
    """Family whose reasoning and tool-call markup is stripped from texts (paper, §4.4)."""

    def mode(self, name: str) -> Mode:
        """The mode called `name`; KeyError when the model lacks it."""
        for mode in self.modes:
            if mode.name == name:
                return mode
        raise KeyError(name)


@dataclass(frozen=True)
class ServerSpec:
    """How llama-server is run. `context_per_slot` x `slots` tokens of context in all (pitfall 19)."""

    context_per_slot: int = 16384
    slots: int = 1
    threads: int = 1
    gpu_layers: int | Literal["auto"] = "auto"
    """`auto`: all layers where there is a GPU, none where there is not."""
    flash_attention: Literal["on", "off", "auto"] = "auto"
    seed: int = 42
    cache_ram_mib: int = 1024
    """Host memory that the prompt cache may take (pitfall 20)."""
    host: str = "127.0.0.1"
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
        """One tiny completion within a deadline (pitfall 18: `/health` alone says nothing)."""

    def stop(self) -> None:
        """End it and wait until it is gone. Idempotent."""
