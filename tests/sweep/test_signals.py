"""A terminal that is closed stops a sweep in order, unless nohup says otherwise."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from sweep.signals import STOP_SIGNALS, give_back, hangups_wait, leave_closed_terminals, on_stop


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    give_back(before)


def test_every_stop_signal_is_heard_and_given_back():
    heard = []
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    previous = on_stop(lambda number, _frame: heard.append(number))
    for number in STOP_SIGNALS:
        signal.raise_signal(number)
    assert heard == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    give_back(previous)
    assert {number: signal.getsignal(number) for number in STOP_SIGNALS} == before


def test_under_nohup_a_closed_terminal_stops_nothing():
    heard = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    on_stop(lambda number, _frame: heard.append(number))
    signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_words_to_a_closed_terminal_go_nowhere_and_to_an_open_one_still_arrive():
    ours, closed = os.openpty()
    theirs, opened = os.openpty()
    try:
        os.close(ours)
        with pytest.raises(OSError, match="Input/output error"):
            os.write(closed, b"words")
        leave_closed_terminals((closed, opened))
        assert os.write(closed, b"words") == 5
        os.write(opened, b"words")
        assert os.read(theirs, 5) == b"words"
    finally:
        for fd in (closed, theirs, opened):
            os.close(fd)


def test_what_is_started_meanwhile_outlives_the_terminal_and_we_hear_of_it_afterwards():
    heard = []
    on_stop(lambda number, _frame: heard.append(number))
    with hangups_wait():
        child = subprocess.Popen(["sleep", "60"])
        signal.raise_signal(signal.SIGHUP)
        assert heard == []
    assert heard == [signal.SIGHUP]
    other = subprocess.Popen(["sleep", "60"])
    try:
        for process in (child, other):
            process.send_signal(signal.SIGHUP)
        assert other.wait(30) == -signal.SIGHUP
        assert child.poll() is None
    finally:
        for process in (child, other):
            process.kill()
            process.wait()
