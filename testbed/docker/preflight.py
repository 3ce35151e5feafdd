"""What keeps a testbed from starting on this engine, found out before a sweep begins."""

from __future__ import annotations

from ipaddress import IPv4Network

from testbed.api import TestbedSpec
from testbed.docker import images, network, plan
from testbed.docker.engine import connect
from testbed.docker.settings import DockerSettings
from testbed.errors import TestbedError


def problems_of(spec: TestbedSpec) -> list[str]:
    """One line each, with the way out; may be empty.

    Docker not running or not permitted, keys that mean nothing, images that are not here, a pool
    of addresses that no fleet fits in.
    """
    try:
        settings = DockerSettings.from_options(spec.options)
        engine = connect(settings.engine_timeout_s)
        try:
            dataplane = images.require_dataplane(settings, images.resolve(engine, settings))
        finally:
            engine.close()
        prefix = network.prefix_for(plan.all_containers(spec, dataplane))
        if IPv4Network(settings.subnet_pool).prefixlen > prefix:
            return [
                f"testbed.subnet_pool={settings.subnet_pool} is too small: this fleet takes a "
                f"/{prefix}, and each testbed at the same time another one"
            ]
    except TestbedError as error:
        return [str(error)]
    return []
