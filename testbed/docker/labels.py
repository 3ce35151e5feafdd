"""Labels on every Docker object of a testbed: what it belongs to and which process owns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.workdir import Owner, Process

PREFIX = "drainbench."
TESTBED = PREFIX + "testbed"
COMPONENT = PREFIX + "component"
RUN = PREFIX + "run"
SWEEP = PREFIX + "sweep"
ATTEMPT = PREFIX + "attempt"
FOLDER = PREFIX + "folder"
BOOT_ID = PREFIX + "boot-id"
OWNER_PID = PREFIX + "owner-pid"
OWNER_TICKS = PREFIX + "owner-ticks"
OWNER_NAMESPACE = PREFIX + "owner-namespace"
FOREGROUND = PREFIX + "foreground"
CREATED = PREFIX + "created"


@dataclass(frozen=True)
class Origin:
    """For which attempt of which run of which sweep a testbed is; empty where by hand."""

    sweep: str = ""
    attempt: str = ""


def labels_of(testbed_id: str, folder: str, owner: Owner, origin: Origin) -> dict[str, str]:
    """The labels that all objects of one testbed share."""
    return {
        TESTBED: testbed_id,
        FOLDER: folder,
        RUN: owner.run_id,
        SWEEP: origin.sweep,
        ATTEMPT: origin.attempt,
        BOOT_ID: owner.boot,
        OWNER_PID: str(owner.process.pid),
        OWNER_TICKS: str(owner.process.ticks),
        OWNER_NAMESPACE: owner.namespace,
        FOREGROUND: str(owner.foreground).lower(),
        CREATED: f"{owner.created_s:.3f}",
    }


def owner_in(labels: Mapping[str, str]) -> Owner | None:
    """The inverse of `labels_of`; None where the labels are not a complete set of ours."""
    try:
        return Owner(
            process=Process(int(labels[OWNER_PID]), int(labels[OWNER_TICKS])),
            boot=labels[BOOT_ID],
            namespace=labels[OWNER_NAMESPACE],
            kind="docker",
            run_id=labels[RUN],
            foreground=labels[FOREGROUND] == "true",
            created_s=float(labels[CREATED]),
        )
    except (KeyError, ValueError):
        return None
