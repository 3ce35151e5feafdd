"""What keeps a testbed from starting on this engine, found out before a sweep begins."""

from __future__ import annotations

from testbed.api import TestbedSpec
from testbed.docker import images
from testbed.docker.engine import connect
from testbed.docker.settings import DockerSettings
from testbed.errors import TestbedError


def problems_of(spec: TestbedSpec) -> list[str]:
    """One line each, with the way out; may be empty.

    Docker not running or not permitted, keys that mean nothing, images that are not here.
    """
    try:
        settings = DockerSettings.from_options(spec.options)
        engine = connect(settings.engine_timeout_s)
        try:
            images.require_dataplane(settings, images.resolve(engine, settings))
        finally:
            engine.close()
    except TestbedError as error:
        return [str(error)]
    return []
