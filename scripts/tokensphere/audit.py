"""The audit: whether what the records say of every figure is still true.

Every file of the chain is hashed and compared with the records, and so are code, checkpoints,
installed versions and the configuration. What does not fit is a finding, and each finding names
the figures that depend on it.
"""

from __future__ import annotations

import hashlib
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tokensphere import chain, hashes, plan, prompts, sources
from tokensphere.chain import Chain, Job
from tokensphere.harness import closure, records
from tokensphere.harness.errors import UserError

HOME = Path(__file__).resolve().parents[2]
CACHE = Path("results/cache/audit.json")
BENCHMARKS = Path("results/benchmarks")
# Snakemake touches what a job made when it ends, together with its benchmark.
GRACE_NS = 2 * 10**9

STALE, TAMPERED, EDITED = "stale", "tampered", "edited"
MISSING, UNRECORDED = "missing", "unrecorded"
KINDS = {
    STALE: "what a figure was made from is another now; run the workflow again",
    TAMPERED: "a result is not what its job wrote, and its time stamp does not show it",
    EDITED: "a result was written again after its job had ended",
    MISSING: "a file that the records name is not there; snakemake makes it if it is named",
    UNRECORDED: "a file that no record says anything about",
}
DISKS = 4  # files that are hashed at once

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Finding:
    """Something that is not as the records say.

    Attributes
    ----------
    kind : str
        A key of `KINDS`.
    what : str
        The file, library or configuration key.
    says : str
        What is wrong with it.
    parts : list of str
        Of a store, where: array and layer.
    figures : list of str
        The figures that depend on it.
    """

    kind: str
    what: str
    says: str
    figures: list[str]
    parts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """What an audit found.

    Attributes
    ----------
    findings : list of Finding
    notes : list of str
        What is no finding and should be known: deleted by design, could not be compared.
    figures : list of str
        All figures that were looked at.
    records, files : int
    size : int
        Bytes of the files.
    seconds : float
    """

    findings: list[Finding]
    notes: list[str]
    figures: list[str]
    records: int
    files: int
    size: int
    seconds: float

    @property
    def broken(self) -> dict[str, list[Finding]]:
        """Figure -> the findings that it depends on; those that hold are not in it."""
        return {
            name: found
            for name in self.figures
            if (found := [one for one in self.findings if name in one.figures])
        }

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "holds": not self.findings, "broken": sorted(self.broken)}


def verify(
    found: Chain,
    workflow: Path,
    wanted: Sequence[str] = (),
    *,
    full: bool = False,
    start: Callable[[int], Progress] = lambda size: lambda done: None,
) -> Report:
    """Compare everything with the records.

    Parameters
    ----------
    found : Chain
        The records of the working directory.
    workflow : Path
        The workflow's folder: its code, its lock file, its catalogues.
    wanted : sequence of str
        Figures, or other files that jobs made; their chains alone are looked at. Empty, all.
    full : bool
        Whether to hash every file, also those whose size, times and inode are what they were
        when they were last hashed.
    start : callable (bytes) -> callable (bytes)
        Called with the size of all files; what it returns is told of each file's.

    Raises
    ------
    UserError
        If no record names a wanted figure.
    """
    began = time.monotonic()
    jobs, damaged = found.jobs, list(found.damaged)
    if wanted:
        targets = [found.find(one) for one in wanted]
        jobs = found.upstream(found.made_by[path] for path in targets if path in found.made_by)
        read = {*targets, *(path for job in jobs for path in job.inputs)}
        damaged = [one for one in damaged if one.outputs & read]
        # Of a job's files those that are read, and of the figures' own jobs all of the figure.
        shown = {chain.figure_of(path) for path in targets} - {""}
        made = {path for job in jobs for path in job.outputs}
        made = {path for path in made if path in read or chain.figure_of(path) in shown}
    else:
        made = {path for job in jobs for path in job.outputs}
    audit = _Audit(found, jobs, made, workflow, full)
    audit.hash_all(start)
    findings = [
        *audit.of_records(damaged),
        *audit.of_results(),
        *audit.of_inputs(),
        *audit.of_code(),
        *audit.of_external(),
        *audit.of_versions(),
        *audit.of_configuration(),
        *audit.of_unrecorded(),
    ]
    if wanted:
        if damaged:
            audit.notes.append("what lies behind a damaged record is not looked at")
        figures = sorted({name for path in targets if (name := chain.figure_of(path))})
        findings = [
            replace(one, figures=[name for name in one.figures if name in figures])
            for one in findings
        ]
    else:
        lost = [path for one in damaged for path in one.outputs]
        named = {name for one in findings for name in one.figures}
        figures = sorted(
            {name for path in (*made, *lost) if (name := chain.figure_of(path))} | named
        )
    return Report(
        findings,
        audit.notes,
        figures,
        len(jobs) + len(damaged),
        len(audit.files),
        audit.size,
        round(time.monotonic() - began, 3),
    )


