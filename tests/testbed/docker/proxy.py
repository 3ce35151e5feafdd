"""A unix socket before the engine's, which holds answers back: an engine that is too slow."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path


class SlowEngine:
    """Passes everything on, but answers requests whose first line has `words` after `delay_s`.

    The engine itself does at once what it was asked for.
    """

    def __init__(self, path: Path, words: bytes, delay_s: float, engine: str) -> None:
        self._words = words
        self._delay_s = delay_s
        self._engine = engine
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen(64)
        self.held = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nothing more."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                engine.connect(self._engine)
                slow = threading.Event()
                for source, target, asks in ((client, engine, True), (engine, client, False)):
                    threading.Thread(
                        target=self._pass, args=(source, target, asks, slow), daemon=True
                    ).start()

    def _pass(
        self, source: socket.socket, target: socket.socket, asks: bool, slow: threading.Event
    ) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                if asks and self._words in piece:
                    self.held += 1
                    slow.set()
                if not asks and slow.is_set():
                    time.sleep(self._delay_s)
                    slow.clear()
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
