"""From configuration to an endpoint: `conf/serving/*.yaml` as checked data."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.api import ModelEndpoint, ModelSpec, ServerSpec
from serving.errors import BadServing
from serving.llama_server import LlamaServer
from serving.remote import UrlEndpoint

_COMMON = {"endpoint", "verify_modes"}
_URL_KEYS = {"base_url", "api_key_env", "model_id", "liveness_timeout_s"}
_POSITIVE = ("context_per_slot", "slots", "threads", "load_timeout_s", "liveness_timeout_s")
_SWITCH = {True: "on", False: "off"}  # what YAML makes of an unquoted on or off


def make_endpoint(
    model: ModelSpec, config: Mapping[str, Any], log_path: Path | None = None
) -> ModelEndpoint:
    """The endpoint that `config` (plain data, as in `conf/serving/*.yaml`) asks for, not started.

    Raises `BadServing`.
    """
    kind = config.get("endpoint")
    if kind == "llama_server":
        return LlamaServer(model, server_spec_from_config(config), log_path)
    if kind == "url":
        return _url_endpoint(config)
    raise BadServing(f"serving.endpoint is {kind!r}, must be llama_server or url")


def server_spec_from_config(config: Mapping[str, Any]) -> ServerSpec:
    """How llama-server is to be run; raises `BadServing`, one line with the key."""
    known = {field.name for field in dataclasses.fields(ServerSpec)}
    values = _known(config, known)
    values["extra_args"] = tuple(str(arg) for arg in values.get("extra_args") or ())
    flash = values.get("flash_attention", "on")
    values["flash_attention"] = _SWITCH.get(flash, flash) if isinstance(flash, bool) else flash
    if values["flash_attention"] not in ("on", "off", "auto"):
        raise BadServing(f"serving.flash_attention is {flash!r}, must be on, off or auto")
    for key in _POSITIVE:
        number = values.get(key, 1)
        if isinstance(number, bool) or not isinstance(number, int | float) or number <= 0:
            raise BadServing(f"serving.{key} is {number!r}, must be a positive number")
    layers = values.get("gpu_layers", "auto")
    if layers != "auto" and (not isinstance(layers, int) or layers < 0):
        raise BadServing(f"serving.gpu_layers is {layers!r}, must be auto or a number of layers")
    port = values.get("port", 0)
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise BadServing(f"serving.port is {port!r}, must be a port, or 0 for a free one")
    return ServerSpec(**values)


def _url_endpoint(config: Mapping[str, Any]) -> UrlEndpoint:
    values = _known(config, _URL_KEYS)
    base_url = str(values.get("base_url") or "")
    if not base_url.startswith(("http://", "https://")):
        raise BadServing(
            f"serving.base_url is {base_url!r}; set it to an address that ends in /v1, such as "
            f"serving.base_url=http://127.0.0.1:8080/v1"
        )
    return UrlEndpoint(
        base_url,
        api_key=os.environ.get(str(values.get("api_key_env") or ""), ""),
        model=values.get("model_id"),
        liveness_timeout_s=float(values.get("liveness_timeout_s", 60.0)),
    )


def _known(config: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    if odd := sorted(set(config) - known - _COMMON):
        raise BadServing(f"unknown key serving.{odd[0]} (known: {', '.join(sorted(known))})")
    return {key: value for key, value in config.items() if key in known}
