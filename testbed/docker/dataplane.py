"""HAProxy's Data Plane API beside HAProxy: its configuration, and when it is ready (paper, §4.3).

It reads a copy of HAProxy's configuration and the runtime socket; the controller discovers backends
and servers through it.
"""

from __future__ import annotations

import json

import httpx

from testbed.api import BACKEND_NAME, DataPlaneAddress
from testbed.docker import plan
from testbed.waiting import Probe

# Paths of the two major versions.
_SERVERS = (
    f"/v3/services/haproxy/runtime/backends/{BACKEND_NAME}/servers",
    f"/v2/services/haproxy/runtime/servers?backend={BACKEND_NAME}",
)


def dataplane_answers(client: httpx.Client, address: DataPlaneAddress, slots: int) -> Probe:
    """The Data Plane API lists all slots of the fleet."""

    def check() -> tuple[bool, str]:
        seen = ""
        for path in _SERVERS:
            answer = client.get(address.url + path, auth=(address.user, address.password))
            if answer.status_code == 200:
                names = [row["name"] for row in answer.json()]
                return len(names) == slots, f"{len(names)} servers listed"
            seen += f"{path.split('/')[1]}: HTTP {answer.status_code} {answer.text[:120]} "
        return False, seen

    return Probe(f"the Data Plane API to list {slots} servers", check, "its log")


def render(secrets: plan.Secrets) -> str:
    """dataplaneapi.yml (JSON is YAML too). Its reload does nothing: none may happen in a run."""
    return json.dumps(
        {
            "config_version": 2,
            "name": "drainbench",
            "dataplaneapi": {
                "host": "0.0.0.0",
                "port": plan.DATAPLANE_PORT,
                "scheme": ["http"],
                "disable_inotify": True,
                "user": [
                    {
                        "name": secrets.dataplane_user,
                        "password": secrets.dataplane,
                        "insecure": True,
                    }
                ],
                "transaction": {"transaction_dir": "/tmp/transactions"},
                "resources": {
                    "maps_dir": "/tmp/maps",
                    "ssl_certs_dir": "/tmp/ssl",
                    "general_storage_dir": "/tmp/general",
                    "spoe_dir": "/tmp/spoe",
                    "spoe_transaction_dir": "/tmp/spoe-transactions",
                    "dataplane_storage_dir": "/tmp/dataplane",
                },
            },
            "haproxy": {
                "config_file": f"{plan.CONFIG_DIR}/haproxy.cfg",
                "haproxy_bin": "haproxy",
                "reload": {
                    "reload_delay": 5,
                    "reload_cmd": "true",
                    "restart_cmd": "true",
                    "reload_strategy": "custom",
                },
            },
        },
        indent=1,
    )
