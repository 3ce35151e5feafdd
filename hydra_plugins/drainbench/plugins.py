"""Launcher and sweeper under the names by which `conf/config.yaml` selects them."""

from __future__ import annotations

from hydra.core.config_store import ConfigStore

from sweep.hydra.launcher import GridLauncher
from sweep.hydra.sweeper import GridSweeper


class DrainbenchLauncher(GridLauncher):
    """See `sweep.hydra.launcher`."""


class DrainbenchSweeper(GridSweeper):
    """See `sweep.hydra.sweeper`."""


ConfigStore.instance().store(
    group="hydra/launcher",
    name="drainbench",
    node={"_target_": "hydra_plugins.drainbench.plugins.DrainbenchLauncher"},
    provider="drainbench",
)
ConfigStore.instance().store(
    group="hydra/sweeper",
    name="drainbench",
    node={
        "_target_": "hydra_plugins.drainbench.plugins.DrainbenchSweeper",
        # In a multirun both algorithms are the default (paper, §3.2.4).
        "params": {"algorithm": "leastconn,roundrobin"},
    },
    provider="drainbench",
)
