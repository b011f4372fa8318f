"""The context every script runs in: `with job(snakemake) as run:`.

It must be a script's first import: it ties the script to its driver before anything heavy is
loaded. Inside the context the script writes to `run.output.NAME`, a unique part beside the
real output. Only when the body has ended without an error are the parts hashed, the record
written, and all moved into place; otherwise nothing of them remains.
"""

from __future__ import annotations

from tokensphere.harness import lifeline  # isort: skip  (first: it arms the parent-death signal)

import contextlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from tokensphere import hashes
from tokensphere.harness import devices, log, records
from tokensphere.harness.errors import UserError

Item = TypeVar("Item")

HOST = socket.gethostname()


def part_of(output: Path) -> Path:
    """Return a name beside an output that no other process uses: it carries host and pid."""
    return output.with_name(f".{output.name}.{HOST}.{os.getpid()}.{secrets.token_hex(4)}.part")


def remove_dead_parts(folder: Path) -> None:
    """Remove parts in a folder whose process, on this host, is gone."""
    for part in folder.glob(f".*.{HOST}.*.part"):
        pid = part.name.split(".")[-3]
        if pid.isdigit() and not _is_running(int(pid)):
            log.logger.info("removed %s, left by a job that was killed", part)
            part.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stamp(path: str) -> tuple[int, int, int]:
    """Return what changes when a file does, even if its modification time is put back."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class Job:
    """One job of the workflow, as its script sees it.

    Attributes
    ----------
    input, params, wildcards
        As Snakemake gives them.
    output : SimpleNamespace
        For each named output the part to write (a `Path`).
    seeds : dict
        Seeds of random draws, for the deterministic part of the record.
    external : dict
        Files that no job made and that are no inputs (a checkpoint's): name -> file -> sha256.
    places : dict
        Where these lay, by name, for the run part of the record.
    facts : dict
        What is true of this run only (the device), for the run part of the record.
    """

    def __init__(self, snakemake: Any) -> None:
        self._snakemake = snakemake
        self._root = Path(snakemake.scriptdir).parent
        self._started = time.time()
        self.input = snakemake.input
        self.params = snakemake.params
        self.wildcards = snakemake.wildcards
        self.seeds: dict[str, int] = {}
        self.external: dict[str, dict[str, str]] = {}
        self.places: dict[str, Any] = {}
        self._told = ""
        self.facts: dict[str, Any] = {}
        self._outputs = {name: Path(path) for name, path in snakemake.output.items()}
        self._parts = {name: part_of(path) for name, path in self._outputs.items()}
        self.output = SimpleNamespace(**self._parts)
        self._place = records.place(snakemake.rule, dict(self.wildcards.items()))
        self._record_part = part_of(self._place)

    @property
    def name(self) -> str:
        """The rule and its wildcards, as logs and errors call this job."""
        return "/".join([self._snakemake.rule, *self.wildcards])

    @property
    def input_id(self) -> str:
        """The sha256 of all that decides what this job makes; nothing may be added after it."""
        self._told = records.input_id(self._decisive())
        return self._told

    @property
    def stamp(self) -> str:
        """What a figure's file says of itself: its input id, and in short what it shows."""
        runs = self.params.get("figure", {}).get("runs", [])
        return records.stamp(
            self.input_id,
            self._snakemake.rule,
            models=map(records.run_in_short, runs),
            prompts=(one["prompt"] for one in runs),
        )

    def steps(self, unit: str, total: int) -> log.Progress:
        """Start counting steps: `step()` after each moves the bar and writes a log line."""
        return log.Progress(unit, total, self.name)

    def progress(self, items: Iterable[Item], *, unit: str, total: int) -> Iterator[Item]:
        """Pass `items` through, counting each as a step."""
        steps = self.steps(unit, total)
        for item in items:
            yield item
            steps.step()

    def _begin(self) -> None:
        log.logger.info("%s starts, OMP_NUM_THREADS=%s", self.name, os.getenv("OMP_NUM_THREADS"))
        self._refuse_another_checkout()
        self._refuse_other_versions()
        # These start programs, each of which counts, for a moment, as large as this process: SLURM
        # kills for that. So they are asked while it is small, before the body imports anything.
        self._around = {"git": records.git_state(self._root), **records.host()}
        for folder in {path.parent for path in self._outputs.values()}:
            folder.mkdir(parents=True, exist_ok=True)
            remove_dead_parts(folder)
        self._stamps = {path: _stamp(path) for path in self.input}
        # Inputs are hashed before they are read: the record names what the body was given.
        self._inputs = {
            name: [records.fingerprint(path) for path in self._files(name)]
            for name, _ in self.input.items()
            if name != "code"
        }
        self._code = {
            str(Path(path).resolve().relative_to(self._root.resolve())): hashes.of_file(path)
            for path in self._files("code")
        }

    def _take_device(self, held: ExitStack) -> None:
        """Take the GPUs that the rule asks for, if there are several; `held` gives them back."""
        count = self._snakemake.resources.get("gpu", 0)
        if count and (found := devices.choice()):
            held.enter_context(devices.some_of(found, count))

    def _files(self, name: str) -> list[str]:
        files = self.input[name]
        return [files] if isinstance(files, str) else list(files)

    def _refuse_another_checkout(self) -> None:
        used, own = Path(hashes.__file__).resolve().parents[1], self._root.resolve() / "scripts"
        if used != own:
            raise UserError(
                self.name,
                f"the library was imported from {used}, but this workflow's is in {own}",
                "uninstall the other one (pip uninstall tokensphere) or use another environment",
            )

    def _refuse_other_versions(self) -> None:
        wanted: dict[str, str] = self.params.get("versions", {})
        found = records.installed(wanted)
        self._installed = found
        for name, version in wanted.items():
            # A local build label (2.13.0+cpu) is the same release.
            if found.get(name, "none").partition("+")[0] != version:
                raise UserError(
                    self.name,
                    f"{name} {version} is locked, {found.get(name, 'none')} is installed",
                    "install the locked versions (make install), or lock yours (make lock)",
                )

    def _refuse_changed_inputs(self) -> None:
        touched = {path for path, stamp in self._stamps.items() if _stamp(path) != stamp}
        for fingerprint in (one for files in self._inputs.values() for one in files):
            path = fingerprint["path"]
            if path in touched and records.fingerprint(path) != fingerprint:
                raise UserError(path, "it changed while the job read it", "run the workflow again")

    def _finish(self) -> None:
        self._refuse_changed_inputs()
        for name, part in self._parts.items():
            if not part.is_file() or part.stat().st_size == 0:
                raise RuntimeError(f"{self.name} did not write its output {name}")
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
        self._place.parent.mkdir(parents=True, exist_ok=True)
        remove_dead_parts(self._place.parent)
        self._record_part.write_text(records.sealed(self._record()), encoding="utf-8")
        if not lifeline.is_attached():
            raise RuntimeError("the Snakemake process that started this job is gone")
        # The record goes first: an output without a record would be one that nobody can audit.
        os.replace(self._record_part, self._place)
        for name, output in self._outputs.items():
            os.replace(self._parts[name], output)
        log.logger.info("%s done in %.1f s", self.name, time.time() - self._started)

    def _discard(self) -> None:
        for part in (*self._parts.values(), self._record_part):
            part.unlink(missing_ok=True)

    def _named(self, path: str) -> str:
        """Name a file of the workflow from the workflow's own folder, wherever it is run from."""
        with contextlib.suppress(ValueError):
            inside = Path(path).resolve().relative_to(self._root.resolve())
            if inside.parts[0] in ("workflow", "scripts"):
                return inside.as_posix()
        return path

    def _decisive(self) -> dict[str, Any]:
        """Collect all that decides the outputs; what is empty is left out."""
        inputs = {
            name: [one | {"path": self._named(one["path"])} for one in files]
            for name, files in self._inputs.items()
        }
        # These say where things lie, or how long; they decide nothing.
        params = {
            name: value for name, value in self.params.items() if name not in ("where", "temporary")
        }
        decisive = {
            "rule": self._snakemake.rule,
            "wildcards": dict(self.wildcards.items()),
            "inputs": inputs,
            "code": self._code,
            "external": {name: files for name, files in self.external.items() if files},
            "params": params,
            "seeds": self.seeds,
        }
        if records.is_redacting():
            decisive = records.redacted(decisive)
        return {key: value for key, value in decisive.items() if value != {}}

    def _record(self) -> dict[str, Any]:
        outputs = {
            name: records.fingerprint(self._parts[name], name=str(path))
            for name, path in self._outputs.items()
        }
        decisive = self._decisive()
        identity = records.input_id(decisive)
        if self._told not in ("", identity):
            raise RuntimeError(f"{self.name} learnt of a seed after it told its input id")
        deterministic = {**decisive, "input_id": identity, "outputs": outputs}
        configuration = os.environ.get("TOKENSPHERE_CONFIG", "")
        run = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started)),
            "seconds": round(time.time() - self._started, 3),
            "cpu_seconds": records.cpu_seconds(),
            "peak_memory_mb": records.peak_memory_mb(),
            "threads": self._snakemake.threads,
            "installed": self._installed,
            "configuration": [name for name in configuration.split(os.pathsep) if name],
            "places": {name: self.places[name] for name in self.external if name in self.places},
            # The bytes of an archive, and of each member: so that a change can be found in it.
            "archives": {
                str(path): {
                    "sha256": hashes.of_file(self._parts[name]),
                    "members": dict(hashes.members(self._parts[name])),
                }
                for name, path in self._outputs.items()
                if "members" in outputs[name]
            },
            "temporary": sorted(map(str, self._outputs.values()))
            if self.params.get("temporary")
            else [],
            **self._around,
            **self.facts,
        }
        if records.is_redacting():
            run = records.redacted({key: value for key, value in run.items() if key != "host"})
        return {
            "schema": records.SCHEMA,
            "deterministic": {key: value for key, value in deterministic.items() if value != {}},
            "run": {key: value for key, value in run.items() if value not in ({}, [])},
        }


@contextmanager
def job(snakemake: Any) -> Iterator[Job]:
    """Run a script's body as one job: log, checks, parts, record, outputs moved into place.

    Parameters
    ----------
    snakemake : object
        The object that Snakemake injects into a script.

    Yields
    ------
    Job

    Raises
    ------
    SystemExit
        With status 1 after any failure, which is then in the log and on the terminal.
    """
    log.start(snakemake.log[0])
    run: Job | None = None
    try:
        run = Job(snakemake)
        run._begin()
        with ExitStack() as held:
            run._take_device(held)
            yield run
        run._finish()
    except BaseException as error:
        if run is not None:
            run._discard()
        log.report(error)
        sys.exit(1)