class _Audit:
    """One comparison of jobs, and of some of what they made, with what is on the disk."""

    def __init__(
        self, found: Chain, jobs: Sequence[Job], made: set[str], workflow: Path, full: bool
    ) -> None:
        self.chain, self.jobs, self.made = found, jobs, made
        self.workflow, self.full = workflow, full
        self.cache = hashes.Cache(CACHE)
        self.notes: list[str] = []
        self.files: dict[Path, str] = {}
        self.size = 0
        self.folders = {job.place: folders(job) for job in jobs if job.external}

    # --- hashing

    def hash_all(self, start: Callable[[int], Progress]) -> None:
        """Hash every file that the records name and that is there."""
        named = [Path(path) for path in sorted(self.made)]
        named += [self.place(path) for job in self.jobs for path in job.inputs]
        named += [self.workflow / path for job in self.jobs for path in job.code]
        named += [
            folder / file
            for job in self.jobs
            for name, folder in self.folders.get(job.place, {}).items()
            if folder is not None
            for file in job.external[name]
        ]
        sizes = {path: path.stat().st_size for path in dict.fromkeys(named) if path.is_file()}
        self.size = sum(sizes.values())
        done = start(self.size)
        of_file = hashes.of_file if self.full else self.cache.of_file

        def sha(path: Path) -> str:
            try:
                return of_file(path)
            except OSError:  # gone, or not to be read: as if it were not there
                return ""

        with ThreadPoolExecutor(DISKS) as pool:
            for path, value in zip(sizes, pool.map(sha, sizes), strict=True):
                if value:
                    self.files[path] = value
                done(sizes[path])
        if not self.full:
            self.cache.save()

    def place(self, path: str) -> Path:
        """Return where an input is: the workflow's own files are named from its folder."""
        own = Path(path).parts[:1] in (("workflow",), ("scripts",))
        return self.workflow / path if own else Path(path)

    # --- records and results

    def of_records(self, damaged: Iterable[chain.Damaged]) -> Iterator[Finding]:
        """Yield what is wrong with records themselves."""
        for one in damaged:
            yield Finding(
                _who(Path(one.place), _ended(one.place)),
                one.place,
                f"the record is not what it was written as ({one.why})",
                self.chain.figures([], one.outputs),
            )
        if self.chain.superseded:
            self.notes.append(
                f"{len(self.chain.superseded)} records are of jobs whose files others have made "
                f"anew: {', '.join(self.chain.superseded[:3])}"
            )

    def of_results(self) -> Iterator[Finding]:
        """Yield results that are not what their jobs wrote."""
        gone = []
        for job in self.jobs:
            for path, sha in job.outputs.items():
                if path not in self.made:
                    continue
                actual = self.files.get(Path(path))
                archive = job.run.get("archives", {}).get(path)
                if actual is None and path in job.run.get("temporary", ()):
                    gone.append(path)
                elif actual is None:
                    yield Finding(MISSING, path, "it is not there", self.chain.figures([], [path]))
                elif actual != (archive["sha256"] if archive else sha):
                    says, parts = _compared(Path(path), archive["members"] if archive else None)
                    yield Finding(
                        _who(Path(path), _ended(job.place)),
                        path,
                        says,
                        self.chain.figures([], [path]),
                        parts,
                    )
        if gone:
            self.notes.append(
                f"gone by design (keep_attention: false): {len(gone)} files, "
                f"such as {gone[0]}; their records stay"
            )

    def of_inputs(self) -> Iterator[Finding]:
        """Yield files that jobs read and that are others now, or were made anew since."""
        readers: dict[str, dict[str, list[Job]]] = {}
        for job in self.jobs:
            for path, sha in job.inputs.items():
                readers.setdefault(path, {}).setdefault(sha, []).append(job)
        hidden = 0
        for path, by_hash in readers.items():
            maker = self.chain.made_by.get(path)
            if path.startswith(records.REDACTED):
                hidden += 1
                continue
            if maker is not None:
                now = maker.outputs[path]
                says = "it was made anew since it was read"
            elif path.startswith(f"{chain.RESULTS}/"):
                continue  # a finding of its own: no sound record says who made it
            else:
                now = self.files.get(self.place(path), "")
                says = "it is another file now than the one that was read"
            jobs = [job for sha, read in by_hash.items() if sha != now for job in read]
            if jobs and now:
                yield Finding(STALE, path, says, self.chain.figures(jobs))
            elif jobs:
                yield Finding(MISSING, path, "it is not there", self.chain.figures(jobs))
        if hidden:
            self.notes.append(f"{hidden} inputs are not compared: their places are redacted")

    def of_unrecorded(self) -> Iterator[Finding]:
        """Yield files in results/ that no record says anything about."""
        of_all = self.jobs is self.chain.jobs
        read = {path for job in self.jobs for path in job.inputs}
        for path in sorted(self.chain.unrecorded):
            figures = self.chain.figures([], [path])
            if path in read or (of_all and chain.figure_of(path)):
                yield Finding(UNRECORDED, path, "no record says what made it", figures)
            elif of_all:
                self.notes.append(f"{path}: no record says what made it, and no job reads it")

    # --- what the workflow did not make

    def of_code(self) -> Iterator[Finding]:
        """Yield modules that are not those which ran."""
        ran: dict[str, list[Job]] = {}
        for job in self.jobs:
            for path, sha in job.code.items():
                jobs = ran.setdefault(path, [])
                if self.files.get(self.workflow / path) != sha:
                    jobs.append(job)
        for path, jobs in ran.items():
            if jobs:
                there = self.workflow / path in self.files
                yield Finding(
                    STALE if there else MISSING,
                    path,
                    f"{count(jobs)} ran with another text of it"
                    if there
                    else f"it is not there; {count(jobs)} ran with it",
                    self.chain.figures(jobs),
                )

    def of_external(self) -> Iterator[Finding]:
        """Yield files of checkpoints, and lines of modules, that are others now."""
        used: dict[tuple[str, str, str], list[Job]] = {}
        lost: dict[str, list[Job]] = {}
        for job in self.jobs:
            for name, files in job.external.items():
                place = job.run.get("places", {}).get(name, {})
                folder = self.folders.get(job.place, {}).get(name)
                if name == "checkpoint" and folder is None:
                    lost.setdefault(chain.described(place), []).append(job)
                    continue
                for file, sha in files.items():
                    where = str(folder / file) if folder else file
                    used.setdefault((name, where, sha), []).append(job)
        for (name, where, sha), jobs in used.items():
            if name == "checkpoint":
                actual = self.files.get(Path(where), "")
                says = "the checkpoint file is another now" if actual else "it is not there"
                good, kind = actual == sha, STALE if actual else MISSING
            else:
                good, kind, says = _same_lines(where, sha)
            if not good:
                yield Finding(kind, where, f"{says}; {count(jobs)} read it",
                              self.chain.figures(jobs))  # fmt: skip
        for where, jobs in lost.items():
            if where.startswith(records.REDACTED):
                self.notes.append(
                    f"the checkpoint of {count(jobs)} is not compared: its place is redacted"
                )
            else:
                says = f"the checkpoint is not there; {count(jobs)} read it"
                yield Finding(MISSING, where, says, self.chain.figures(jobs))

    def of_versions(self) -> Iterator[Finding]:
        """Yield libraries that are installed, or locked, in another version than ran."""
        ran: dict[tuple[str, str], list[Job]] = {}
        for job in self.jobs:
            for name, version in job.params.get("versions", {}).items():
                ran.setdefault((name, version), []).append(job)
        here = records.installed({name: "" for name, _ in ran})
        # By its full name: what a lock file pins is remembered by path.
        lock = (self.workflow / "requirements.lock").resolve()
        locked = closure.locked_versions(lock) if lock.is_file() else {}
        absent = sorted({name for name, _ in ran} - here.keys())
        for (name, version), jobs in ran.items():
            # A local build label (2.13.0+cpu) is the same release.
            now = {
                "installed": here.get(name, version).partition("+")[0],
                "locked": locked.get(name, version),
            }
            others = [f"{other} is {how}" for how, other in now.items() if other != version]
            if others:
                yield Finding(
                    STALE,
                    f"library {name}",
                    f"{count(jobs)} ran with {version}, {' and '.join(others)}",
                    self.chain.figures(jobs),
                )
        if absent:
            self.notes.append(f"not installed here, so not compared: {', '.join(absent)}")

    def of_configuration(self) -> Iterator[Finding]:
        """Yield what the configuration asks for now and a job did not do."""
        groups: dict[tuple[str, ...], list[Job]] = {}
        for job in self.jobs:
            groups.setdefault(tuple(job.run.get("configuration", ())), []).append(job)
        changed: dict[tuple[str, str], list[Job]] = {}
        for files, jobs in groups.items():
            where = ", ".join(files)
            if not files:
                self.notes.append(f"{count(jobs)} ran with --config: their params are not compared")
                continue
            try:
                asked = plan.Plan(files, self.workflow, self.cache)
            except (UserError, OSError, yaml.YAMLError) as error:
                text = error.what if isinstance(error, UserError) else str(error)
                self.notes.append(f"{where} cannot be read, so params are not compared: {text}")
                continue
            unasked = []
            for job in jobs:
                params = asked.params(job)
                if params is None:
                    unasked.append(job)
                    continue
                did = {key: value for key, value in job.params.items() if key in params}
                for name, before, now in chain.differences(did, params):
                    if before == records.REDACTED:
                        continue
                    key = plan.key_of(name, job)
                    says = f"{_short(before)} in the record, {_short(now)} in {where}"
                    changed.setdefault((key, says), []).append(job)
            if unasked:
                self.notes.append(
                    f"{count(unasked)} are no longer asked for by {where}, such as "
                    f"{unasked[0].name}; their files are compared as all others"
                )
        for (key, says), jobs in changed.items():
            yield Finding(STALE, key, says, self.chain.figures(jobs))


