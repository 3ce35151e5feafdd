"""What the `docker` driver is configured with; defaults as in conf/testbed/docker.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network
from math import inf
from typing import Any, Literal, get_args

from testbed.errors import TestbedError

ImageSet = Literal["debian", "official"]
DataPlaneMode = Literal["auto", "on", "off"]

MEMORY_MIB: Mapping[str, int] = {
    "haproxy": 512,
    "dataplane": 512,
    "prometheus": 1024,
    "redis": 1024,
    "k6": 2048,
    "backend": 256,
}
"""Memory limit of each container in MiB, swap included. Some four times what it was seen to use."""


@dataclass(frozen=True)
class DockerSettings:
    """Knobs of the driver; none of them may change a run's result except `images`."""

    images: ImageSet = "debian"
    """`debian`: one image with everything (see `build`); `official`: the vendors' pinned tags."""
    image_names: Mapping[str, str] = field(default_factory=dict)
    """Other image references by role; the Data Plane API is looked for in HAProxy's image."""
    subnet_pool: str = "10.213.0.0/16"
    """Private range that the testbeds' small subnets are taken from."""
    cpusets: bool = True
    """Give k6, HAProxy and the backends cores of their own where there are enough."""
    memory_mib: Mapping[str, int] = field(default_factory=lambda: dict(MEMORY_MIB))
    log_max_mib: int = 16
    """Cap of each container's log."""
    dataplane: DataPlaneMode = "auto"
    """Data Plane API beside HAProxy: `auto` starts it where the image has it."""
    engine_timeout_s: float = 60.0
    """How long one call to the engine may take."""
    least_free_disk_mib: int = 1024
    """Refuse to start with less than this free where the run's files go."""

    def __post_init__(self) -> None:
        try:
            pool = IPv4Network(self.subnet_pool)
        except ValueError as error:
            raise ValueError(f"testbed.subnet_pool={self.subnet_pool}: {error}") from error
        if not pool.is_private:
            raise ValueError(f"testbed.subnet_pool={pool} is no private range")
        for key, kind in (("images", ImageSet), ("dataplane", DataPlaneMode)):
            if getattr(self, key) not in get_args(kind):
                raise ValueError(
                    f"testbed.{key}={getattr(self, key)}: one of {', '.join(get_args(kind))}"
                )
        if not isinstance(self.cpusets, bool):
            raise ValueError(f"testbed.cpusets={self.cpusets}: true or false")
        for key, least in (("log_max_mib", 1), ("least_free_disk_mib", 0)):
            if not _is_whole(value := getattr(self, key)) or value < least:
                raise ValueError(f"testbed.{key}={value}: whole MiB, {least} at least")
        timeout_s = self.engine_timeout_s
        if not (_is_whole(timeout_s) or isinstance(timeout_s, float)) or not 1 <= timeout_s < inf:
            raise ValueError(f"testbed.engine_timeout_s={timeout_s}: a number, 1 s at least")
        for role, mib in self.memory_mib.items():
            if role not in MEMORY_MIB or not _is_whole(mib) or mib < 8:
                raise ValueError(
                    f"testbed.memory_mib.{role}={mib}: at least 8 MiB for each of "
                    + ", ".join(MEMORY_MIB)
                )

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> DockerSettings:
        """Settings from the testbed's configuration; keys of other drivers are refused.

        Raises `TestbedError` naming the key.
        """
        known = {item.name for item in fields(cls)}
        unknown = options.keys() - known
        if unknown:
            raise TestbedError(
                f"testbed.{sorted(unknown)[0]} is no key of testbed=docker; there are: "
                + ", ".join(sorted(known))
            )
        given = dict(options)
        for key in ("memory_mib", "image_names"):
            if not isinstance(given.get(key, {}), Mapping):
                raise TestbedError(f"testbed.{key}={given[key]}: values by name are needed")
        try:
            if "memory_mib" in given:
                given["memory_mib"] = {**MEMORY_MIB, **given["memory_mib"]}
            if "image_names" in given:  # null: the set's own
                named = given["image_names"].items()
                given["image_names"] = {role: name for role, name in named if name}
            return cls(**given)
        except (ValueError, TypeError, AttributeError) as error:
            raise TestbedError(str(error)) from error


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
