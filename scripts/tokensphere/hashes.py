"""Names for content: sha256 of files, of the members of a store, and of plain values."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def of_file(path: str | Path) -> str:
    """Return the sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def members(path: str | Path) -> list[tuple[str, str]]:
    """List the members of a zip archive by name, each with the sha256 of its bytes."""
    with zipfile.ZipFile(path) as archive:
        return [
            (name, hashlib.sha256(archive.read(name)).hexdigest())
            for name in sorted(archive.namelist())
        ]


def of_members(path: str | Path) -> str:
    """Return the sha256 of what a zip archive holds: its members' names and bytes.

    Two archives with the same members have the same id, whatever time stamps and order they
    were written with.
    """
    digest = hashlib.sha256()
    for name, member in members(path):
        digest.update(f"{member}  {name}\n".encode())
    return digest.hexdigest()


def of_value(value: Any) -> str:
    """Return the sha256 of a value's canonical JSON form (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Cache:
    """Hashes of files that were hashed before, kept in one JSON file.

    An entry holds while path, size, modification time, change time and inode stay what they
    were. The change time is set by the kernel: a file replaced by another of the same size,
    with its old modification time put back, is hashed anew.

    Parameters
    ----------
    path : str or Path
        The cache's file. A missing or damaged one counts as empty.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._known: dict[str, list[Any]] = dict(json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):
            self._known = {}
        self._changed = False

    def of_file(self, path: str | Path) -> str:
        """Return the sha256 of a file, reading it only if it is not known or has changed."""
        status = os.stat(path)
        stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        key = str(Path(path).resolve())
        entry = self._known.get(key)
        if entry is None or entry[:-1] != stamp:
            entry = [*stamp, of_file(path)]
            self._known[key] = entry
            self._changed = True
        return str(entry[-1])

    def save(self) -> None:
        """Write the cache, if it learnt anything, in one step."""
        if self._changed:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps(self._known, indent=1, sort_keys=True))
            self._changed = False


def write_atomically(path: Path, text: str) -> None:
    """Write a small text file so that a reader sees the old one or the new one, whole."""
    # Not by the process id alone: another node of a cluster may have the same one.
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def to_json(value: Mapping[str, Any]) -> str:
    """Return a mapping as indented JSON with sorted keys, one newline at the end."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
