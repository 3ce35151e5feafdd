"""`python -m sweep [-m] OVERRIDES`: run what is missing of a sweep.

Exit codes: 0 all asked-for runs are complete; 1 some run failed for good; 2 the request itself
is wrong; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

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
        _single()
        if _composed:
            from sweep.main import run_jobs

            raise SystemExit(run_jobs([[]], lambda _rest: _composed[0]))
    except RequestError as error:
        _refuse(str(error))
    except (HydraException, OmegaConfBaseException) as error:
        _refuse(_one_line(error))


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


if __name__ == "__main__":
    main()
