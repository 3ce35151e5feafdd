"""Virtual time passes only when it is slept."""

from __future__ import annotations

import time

from controller.clock import RealClock, VirtualClock


def test_both_virtual_readings_move_together() -> None:
    clock = VirtualClock(1_000_000)
    for _ in range(1000):
        clock.sleep_s(0.1)
    clock.sleep_s(-5.0)
    assert clock.time_us() == 101_000_000
    assert clock.monotonic_s() == 100.0


def test_a_real_clock_does_not_sleep_backwards() -> None:
    clock = RealClock()
    clock.sleep_s(-1.0)
    clock.sleep_s(0.0)
    before = clock.monotonic_s()
    clock.sleep_s(0.01)
    assert clock.monotonic_s() - before >= 0.005
    assert abs(clock.time_us() / 1e6 - time.time()) < 60
