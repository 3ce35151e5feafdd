"""A model hub of one repository, as the real client speaks to it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

COMMIT_RECORD = {
    "title": "t",
    "message": "",
    "authors": [],
    "date": "2026-01-02T03:04:05.000Z",
}


@contextmanager
def fake_hub(repo: str, commits: list[str], files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve `repo`, whose commits (newest first) all hold `files`; yields the hub's URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path.startswith(f"/api/models/{repo}/commits/"):
                self.answer([COMMIT_RECORD | {"id": commit} for commit in commits])
            elif path.startswith(f"/api/models/{repo}/revision/"):
                siblings = [
                    {"rfilename": name, "size": len(content)} for name, content in files.items()
                ]
                sha = path.rsplit("/", 1)[1]
                self.answer({"id": repo, "sha": sha, "siblings": siblings})
            elif path.startswith(f"/{repo}/resolve/"):
                commit, _, name = path.removeprefix(f"/{repo}/resolve/").partition("/")
                self.file(commit, files[name])
            else:
                self.answer({"error": "Repository not found"}, 404, "RepoNotFound")

        def file(self, commit: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def answer(self, body: Any, status: int = 200, code: str = "") -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
