"""The command line of a sweep: Hydra's, with one line for every foreseeable mistake."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sweep.arguments import Parser
from sweep.errors import RequestError

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"

_FREE_OF_HYDRA = frozenset({"hydra.searchpath", "hydra.mode", "hydra.verbose"})
"""Settings of Hydra itself that a request may change: the others decide how a sweep is carried out,
and with its own launcher or folders Hydra runs a part of the grid, or writes where it is called."""


_composed: list[DictConfig] = []


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="config")
def _single(config: DictConfig) -> None:
    """Without -m Hydra has composed the one job already; it is run when Hydra has let go.

    (Within its call Hydra would print words of its own about every error.)
    """
    _composed.append(config)


def main() -> None:
    """Turn every foreseeable mistake into one line and exit code 2."""
    # Hydra would print its own error and exit with 1; with this set it lets exceptions pass.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        _check_arguments()
        _single()
        if _composed:
            from sweep.main import run_jobs

            raise SystemExit(run_jobs([[]], lambda _rest: _composed[0]))
    except RequestError as error:
        _refuse(str(error))
    except MissingMandatoryValue as error:
        _refuse(f"{error.full_key} has no default: give it, as in {error.full_key}=…")
    except (HydraException, OmegaConfBaseException) as error:
        _refuse(_one_line(error))
    except ValueError as error:
        if not str(error).startswith("Config group override must be"):
            raise
        _refuse(f"a group needs the name of one of its options, not null or a number: {error}")


class _Flags(Parser):
    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += " (all KEY=VALUE go together, after flags such as -m)"
        super().error(message)


def _check_arguments() -> None:
    """Parse once with Hydra's own grammar: Hydra would print a usage block about a wrong flag."""
    flags = _Flags(prog="python -m sweep", parents=[get_args_parser()], add_help=False)
    for override in OverridesParser.create().parse_overrides(flags.parse_args().overrides):
        key = override.key_or_group
        if re.split("[./]", key)[0] == "hydra" and key not in _FREE_OF_HYDRA:
            raise RequestError(f"{override.input_line}: a sweep sets {key} itself; leave it out")


def _one_line(error: Exception) -> str:
    """Hydra's message without its list of indented details, but with its options."""
    if unknown := re.match("Could not override '([^']+)'", str(error)):
        return _unknown_knob(unknown[1])
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    options = [
        line
        for line in lines[1:]
        if not line.startswith(("full_key", "object_type", "Config search path", "provider="))
    ]
    return " ".join([*lines[:1], *options])


def _unknown_knob(key: str) -> str:
    """In our words: Hydra would advise to add the key, which nothing would read."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONF_DIR)):
        near = difflib.get_close_matches(key, list(_keys(hydra.compose("config"))), 2, 0.8)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"no knob {key} in what was chosen; {hint}python -m sweep --help lists all"


def _keys(values: Mapping[Any, Any], above: str = "") -> Iterator[str]:
    for key in values:
        yield f"{above}{key}"
        # A knob without a default can't be looked at.
        inner = None if OmegaConf.is_missing(values, key) else values[key]
        if isinstance(inner, Mapping):
            yield from _keys(inner, f"{above}{key}.")


def _refuse(message: str) -> None:
    print(f"drainbench: {message}", file=sys.stderr)
    raise SystemExit(2)
