"""A hub of one's own: what huggingface_hub asks of a server, answered from a folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def commit_of(branch: str) -> str:
    """Return the commit of a served branch."""
    return hashlib.sha1(branch.encode()).hexdigest()


@contextmanager
def serve(
    repository: str, folder: Path, branches: Mapping[str, Path] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Serve a checkpoint folder as a repository; yield the address and what was asked for.

    `branches` are further folders, by their names; `commit_of` says at which commit they are.
    """
    asked: list[str] = []
    folders = {COMMIT: folder} | {commit_of(name): one for name, one in (branches or {}).items()}
    commits = {"main": COMMIT} | {one: one for one in folders}
    commits |= {name: commit_of(name) for name in branches or {}}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            api = f"/api/models/{repository}"
            at = "main" if path == api else path.removeprefix(f"{api}/revision/")
            if at in commits:
                here = folders[commits[at]]
                files = [{"rfilename": file.name} for file in sorted(here.iterdir())]
                about = {"id": repository, "sha": commits[at], "siblings": files}
                self._answer(json.dumps(about).encode(), "application/json", commits[at])
                return
            for commit, here in folders.items():
                names = sorted(file.name for file in here.iterdir())
                if path == f"{api}/tree/{commit}":
                    tree = [
                        {
                            "type": "file",
                            "path": name,
                            "oid": name,
                            "size": (here / name).stat().st_size,
                        }
                        for name in names
                    ]
                    self._answer(json.dumps(tree).encode(), "application/json", commit)
                    return
                prefix = f"/{repository}/resolve/{commit}/"
                name = path.removeprefix(prefix)
                if path.startswith(prefix) and name in names:
                    asked.append(name)
                    body = (here / name).read_bytes()
                    self._answer(body, "application/octet-stream", commit, name)
                    return
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _answer(self, body: bytes, kind: str, commit: str, name: str = "") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", commit)
            self.send_header("ETag", f'"{name}-{hashlib.sha1(body).hexdigest()}"')
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
