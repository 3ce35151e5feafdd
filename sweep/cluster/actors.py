"""The two kinds of Ray actors: one owns a testbed at a time, one holds a warm model server.

Both do their long work in their main thread of execution and answer questions about it in a
concurrency group of their own, so that they can be watched and interrupted while they work.
"""

from __future__ import annotations

import importlib
import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray

from sweep.cluster.messages import Progress, Report, Task
from sweep.config.specs import ServingPlan


@ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, concurrency_groups={"io": 2})
class TestbedWorker:
    """Runs one attempt after the other, each on a testbed of its own."""

    __test__ = False

    def __init__(self, kind: str, asks_models: bool) -> None:
        """`kind`: driver of the testbeds to come; `asks_models`: whether any run has a model."""
        # Seconds of imports, better spent here than within a run's time.
        import httpx

        import sweep.metrics.aggregate
        import sweep.run.attempt  # noqa: F401
        from sweep.metrics import intervals

        intervals.preload()
        importlib.import_module(f"testbed.{kind}.driver")
        # Most of httpx is imported when a first client is made.
        httpx.Client(trust_env=False).close()
        if asks_models:
            from controller.policies import endpoint

            endpoint.preload()
        self._lock = threading.Lock()
        self._control: Any = None

    def run(self, task: Task) -> Report:
        """One attempt, from nothing to a folder that can be published; never raises."""
        from sweep.run.attempt import AttemptControl, run_attempt

        control = AttemptControl(task.point)
        with self._lock:
            self._control = control
        return run_attempt(task, control)

    @ray.method(concurrency_group="io")
    def progress(self) -> Progress:
        """Where the attempt is."""
        control = self._control
        return control.progress() if control is not None else Progress()

    @ray.method(concurrency_group="io")
    def interrupt(self) -> None:
        """Make the attempt end soon, with everything stopped and collected."""
        with self._lock:
            if self._control is not None:
                self._control.interrupt()

    @ray.method(concurrency_group="io")
    def pid(self) -> int:
        """The worker's process, for diagnosis and tests."""
        return os.getpid()


@ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, concurrency_groups={"io": 1})
class ModelServer:
    """Holds one model server, warm, until it is told to stop."""

    def __init__(
        self, plan: ServingPlan, system_prompt: str, tools: list[dict], log_path: Path
    ) -> None:
        self._plan = plan
        self._system_prompt = system_prompt
        self._tools = tools
        self._log_path = log_path
        self._endpoint: Any = None

    def start(self) -> dict[str, Any]:
        """Bring the server up, verify modes and memory, warm it up.

        Returns the endpoint's address, key and report; raises `serving.errors.ServingError`.
        """
        from sweep.run.endpoint import bring_up

        self._endpoint, info = bring_up(
            self._plan, self._system_prompt, self._tools, self._log_path
        )
        return {**asdict(info), "api_key": info.api_key}

    def stop(self) -> None:
        """End the server and wait until it is gone."""
        if self._endpoint is not None:
            self._endpoint.stop()
            self._endpoint = None

    @ray.method(concurrency_group="io")
    def pid(self) -> int:
        """The actor's process, for diagnosis and tests."""
        return os.getpid()
