"""Gunicorn's settings for a backend, used as `--config python:testbed.backend.gunicorn_conf`.

Address, workers and threads come from the command line.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

worker_class = "gthread"
# No watchdog: a loaded machine must not look like a hung worker.
timeout = 0
graceful_timeout = 1
backlog = 2048
control_socket_disable = True
accesslog = None
errorlog = "-"
loglevel = "info"
if Path("/dev/shm").is_dir():
    # The heartbeat file on a disk would block workers when the disk does.
    worker_tmp_dir = "/dev/shm"


def child_exit(server: Any, worker: Any) -> None:
    """End the whole backend when a worker dies unasked.

    Gunicorn would start another one, and the requests that died with the first would look like
    errors of the fault profile.
    """
    if server.LISTENERS:  # empty once it was asked to stop
        server.log.critical("worker %s died, so does this backend", worker.pid)
        os._exit(70)