# --- time stamps


def _ended(place: str) -> int:
    """Return when a job had ended, in ns: its record and its benchmark were written by then."""
    inside = Path(place).relative_to(records.RECORDS).with_suffix(".tsv")
    times = [path.stat().st_mtime_ns for path in (Path(place), BENCHMARKS / inside)
             if path.is_file()]  # fmt: skip
    return max(times)


def _who(path: Path, ended: int) -> str:
    """Say whether a changed result shows by its time stamp that it was changed."""
    if str(path).startswith(str(records.RECORDS)):
        benchmark = BENCHMARKS / path.relative_to(records.RECORDS).with_suffix(".tsv")
        ended = benchmark.stat().st_mtime_ns if benchmark.is_file() else ended
    return EDITED if path.stat().st_mtime_ns > ended + GRACE_NS else TAMPERED


# --- inside an archive


def _compared(path: Path, members: Mapping[str, str] | None) -> tuple[str, list[str]]:
    """Say what of a changed result is changed: of a store, in which array and layer."""
    if members is None:
        return "its content is not what its job wrote", []
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            changed = [name for name in names if not _is_same(archive, name, members.get(name))]
    except Exception as error:  # a damaged directory raises whatever its bytes lead to
        return f"its content cannot be read: the archive's directory is damaged ({error})", []
    missing = [name for name in members if name not in names]
    if len(names) > len(set(names)):
        return "a member is in the archive twice: its content is affected", []
    parts = [member_words(name) for name in changed]
    parts += [f"{member_words(name)} (not there)" for name in missing]
    if parts:
        return "its content is affected", parts
    return "bytes between its members changed (directory, padding): its content is not affected", []


