"""Real and virtual time (`controller.api.Clock`)."""

from __future__ import annotations

import threading
import time


class RealClock:
    """Wall clock and monotonic clock of this machine.

    `sleep_s` returns early once `stop` is set, so that a loop that is asked to end ends soon.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def time_us(self) -> int:
        """Unix time in µs."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        """Sleep for `seconds`, less when the loop is asked to stop."""
        if seconds > 0:
            self._stop.wait(seconds)


class VirtualClock:
    """Time that passes only when somebody sleeps or `advance_s` is called.

    Both readings move together, in whole µs, so that sums of many small sleeps don't drift.
    """

    def __init__(self, start_us: int = 0) -> None:
        self._start_us = start_us
        self._now_us = start_us

    def time_us(self) -> int:
        """Virtual unix time in µs."""
        return self._now_us

    def monotonic_s(self) -> float:
        """Virtual seconds since the clock was made."""
        return (self._now_us - self._start_us) / 1e6

    def sleep_s(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        self.advance_s(seconds)

    def advance_s(self, seconds: float) -> None:
        """Let `seconds` pass; time never goes back."""
        self._now_us += max(0, round(seconds * 1e6))
