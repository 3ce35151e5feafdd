"""The configuration files of a testbed, written into the folders that the containers mount."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from testbed.api import SLOT_PREFIX, TestbedSpec
from testbed.config import dataplane as dataplane_config
from testbed.config import prometheus as prometheus_config
from testbed.config import redis as redis_config
from testbed.config.haproxy import HAProxyConfig, ServerTemplate
from testbed.docker import plan
from testbed.errors import OutputFailed
from testbed.load.command import SCRIPTS

FOLDERS = ("haproxy", "prometheus", "redis", "dataplane", "k6", "load", "run")
"""What `testbed.docker.plan` mounts from."""


def haproxy_text(spec: TestbedSpec) -> str:
    """haproxy.cfg: slots are filled from Docker's DNS, in whatever order it answers (§3.4)."""
    return HAProxyConfig(
        algorithm=spec.algorithm,
        servers=ServerTemplate(
            prefix=SLOT_PREFIX,
            slots=spec.fleet.backends,
            address=f"{plan.FLEET_ALIAS}:{plan.BACKEND_PORT}",
            resolver="127.0.0.11:53",
        ),
        weight=spec.initial_weight,
        runtime_socket=f"{plan.SOCKET_DIR}/{plan.SOCKET_NAME}",
        frontend_bind=f"*:{plan.FRONTEND_PORT}",
        exporter_bind=f"*:{plan.EXPORTER_PORT}",
        maxconn=max(2000, 10 * spec.load.vus),
    ).render()


def write(folder: Path, spec: TestbedSpec, secrets: plan.Secrets, user: str) -> None:
    """Make and fill every folder, for the eyes of the containers' `user` (`uid:gid`) alone.

    Raises `OutputFailed`.
    """
    haproxy = haproxy_text(spec)
    files = {
        "haproxy/haproxy.cfg": haproxy,
        "prometheus/prometheus.yml": prometheus_config.render_dns(
            haproxy=("haproxy", plan.EXPORTER_PORT),
            fleet=(plan.FLEET_ALIAS, plan.BACKEND_PORT),
            interval_s=spec.scrape_interval_s,
        ),
        "redis/redis.conf": redis_config.render("0.0.0.0", plan.REDIS_PORT, secrets.redis, "/tmp"),
        "dataplane/haproxy.cfg": haproxy,
        "dataplane/dataplaneapi.yml": dataplane_config.render(
            bind="0.0.0.0",
            port=plan.DATAPLANE_PORT,
            user=secrets.dataplane_user,
            password=secrets.dataplane,
            haproxy_config=f"{plan.CONFIG_DIR}/haproxy.cfg",
            haproxy="haproxy",
            scratch="/tmp",
        ),
    }
    uid, gid = (int(part) for part in user.split(":"))
    try:
        for name in FOLDERS:
            (folder / name).mkdir(mode=0o700)
        for name, text in files.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        for script in SCRIPTS.glob("*.js"):
            shutil.copyfile(script, folder / "k6" / script.name)
        if os.geteuid() == 0 and uid != 0:
            for path in [folder / name for name in FOLDERS]:
                for item in (path, *path.iterdir()):
                    os.chown(item, uid, gid)
    except OSError as error:
        raise OutputFailed(f"{folder} can't be written: {error.strerror}") from error
