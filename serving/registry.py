"""The model registry: `conf/model/*.yaml` as checked data (paper, Tables 3, 4 and 15)."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import yaml

from serving.api import Architecture, Mode, ModelSpec, PolicyKind, Sampling, Weights
from serving.errors import BadModel, UnknownModel

_NUMBER = int | float
_MODEL_KEYS: dict[str, type | UnionType] = {
    "name": str,
    "title": str,
    "policy": str,
    "family": str,
    "active_params_b": _NUMBER,
    "total_params_b": _NUMBER,
    "architecture": str,
    "weights": Mapping,
    "modes": Mapping,
    "postprocess": str,
    "context_max": int,
    "rule": str,
    "params": Mapping,
}
_WEIGHTS_KEYS = dict.fromkeys(
    ("repo", "revision", "quant", "file", "package", "package_file", "path"), str
)
_MODE_KEYS: dict[str, type | UnionType] = {
    "sampling": Mapping,
    "template_kwargs": Mapping,
    "max_tokens": int,
}
_SAMPLING_KEYS: dict[str, type | UnionType] = {
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "top_k": int,
    "min_p": _NUMBER,
    "repeat_penalty": _NUMBER,
}
_BOUNDS = {
    "temperature": (0, 10),
    "top_p": (0, 1),
    "top_k": (0, 1_000_000),
    "min_p": (0, 1),
    "repeat_penalty": (0, 10),
}
_WEIGHTS_NEED = {"repo": ("repo", "revision", "quant"), "package": ("package", "package_file")}
_LLM_NEEDS = (
    "family",
    "active_params_b",
    "total_params_b",
    "architecture",
    "weights",
    "postprocess",
)


def model_from_config(config: Mapping[str, Any], source: str = "model") -> ModelSpec:
    """Check one model's configuration (plain dicts, as in YAML) and return it as data.

    `source` names the file in errors. Raises `BadModel`, one line with the key that is wrong.
    """
    values = _section(config, _MODEL_KEYS, source, "")
    _need(values, ("name", "title", "policy", "modes"), source, "")
    policy = _one_of(values["policy"], PolicyKind, source, "policy")
    needs: tuple[str, ...] = {"llm": _LLM_NEEDS, "rule": ("rule",)}.get(policy, ())
    _need(values, needs, source, "")
    if policy != "llm" and (odd := sorted(set(_LLM_NEEDS) & set(values))):
        raise BadModel(f"{source}: `{odd[0]}` is for `policy: llm`, not for `policy: {policy}`")
    if not values["modes"]:
        raise BadModel(f"{source}: `modes` is empty; a policy without modes has one called `none`")
    weights = None
    if policy == "llm":
        active, total = values["active_params_b"], values["total_params_b"]
        if not 0 < active <= total < math.inf:
            raise BadModel(
                f"{source}: `active_params_b` is {active} and `total_params_b` {total}; "
                "0 < active <= total must hold"
            )
        _one_of(values["architecture"], Architecture, source, "architecture")
        weights = _weights(values["weights"], source)
    modes = tuple(_mode(str(name), mode, policy, source) for name, mode in values["modes"].items())
    return ModelSpec(**{**values, "modes": modes, "weights": weights})


def load_registry(conf_dir: Path) -> dict[str, ModelSpec]:
    """All models under `conf_dir/model`, by the name they have on the command line.

    Those of sub-folders carry the folder's name (`local/smollm2-135m`), and come last.
    Raises `BadModel`.
    """
    root = conf_dir / "model"
    files = sorted(root.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
    if not files:
        raise BadModel(f"{root}: no model files; give the configuration folder with --conf")
    return {str(path.relative_to(root).with_suffix("")): load_model(path) for path in files}


def load_model(path: Path) -> ModelSpec:
    """The model described by one YAML file; raises `BadModel`."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise BadModel(f"{path}: {' '.join(str(error).split())}") from None
    model = model_from_config(config, str(path))
    if model.name != path.stem:
        raise BadModel(f"{path}: `name` is {model.name!r}, it must be the file's: {path.stem!r}")
    return model


def find_model(registry: Mapping[str, ModelSpec], name: str) -> ModelSpec:
    """The model called `name`, with or without its folder; raises `UnknownModel`."""
    if name in registry:
        return registry[name]
    by_name = [model for model in registry.values() if model.name == name]
    if len(by_name) == 1:
        return by_name[0]
    near = difflib.get_close_matches(name, registry, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else "`python -m serving list` shows all"
    raise UnknownModel(f"no model {name!r} in the registry; {hint}")


def _mode(name: str, config: Any, policy: str, source: str) -> Mode:
    where = f"modes.{name}."
    values = _section(config or {}, _MODE_KEYS, source, where)
    if policy != "llm":
        return Mode(name, **values)
    _need(values, ("sampling",), source, where)
    numbers = _section(values.pop("sampling"), _SAMPLING_KEYS, source, f"{where}sampling.")
    _need(numbers, ("temperature", "top_p"), source, f"{where}sampling.")
    for key, number in numbers.items():
        low, high = _BOUNDS[key]
        if not low <= number <= high:
            raise BadModel(
                f"{source}: `{where}sampling.{key}` is {number}, must be in [{low}, {high}]"
            )
    if values.get("max_tokens", 1) < 1:
        raise BadModel(f"{source}: `{where}max_tokens` is {values['max_tokens']}, must be positive")
    return Mode(name, Sampling(**numbers), **values)


def _weights(config: Any, source: str) -> Weights:
    values = _section(config, _WEIGHTS_KEYS, source, "weights.")
    kinds = [kind for kind in ("repo", "package", "path") if kind in values]
    if len(kinds) != 1:
        raise BadModel(f"{source}: `weights` needs exactly one of `repo`, `package`, `path`")
    _need(values, _WEIGHTS_NEED.get(kinds[0], ()), source, "weights.")
    return Weights(**values)


def _section(
    config: Any, keys: Mapping[str, type | UnionType], source: str, where: str
) -> dict[str, Any]:
    """The values of a mapping that are not null, each of the type asked for."""
    if not isinstance(config, Mapping):
        raise BadModel(f"{source}: `{where.rstrip('.') or 'the file'}` must be a mapping")
    for key, value in config.items():
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else f" (known: {', '.join(keys)})"
            raise BadModel(f"{source}: unknown key `{where}{key}`{hint}")
        wanted = keys[key]
        # bool is an int to isinstance, but `top_k: true` is a mistake.
        if value is not None and (isinstance(value, bool) or not isinstance(value, wanted)):
            kind = {str: "text", int: "a whole number", Mapping: "a mapping"}.get(
                wanted, "a number"
            )
            raise BadModel(f"{source}: `{where}{key}` must be {kind}, not {value!r}")
    return {key: value for key, value in config.items() if value is not None}


def _need(values: Mapping[str, Any], keys: tuple[str, ...], source: str, where: str) -> None:
    for key in keys:
        if key not in values:
            raise BadModel(f"{source}: `{where}{key}` is missing")


def _one_of(value: str, literal: Any, source: str, key: str) -> str:
    if value not in get_args(literal):
        known = ", ".join(get_args(literal))
        raise BadModel(f"{source}: `{key}` is {value!r}, must be one of {known}")
    return value
