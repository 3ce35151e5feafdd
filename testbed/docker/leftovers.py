"""Finds the testbeds that this engine holds, and removes those whose owner is gone."""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker.errors import APIError
from requests.exceptions import RequestException

from testbed.docker import labels
from testbed.docker.engine import Engine
from testbed.leftovers import TestbedInfo
from testbed.workdir import PREFIX, Process

LIVE: set[str] = set()
"""Ids of the testbeds that this process has started and not stopped."""


def list_testbeds(engine: Engine) -> list[TestbedInfo]:
    """Every testbed that has an object on this engine, oldest first."""
    objects: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    everything = {"label": labels.TESTBED}
    for found in (
        engine.api.containers(all=True, filters=everything),
        engine.api.networks(filters=everything),
    ):
        for item in found:
            objects[item["Labels"][labels.TESTBED]].append(item)
    infos = [_info(name, items) for name, items in objects.items()]
    return sorted((info for info in infos if info), key=lambda info: -info.age_s)


def _info(name: str, items: Iterable[Mapping[str, Any]]) -> TestbedInfo | None:
    items = list(items)
    marks = items[0]["Labels"]
    owner = labels.owner_in(marks)
    if owner is None:
        return None  # a label that looks like ours is no proof: leave it alone
    running = (
        item["Labels"].get(labels.COMPONENT, "?")
        for item in items
        if item.get("State") == "running"
    )
    return TestbedInfo(
        id=name,
        path=Path(marks[labels.FOLDER]),
        kind="docker",
        run_id=owner.run_id,
        owner=owner.process,
        owner_alive=owner.alive() and not _forgotten(name, owner.process),
        foreground=owner.foreground,
        age_s=max(0.0, time.time() - owner.created_s),
        running=tuple(sorted(running)),
    )


def _forgotten(name: str, owner: Process) -> bool:
    """Ours, but not in use: an object that the engine made after we had given it up."""
    return owner == Process.myself() and name not in LIVE


def sweep_leftovers(engine: Engine) -> list[str]:
    """Remove the testbeds whose owner is gone; return their ids. Never touches a live owner's.

    Safe to call at any time, from several processes at once.
    """
    removed = []
    for info in list_testbeds(engine):
        if not info.owner_alive and remove_testbed(engine, info.id):
            remove_folder(info.path)
            removed.append(info.id)
    return removed


def remove_testbed(engine: Engine, name: str, settle_s: float = 0.0, limit_s: float = 30.0) -> bool:
    """Remove every container, then every network of the testbed `name`; whether none is left.

    With `settle_s` it goes on looking for that long: an engine that did not answer in time may
    still be making what it was asked for. Failures (an object that is busy, an engine that is just
    being restarted) are tried again until `limit_s`.
    """
    mine = {"label": f"{labels.TESTBED}={name}"}
    started = time.monotonic()
    while True:
        left = True
        with suppress(APIError, RequestException):
            ids = [item["Id"] for item in engine.api.containers(all=True, filters=mine)]
            with ThreadPoolExecutor(max(1, len(ids))) as pool:
                list(pool.map(lambda item: _remove_container(engine, item), ids))
            networks = [item["Id"] for item in engine.api.networks(filters=mine)]
            for network in networks:
                _remove_network(engine, network)
            left = bool(ids or networks)
        elapsed = time.monotonic() - started
        if not left and elapsed >= settle_s:
            return True
        if elapsed >= max(limit_s, settle_s):
            return False
        # What was just removed is looked for once more at once; what stays is given time.
        time.sleep(0.0 if left and elapsed < 1.0 else 0.3)


def _remove_container(engine: Engine, container: str) -> None:
    with suppress(APIError, RequestException):  # gone, or somebody else is at it
        engine.api.remove_container(container, force=True, v=True)


def _remove_network(engine: Engine, network: str) -> None:
    with suppress(APIError, RequestException):
        engine.api.remove_network(network)


def remove_folder(path: Path) -> None:
    """Delete a testbed's folder, if it is one and ours."""
    with suppress(OSError):
        if path.name.startswith(PREFIX) and path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
