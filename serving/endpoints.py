"""From configuration to an endpoint: `conf/serving/*.yaml` as checked data."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from serving.api import ModelEndpoint, ModelSpec, ServerSpec
from serving.errors import BadServing
from serving.llama_server import LlamaServer
from serving.remote import UrlEndpoint

_COMMON = {"endpoint", "verify_modes"}
_URL_KEYS = {"base_url", "api_key_env", "model_id", "liveness_timeout_s"}
_WHOLE = {"context_per_slot": 1, "slots": 1, "threads": 1, "seed": 0, "cache_ram_mib": -1}
"""Whole numbers and the least that each may be."""
_TIMES = ("load_timeout_s", "liveness_timeout_s")
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
    extra = values.get("extra_args") or ()
    if isinstance(extra, str) or not isinstance(extra, Sequence):
        raise BadServing(f"serving.extra_args is {extra!r}, must be a list, such as ['--mlock']")
    values["extra_args"] = tuple(str(arg) for arg in extra)
    flash = values.get("flash_attention", "on")
    values["flash_attention"] = _SWITCH.get(flash, flash) if isinstance(flash, bool) else flash
    if values["flash_attention"] not in ("on", "off", "auto"):
        raise BadServing(f"serving.flash_attention is {flash!r}, must be on, off or auto")
    for key, least in _WHOLE.items():
        if not _is_whole(number := values.get(key, least)) or number < least:
            raise BadServing(f"serving.{key} is {number!r}, must be a whole number from {least} on")
    for key in _TIMES:
        _check_time(values, key)
    layers = values.get("gpu_layers", "auto")
    if layers != "auto" and (not _is_whole(layers) or layers < 0):
        raise BadServing(f"serving.gpu_layers is {layers!r}, must be auto or a number of layers")
    port = values.get("port", 0)
    if not _is_whole(port) or not 0 <= port <= 65535:
        raise BadServing(f"serving.port is {port!r}, must be a port, or 0 for a free one")
    return ServerSpec(**values)


def _url_endpoint(config: Mapping[str, Any]) -> UrlEndpoint:
    values = _known(config, _URL_KEYS)
    _check_time(values, "liveness_timeout_s")
    base_url = str(values.get("base_url") or "")
    if not _is_address(base_url):
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


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_time(values: Mapping[str, Any], key: str) -> None:
    number = values.get(key, 1)
    if not (_is_whole(number) or isinstance(number, float)) or not 0 < number < math.inf:
        raise BadServing(f"serving.{key} is {number!r}, must be a number of seconds above 0")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _known(config: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    if odd := sorted(set(config) - known - _COMMON):
        raise BadServing(f"unknown key serving.{odd[0]} (known: {', '.join(sorted(known))})")
    return {key: value for key, value in config.items() if key in known}
