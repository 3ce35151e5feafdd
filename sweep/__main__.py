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
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from sweep.errors import RequestError

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="config")
def _single(config: DictConfig) -> None:
    """Without -m Hydra has composed the one job already."""
    from hydra.core.hydra_config import HydraConfig

    from sweep.main import run_jobs

    assert HydraConfig.get().mode == RunMode.RUN
    raise SystemExit(run_jobs([[]], lambda _rest: config))


def main() -> None:
    """Turn every foreseeable mistake into one line and exit code 2."""
    # Hydra would print its own error and exit with 1; with this set it lets exceptions pass.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        _single()
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
