"""Which instance sits in which slot."""

from __future__ import annotations

import random

from testbed.api import SLOT_PREFIX


def shuffled_slots(backends: int, seed: int) -> dict[str, int]:
    """Slot name to instance number (1 … `backends`), in slot order.

    Shuffled by `seed`, so that no policy can rely on names: under Docker, the order of DNS answers
    does the same (paper, §3.4).
    """
    instances = list(range(1, backends + 1))
    random.Random(seed).shuffle(instances)
    return {f"{SLOT_PREFIX}{slot}": instance for slot, instance in enumerate(instances, start=1)}
