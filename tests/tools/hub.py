"""A hub of one's own: what huggingface_hub asks of a server, answered from a folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve(repository: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve a checkpoint folder as a repository; yield the address and what was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            names = sorted(file.name for file in folder.iterdir())
            api = f"/api/models/{repository}"
            if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
                files = [{"rfilename": name} for name in names]
                self._answer(
                    json.dumps({"id": repository, "sha": COMMIT, "siblings": files}).encode(),
                    "application/json",
                )
                return
            if path == f"{api}/tree/{COMMIT}":
                tree = [
                    {
                        "type": "file",
                        "path": name,
                        "oid": name,
                        "size": (folder / name).stat().st_size,
                    }
                    for name in names
                ]
                self._answer(json.dumps(tree).encode(), "application/json")
                return
            prefix = f"/{repository}/resolve/{COMMIT}/"
            if path.startswith(prefix) and path.removeprefix(prefix) in names:
                name = path.removeprefix(prefix)
                asked.append(name)
                self._answer((folder / name).read_bytes(), "application/octet-stream", name)
                return
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _answer(self, body: bytes, kind: str, name: str = "") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{name}-{len(body)}"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
