"""Hydra's own sweeper, without composing every job twice."""

from __future__ import annotations

from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser


class GridSweeper(BasicSweeper):
    """The cartesian product of all axes, handed to the launcher in one call.

    Hydra's `BasicSweeper` composes each job once to validate it and writes `multirun.yaml` into a
    folder of its own; here every grid point is validated by the launcher before the first run
    starts, and the run store records the axes.
    """

    def __init__(self, params: dict[str, str] | None = None) -> None:
        super().__init__(max_batch_size=None, params=params)

    def sweep(self, arguments: list[str]) -> Any:
        """Return what the launcher returns."""
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        (jobs,) = self.split_arguments(overrides, None)
        return self.launcher.launch(jobs, initial_job_idx=0)
