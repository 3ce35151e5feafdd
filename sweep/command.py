"""The command line of a sweep: Hydra's, with one line for every foreseeable mistake."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from sweep.arguments import Parser
from sweep.errors import RequestError

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"


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
    _Flags(prog="python -m sweep", parents=[get_args_parser()], add_help=False).parse_args()


def _one_line(error: Exception) -> str:
    """Hydra's message without its list of indented details, but with its options."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    options = [
        line
        for line in lines[1:]
        if not line.startswith(("full_key", "object_type", "Config search path", "provider="))
    ]
    return " ".join([*lines[:1], *options])


def _refuse(message: str) -> None:
    print(f"drainbench: {message}", file=sys.stderr)
    raise SystemExit(2)
