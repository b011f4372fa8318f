"""What a job read, ran and made: one JSON record a job.

A record has two parts. The deterministic part (inputs, code, params, versions, seeds, outputs)
is the same wherever and whenever the same work is done. The run part (time, host, device,
memory, git) says how it went this time. What is not known is left out, never null.
"""

from __future__ import annotations

import hashlib
import platform
import resource
import socket
import subprocess
import sys
import zipfile
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

from tokensphere import hashes
from tokensphere.harness.errors import UserError

SCHEMA = 1
RECORDS = Path("results/records")


def place(rule: str, wildcards: dict[str, str]) -> Path:
    """Return where the record of a job lies: `results/records/{rule}/{wildcards}.json`."""
    return RECORDS.joinpath(rule, *wildcards.values()).with_name(
        (list(wildcards.values()) or [rule])[-1] + ".json"
    )


def fingerprint(path: str | Path, *, name: str | None = None) -> dict[str, str]:
    """Name a file by what it holds: a store by its members, any other file by its bytes.

    The bytes of a zip archive carry the time of writing, its members do not.
    """
    name = str(path) if name is None else name
    if name.endswith(".zarr.zip"):
        try:
            return {"path": name, "members": hashes.of_members(path)}
        except (zipfile.BadZipFile, zlib.error) as error:
            raise UserError(
                name,
                f"it is no complete zip archive ({error})",
                "delete the file and run the workflow again",
            ) from error
    return {"path": name, "sha256": hashes.of_file(path)}


def peak_memory_mb() -> float:
    """Return the largest resident size that this process has had, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


def cpu_seconds() -> float:
    """Return the processor time that this process has used, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round(used.ru_utime + used.ru_stime, 3)


def installed(versions: dict[str, str]) -> dict[str, str]:
    """Return the installed version of each named distribution, where it is installed."""
    found = {}
    for name in versions:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_state(root: Path) -> dict[str, Any]:
    """Return commit, dirty flag and hash of the difference; empty where there is no git."""

    def ask(*arguments: str) -> bytes:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, check=True, timeout=30).stdout

    try:
        commit = ask("rev-parse", "HEAD").decode().strip()
        difference = ask("diff", "HEAD", "--binary")
    except (OSError, subprocess.SubprocessError):
        return {}
    state: dict[str, Any] = {"commit": commit, "dirty": bool(difference)}
    if difference:
        state["diff_sha256"] = hashlib.sha256(difference).hexdigest()
    return state


def host() -> dict[str, str]:
    """Return the machine and the interpreter that ran the job."""
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }
