"""The signals that ask a sweep to stop: Ctrl-C, SIGTERM, and a terminal that is closed."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], object]


def on_stop(handler: Handler) -> dict[int, object]:
    """Let `handler` have the stop signals; returns the handlers before, for `give_back`.

    A SIGHUP that is ignored stays so: under nohup a sweep outlives its terminal.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_closed_terminals()
        handler(number, frame)

    return {
        number: signal.signal(number, handle)
        for number in STOP_SIGNALS
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    }


def give_back(handlers: dict[int, object]) -> None:
    """Restore the handlers that `on_stop` replaced."""
    for number, handler in handlers.items():
        signal.signal(number, handler)  # type: ignore[arg-type]


def leave_closed_terminals(fds: tuple[int, ...] = (1, 2)) -> None:
    """Send to nowhere what would go to a terminal that is gone: writing there is an error."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, 0)
    for fd, event in poll.poll(0):
        if event & (select.POLLHUP | select.POLLERR):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, fd)
            os.close(nowhere)


@contextmanager
def hangups_wait() -> Iterator[None]:
    """What is started meanwhile never sees a SIGHUP; one of ours comes when this ends.

    A closing terminal sends it to the whole process group: without Ray's own processes, runs could
    not be stopped in order.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
