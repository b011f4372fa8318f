"""The cache of weight sets that no checkpoint holds: random draws, dequantised files.

It holds ordinary checkpoint folders, each named by what decides its content, with a manifest of
its files' hashes. It can be deleted at any time: what is missing is made again. `make_room` deletes
what was used longest ago and nobody uses now.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from tokensphere import hashes
from tokensphere.harness.log import logger

MANIFEST = "manifest.json"
# Lock files of the sets that this process uses -> their descriptors, which the kernel closes when
# the process ends, however it ends.
_USED: dict[Path, int] = {}


def ensure(
    cache: Path,
    key: Sequence[Any],
    write: Callable[[Path], Mapping[str, Any]],
    known: hashes.Cache,
) -> Path:
    """Return the folder of a weight set, writing it if it is not there yet.

    Whichever process needs it first writes it under a lock, in a folder of a unique name that is
    moved into place once it is complete; the others wait. A folder whose files are not those of
    its manifest is written again. The set counts as used by this process until it ends.

    Parameters
    ----------
    cache : Path
        The folder of all cached weight sets.
    key : sequence of JSON values
        All that decides the content.
    write : callable (folder) -> mapping
        Writes a checkpoint into a folder that it makes; returns what else the manifest says.
    known : hashes.Cache
        Hashes of files that did not change since they were last read.
    """
    place = cache / hashes.of_value(list(key))
    cache.mkdir(parents=True, exist_ok=True)
    _use(_lock_file(place))
    with FileLock(cache / f"{place.name}.lock"):
        # The lock is ours, so whoever began one of these parts is gone.
        for part in cache.glob(f".{place.name}.*.part"):
            shutil.rmtree(part, ignore_errors=True)
        if not is_complete(place, known):
            shutil.rmtree(place, ignore_errors=True)
            part = cache / f".{place.name}.{secrets.token_hex(4)}.part"
            about = dict(write(part))
            files = {path.name: hashes.of_file(path) for path in sorted(part.iterdir())}
            manifest = hashes.to_json({"files": files, **about})
            (part / MANIFEST).write_text(manifest, encoding="utf-8")
            os.replace(part, place)
    with contextlib.suppress(PermissionError):  # another user's, in a shared cache
        os.utime(place / MANIFEST)  # its time is when it was last used; no hash is of it
    return place


def make_room(cache: Path, limit_gb: float) -> None:
    """Delete weight sets, those used longest ago first, until the cache keeps to a limit.

    A set that a process uses stays: this one's, one that is being written, or one that another
    process has found and loads. What killed writers left goes first.

    Parameters
    ----------
    cache : Path
        The folder of all cached weight sets.
    limit_gb : float
        In GB (10^9 bytes).
    """
    with FileLock(cache / ".room.lock"):
        sets = sorted((path for path in cache.iterdir() if path.is_dir()), key=_last_used)
        sizes = {path: _size(path) for path in sets}
        excess = sum(sizes.values()) - limit_gb * 10**9
        for path in sets:
            if excess > 0 and _delete_unless_used(path):
                logger.info("deleted %s from the cache of weights", path)
                excess -= sizes[path]
    if excess > 0:
        logger.info("what is used of %s is %.3g GB more than its limit", cache, excess / 10**9)


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Make a folder for one process within another, and delete it at the end.

    What killed processes left in there is deleted first: their locks are gone with them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".*.part"):
        if _delete_unless_used(left):
            _lock_file(left).unlink(missing_ok=True)
    own = folder / f".{secrets.token_hex(8)}.part"
    _use(_lock_file(own))
    own.mkdir()
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        _lock_file(own).unlink(missing_ok=True)
        os.close(_USED.pop(_lock_file(own)))


def _lock_file(path: Path) -> Path:
    """Return the lock of those who use a set; a part, `.SET.XXXX.part`, shares it."""
    return path.with_name(f"{path.name.lstrip('.').partition('.')[0]}.used")


def _use(lock: Path) -> None:
    """Share a lock until this process ends; wait where its files are being deleted."""
    while lock not in _USED or not _is_file(_USED[lock], lock):
        if lock in _USED:  # the cache was deleted, and the lock with it
            os.close(_USED.pop(lock))
        descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _USED[lock] = descriptor


def _is_file(descriptor: int, path: Path) -> bool:
    """Tell whether a descriptor is of the file that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _delete_unless_used(path: Path) -> bool:
    """Delete a folder, unless a process uses it; say whether it is gone."""
    descriptor = os.open(_lock_file(path), os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _last_used(path: Path) -> float:
    """Return when a set was last used; 0 of one that is not complete."""
    try:
        return (path / MANIFEST).stat().st_mtime
    except OSError:
        return 0


def _size(folder: Path) -> int:
    """Return the bytes of a folder's files; one that is deleted meanwhile counts as far as seen."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += path.lstat().st_size if path.is_file() else 0
    return size


def is_complete(place: Path, known: hashes.Cache) -> bool:
    """Say whether a cached weight set holds exactly the files of its manifest."""
    try:
        files = json.loads((place / MANIFEST).read_text(encoding="utf-8"))["files"]
        there = {path.name for path in place.iterdir()} - {MANIFEST}
        return there == files.keys() and all(
            known.of_file(place / name) == sha for name, sha in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
