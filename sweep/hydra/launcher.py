"""Hands all grid points at once to the runner (`sweep.main`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig


class GridLauncher(Launcher):
    """A launcher for which the whole grid is one job: Ray is below it, not beside it."""

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Keep what `launch` needs."""
        self._hydra_context = hydra_context
        self._config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        """Run the grid; raises `SystemExit` with the sweep's exit code."""
        from sweep.main import run_jobs

        loader = self._hydra_context.config_loader
        raise SystemExit(
            run_jobs(job_overrides, lambda rest: loader.load_sweep_config(self._config, rest))
        )