def _is_same(archive: zipfile.ZipFile, name: str, sha: str | None) -> bool:
    try:
        return hashlib.sha256(archive.read(name)).hexdigest() == sha
    except Exception:  # whatever a damaged member leads to
        return False


def member_words(name: str) -> str:
    """Say what a member of a store is: `residual/c/7/0/0` is residual layer 7."""
    if name == "zarr.json":
        return "attributes"
    array, _, rest = name.partition("/")
    if rest == "zarr.json":
        return f"metadata of {array}"
    chunk = re.fullmatch(r"c/(\d+)(/0)*", rest)
    if chunk and array == "residual":
        return f"residual layer {chunk[1]}"
    if chunk and array == "attention":
        return f"attention block {int(chunk[1]) + 1}"
    return array.replace("_", " ") if chunk else name


# --- what the workflow did not make


def folders(job: Job) -> dict[str, Path | None]:
    """Find where the checkpoint of a job lies: where it lay, or where its source is here."""
    place = job.run.get("places", {}).get("checkpoint")
    if place is None:
        return {}
    folder = Path(place["folder"])
    if folder.is_dir():
        return {"checkpoint": folder}
    try:
        located = sources.locate(place["source"], job.name)
    except (UserError, KeyError):
        return {"checkpoint": None}
    return {"checkpoint": located if located.is_dir() else located.parent}


