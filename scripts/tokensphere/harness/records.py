"""What a job read, ran and made: one JSON record a job.

A record has two parts. The deterministic part (inputs, code, params, versions, seeds, outputs)
is the same wherever and whenever the same work is done. The run part (time, host, device,
memory, git, where things lay) says how it went this time. What is not known is left out, never
null. A record is sealed: it holds the sha256 of all else in it, so that a changed byte shows.
`workflow/schemas/record.schema.yaml` describes every field.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import resource
import socket
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tokensphere import hashes
from tokensphere.harness.errors import UserError

SCHEMA = 2
RECORDS = Path("results/records")
SEAL = "record_sha256"
# What a figure file says of itself. Names hold no other letters, so it is found in any format.
STAMP = re.compile(
    rb"tokensphere input=([0-9a-f]{64}); figure=([\w.-]+); models=([\w.@/,-]*); prompts=([\w.,-]*);"
)
REDACTED = "[redacted]"


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


def input_id(deterministic: Mapping[str, Any]) -> str:
    """Return the sha256 of all that decides the outputs of a job, without the outputs."""
    decisive = {
        key: value for key, value in deterministic.items() if key not in ("outputs", "input_id")
    }
    return hashes.of_value(json.loads(hashes.to_json(decisive)))


def sealed(record: Mapping[str, Any]) -> str:
    """Return a record as it is written: with the sha256 of its own content in it."""
    plain = json.loads(hashes.to_json(record))
    return hashes.to_json(plain | {SEAL: hashes.of_value(plain)})


def unseal(text: str) -> dict[str, Any]:
    """Read a record and check that not one byte of it has changed.

    Raises
    ------
    ValueError
        If it is no record, its seal does not fit, or it is not written as `sealed` does.
    """
    record: dict[str, Any] = json.loads(text)
    if not isinstance(record, dict) or SEAL not in record:
        raise ValueError("it has no seal")
    if record.get("schema") != SCHEMA:
        raise ValueError(f"it has schema {record.get('schema')}, this version reads {SCHEMA}")
    if sealed({key: value for key, value in record.items() if key != SEAL}) != text:
        raise ValueError("its content is not what it was sealed with")
    return record


def run_in_short(run: Mapping[str, Any]) -> str:
    """Name a run of a figure as a stamp does; weights that stand in for others say so."""
    return f"{run['model']}/{run['weights']}" + " (stand-in)" * ("stand_in" in run)


def stamp(input_id: str, figure: str, models: Iterable[str], prompts: Iterable[str]) -> str:
    """Say in one line what made a figure, for the figure's own file; `read_stamp` reads it."""
    named = (",".join(dict.fromkeys(names)) for names in (models, prompts))
    return "tokensphere input={}; figure={}; models={}; prompts={};".format(
        input_id, figure, *named
    )


def read_stamp(path: str | Path) -> dict[str, Any]:
    """Find what a figure file (PNG, SVG, PDF) says of itself; empty if it says nothing.

    Returns
    -------
    dict
        `input_id`, `figure`; `models`, each model/weights; `prompts`.
    """
    found = STAMP.search(Path(path).read_bytes())
    if not found:
        return {}
    identity, figure, models, prompts = (group.decode("ascii") for group in found.groups())
    return {
        "input_id": identity,
        "figure": figure,
        "models": [name for name in models.split(",") if name],
        "prompts": [name for name in prompts.split(",") if name],
    }


def is_redacting() -> bool:
    """Say whether the configuration asks for records without hosts and folders."""
    return bool(os.environ.get("TOKENSPHERE_REDACT"))


def redacted(value: Any) -> Any:
    """Take out every path that leads out of the working directory, to the last name of it."""
    if isinstance(value, Mapping):
        return {key: redacted(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    if isinstance(value, str) and value.startswith(("/", "../", "~")):
        return REDACTED
    return value


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
