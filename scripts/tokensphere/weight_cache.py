"""The cache of weight sets that no checkpoint holds: random draws, dequantised files.

It holds ordinary checkpoint folders, each named by what decides its content, with a manifest of
its files' hashes. It can be deleted at any time: what is missing is made again.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from tokensphere import hashes

MANIFEST = "manifest.json"


def ensure(
    cache: Path,
    key: Sequence[Any],
    write: Callable[[Path], Mapping[str, Any]],
    known: hashes.Cache,
) -> Path:
    """Return the folder of a weight set, writing it if it is not there yet.

    Whichever process needs it first writes it under a lock, in a folder of a unique name that is
    moved into place once it is complete; the others wait. A folder whose files are not those of
    its manifest is written again.

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
    return place


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
