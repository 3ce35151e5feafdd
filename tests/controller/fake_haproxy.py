"""A fake runtime socket that accepts every command and does nothing, or says what a test wants."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable

STATE = (
    "1\n"
    "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port\n"
    "4 be_api 1 api-1 127.0.0.1 2 {admin_state} 100 8000\n\n"
)


class FakeHAProxy:
    """Answers each command with `answer(command)` and closes, as HAProxy does."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.commands: list[str] = []
        fake = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                command = self.rfile.readline().decode().strip()
                fake.commands.append(command)
                self.wfile.write(answer(command).encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"tcp://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
