"""Configuration of HAProxy's Data Plane API beside an HAProxy (paper, §4.1 and §4.3)."""

from __future__ import annotations

import json


def render(
    *,
    bind: str,
    port: int,
    user: str,
    password: str,
    haproxy_config: str,
    haproxy: str,
    scratch: str,
) -> str:
    """dataplaneapi.yml (JSON is YAML too).

    `haproxy_config` is a copy of HAProxy's configuration, so that nothing the API does reaches
    HAProxy's own; it names the runtime socket. `haproxy` is the program, `scratch` a folder for
    what the API keeps. Its reload does nothing: none may happen in a run.
    """
    return json.dumps(
        {
            "config_version": 2,
            "name": "drainbench",
            "dataplaneapi": {
                "host": bind,
                "port": port,
                "scheme": ["http"],
                "disable_inotify": True,
                "user": [{"name": user, "password": password, "insecure": True}],
                "transaction": {"transaction_dir": f"{scratch}/transactions"},
                "resources": {
                    "maps_dir": f"{scratch}/maps",
                    "ssl_certs_dir": f"{scratch}/ssl",
                    "general_storage_dir": f"{scratch}/general",
                    "spoe_dir": f"{scratch}/spoe",
                    "spoe_transaction_dir": f"{scratch}/spoe-transactions",
                    "dataplane_storage_dir": f"{scratch}/dataplane",
                },
            },
            "haproxy": {
                "config_file": haproxy_config,
                "haproxy_bin": haproxy,
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
