"""Readiness explains itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from testbed.errors import ComponentDied, Interrupted, StartTimeout
from testbed.waiting import All, Probe, wait_for


def probe(what: str, *answers: tuple[bool, str]) -> Probe:
    """Gives one answer after the other, the last one for ever."""
    left = list(answers)
    return Probe(what, lambda: left.pop(0) if len(left) > 1 else left[0], f"hint for {what}")


def soon(seconds: float = 0.2) -> float:
    return time.monotonic() + seconds


def test_it_returns_once_the_condition_holds() -> None:
    condition = probe("slots", (False, "0"), (False, "1"), (True, "2"))
    wait_for(condition, soon(30), threading.Event())


def test_the_time_out_says_what_was_awaited_seen_and_what_to_try() -> None:
    condition = All([probe("port", (True, "open")), probe("slots", (False, "api-1 DOWN"))])
    with pytest.raises(StartTimeout) as caught:
        wait_for(condition, soon(), threading.Event(), evidence=lambda: "haproxy: no route")
    said = str(caught.value)
    assert "for slots" in said
    assert "last seen: api-1 DOWN" in said
    assert "try: hint for slots" in said
    assert "last words: haproxy: no route" in said


def test_an_exception_of_a_probe_is_what_was_seen() -> None:
    def fail() -> tuple[bool, str]:
        raise ConnectionRefusedError("refused")

    with pytest.raises(StartTimeout, match="last seen: ConnectionRefusedError: refused"):
        wait_for(Probe("answer", fail, "its log"), soon(), threading.Event())


def test_the_guard_ends_the_wait() -> None:
    def guard() -> None:
        raise ComponentDied("haproxy ended")

    with pytest.raises(ComponentDied, match="haproxy ended"):
        wait_for(probe("slots", (False, "")), soon(30), threading.Event(), guard)


def test_an_interrupt_ends_the_wait() -> None:
    interrupted = threading.Event()
    timer = threading.Timer(0.1, interrupted.set)
    timer.start()
    with pytest.raises(Interrupted, match="waiting for slots"):
        wait_for(probe("slots", (False, "")), soon(30), interrupted)
    timer.join()


def test_parts_are_asked_in_order() -> None:
    asked: list[str] = []

    def part(name: str, holds: bool) -> Callable[[], tuple[bool, str]]:
        def check() -> tuple[bool, str]:
            asked.append(name)
            return holds, name

        return check

    parts = [Probe(n, part(n, h), "") for n, h in (("a", True), ("b", False), ("c", True))]
    condition = All(parts)
    assert condition.probe() == (False, "b")
    assert asked == ["a", "b"]
    assert condition.what == "b"
