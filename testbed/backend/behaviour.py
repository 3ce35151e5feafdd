"""What a backend does with a request: a pure function of seed, instance and request id."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from testbed.api import ServerProfile


@dataclass(frozen=True)
class Outcome:
    """How long a request takes, in whole ms, and whether it is answered 500."""

    delay_ms: int
    failed: bool


@dataclass(frozen=True)
class Behaviour:
    """A profile at its place in the fleet.

    `base_ms` includes the index term ⌊i/3⌋ ms (paper, Table 1), `error_rate` the error mode.
    """

    profile: ServerProfile
    base_ms: int
    error_rate: float
    seed: int
    instance: int

    def draw(self, request_id: str) -> Outcome:
        """The outcome of one request: the same arguments always give the same one."""
        text = f"{self.seed}:{self.instance}:{request_id}"
        digest = hashlib.sha256(text.encode()).digest()
        rng = random.Random(int.from_bytes(digest[:8], "big"))
        delay_ms = self.base_ms + rng.randint(0, self.profile.jitter_ms)
        # Drawn in every profile, so that a spike does not move the error draws of a seed.
        if rng.random() < self.profile.spike_probability:
            delay_ms += self.profile.spike_ms
        failed = rng.random() < self.error_rate
        if failed:
            delay_ms += self.profile.error_extra_ms
        return Outcome(delay_ms, failed)