def _same_lines(name: str, sha: str) -> tuple[bool, str, str]:
    """Compare lines of an installed module; returns whether they are the same, a kind, words."""
    module, _, lines = name.rpartition(":")
    try:
        prompts.find_module(module, name)
    except UserError as error:
        return False, MISSING, error.what
    try:
        prompts.read_module(module, lines, sha, name)
    except UserError:
        return False, STALE, "these lines of the installed module are another text now"
    return True, "", ""


# --- words


def _short(value: Any, most: int = 60) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def count(jobs: Sequence[Job]) -> str:
    """Say how many jobs there are."""
    return "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"


# --- where the workflow is


def workflow_folder(given: str = "") -> Path:
    """Return the workflow's folder: the given one, the working directory, or this library's own.

    Raises
    ------
    UserError
        If it holds no workflow.
    """
    for folder in (Path(given),) if given else (Path(), HOME):
        if (folder / "workflow/figures.yaml").is_file():
            return folder
    raise UserError(
        given or str(Path.cwd()),
        "it is not the folder of this workflow (it holds no workflow/figures.yaml)",
        "give the folder of the Snakefile: --workflow FOLDER",
    )


# --- the page


def page(template: Path, report: Report) -> str:
    """Fill the page of an audit from its template."""
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    text = template.read_text(encoding="utf-8")
    return environment.from_string(text).render(report=report, kinds=KINDS)
