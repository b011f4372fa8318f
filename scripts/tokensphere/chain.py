"""The chain from figures to what they were made of, as the records of a results folder tell it.

A record names the files that a job read and made by their hashes. Put together, the records are
a graph: files, and the jobs that turned some into others. Paths are relative to the working
directory, the one that holds `results/`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokensphere.harness import records
from tokensphere.harness.errors import UserError

RESULTS = Path("results")
SHOWN = 4  # files of one rule in a tree
FIGURES = "results/figures/"
# What lies in results/ and is no result: about the runs, or made again when it is missing.
ABOUT = ("records", "logs", "benchmarks", "cache", "README.md", "audit.html")


@dataclass(frozen=True)
class Job:
    """One job, as its record has it.

    Attributes
    ----------
    place : str
        Where the record lies.
    deterministic, run : dict
        The two parts of the record.
    """

    place: str
    deterministic: dict[str, Any] = field(repr=False)
    run: dict[str, Any] = field(repr=False)

    @property
    def rule(self) -> str:
        """The rule of the job."""
        return str(self.deterministic["rule"])

    @property
    def name(self) -> str:
        """The rule and its wildcards, as the record's path has them in order."""
        return str(Path(self.place).relative_to(records.RECORDS).with_suffix(""))

    @property
    def wildcards(self) -> dict[str, str]:
        """What the rule was asked for."""
        return dict(self.deterministic.get("wildcards", {}))

    @property
    def params(self) -> dict[str, Any]:
        """What the job depends on beside files."""
        return dict(self.deterministic.get("params", {}))

    @property
    def code(self) -> dict[str, str]:
        """Script and modules -> sha256, relative to the workflow's folder."""
        return dict(self.deterministic["code"])

    @property
    def seeds(self) -> dict[str, int]:
        """Seeds of random draws."""
        return dict(self.deterministic.get("seeds", {}))

    @property
    def external(self) -> dict[str, dict[str, str]]:
        """Files that no job made and that are no inputs, as the record has them."""
        return dict(self.deterministic.get("external", {}))

    @cached_property
    def outputs(self) -> dict[str, str]:
        """The files that it made -> their hashes, of stores over their members."""
        made = self.deterministic.get("outputs", {}).values()
        return {one["path"]: _hash(one) for one in made}

    @cached_property
    def inputs(self) -> dict[str, str]:
        """The files that it was given -> the hashes that they had."""
        files = self.deterministic.get("inputs", {}).values()
        return {one["path"]: _hash(one) for given in files for one in given}


def _hash(fingerprint: Mapping[str, str]) -> str:
    return fingerprint.get("sha256") or fingerprint["members"]


@dataclass(frozen=True)
class Damaged:
    """A record that is not what it was written as.

    Attributes
    ----------
    place : str
    why : str
    outputs : set of str
        The files that its job made, as far as what is left of it and of all other records tells.
    """

    place: str
    why: str
    outputs: frozenset[str]


class Chain:
    """All records of a working directory, as one graph.

    Attributes
    ----------
    jobs : list of Job
        Jobs whose record is sound, the newest where two say that they made one file.
    damaged : list of Damaged
    superseded : list of str
        Records of jobs all of whose files another job has made anew.
    unrecorded : set of str
        Files in `results/`, or read from there, that no record says anything about.
    """

    def __init__(self, jobs: Iterable[Job], damaged: Iterable[tuple[str, str, str]] = ()) -> None:
        self.made_by: dict[str, Job] = {}
        given = sorted(jobs, key=lambda job: (job.run["started"], job.place))
        for job in given:
            self.made_by |= dict.fromkeys(job.outputs, job)
        current = {id(job) for job in self.made_by.values()}
        # What made no file (a clean cache, an audit) has no part in any figure.
        self.jobs = [job for job in given if id(job) in current]
        self.superseded = [job.place for job in given if id(job) not in current and job.outputs]
        self.readers: dict[str, list[Job]] = {}
        for job in self.jobs:
            for path in job.inputs:
                self.readers.setdefault(path, []).append(job)
        read = {path for path in self.readers if path.startswith(f"{RESULTS}/")}
        orphans = (read | _results()) - self.made_by.keys()
        # A damaged record cannot be trusted, but a file of no other record may well be its own.
        claims = {place: orphans & _named_in(text) for place, _, text in damaged}
        unclaimed = orphans.difference(*claims.values()) if claims else orphans
        self.damaged = [
            Damaged(place, why, frozenset(claims[place] | unclaimed)) for place, why, _ in damaged
        ]
        self.unrecorded = set() if self.damaged else orphans

    def downstream(self, jobs: Iterable[Job]) -> list[Job]:
        """List jobs and all that read what they made, directly or through others."""
        return _reached(
            jobs, lambda job: [one for path in job.outputs for one in self.readers.get(path, [])]
        )

    def upstream(self, jobs: Iterable[Job]) -> list[Job]:
        """List jobs and all whose outputs they read, directly or through others."""
        return _reached(
            jobs, lambda job: [self.made_by[path] for path in job.inputs if path in self.made_by]
        )

    def figures(self, jobs: Iterable[Job], paths: Iterable[str] = ()) -> list[str]:
        """Name the figures that depend on jobs, or on what is in files; a file may be a figure."""
        paths = list(paths)
        readers = [job for path in paths for job in self.readers.get(path, [])]
        made = [path for job in self.downstream([*jobs, *readers]) for path in job.outputs]
        return sorted({name for path in (*made, *paths) if (name := figure_of(path))})

    def find(self, wanted: str) -> str:
        """Find a figure by its name, or a file that a job made; return its path.

        Raises
        ------
        UserError
            If no record names it.
        """
        path = Path(wanted)
        if path.is_absolute() and path.is_relative_to(Path.cwd()):
            path = path.relative_to(Path.cwd())
        made = self.made_by.keys() | {path for one in self.damaged for path in one.outputs}
        for candidate in (
            str(path), f"{FIGURES}{path}.png", f"{RESULTS}/{path}.png", f"{RESULTS}/{path}.html",
        ):  # fmt: skip
            if candidate in made:
                return candidate
        names = sorted({name for one in made if (name := figure_of(one))})
        raise UserError(
            wanted,
            "no record says that it was made here",
            f"figures here: {', '.join(names) or 'none'}",
        )


def _reached(jobs: Iterable[Job], beside: Callable[[Job], list[Job]]) -> list[Job]:
    """List jobs and all that are beside one of them, or beside one that is, and so on."""
    found: dict[str, Job] = {}
    waiting = list(jobs)
    while waiting:
        job = waiting.pop()
        if job.place not in found:
            found[job.place] = job
            waiting += beside(job)
    return list(found.values())


def figure_of(path: str) -> str:
    """Name the figure that a file belongs to, or is; empty where it belongs to none.

    All files of one figure (picture, numbers, caption) go by the figure's name.
    """
    if path.startswith(FIGURES):
        return path.removeprefix(FIGURES).partition(".")[0]
    if path.startswith(f"{RESULTS}/") and Path(path).suffix in (".png", ".html"):
        return str(Path(path).relative_to(RESULTS).with_suffix(""))
    return ""


def read() -> Chain:
    """Read all records of the working directory.

    Raises
    ------
    UserError
        If there are none, or an older version wrote them, which sealed none.
    """
    jobs, damaged, old = [], [], []
    for path in sorted(records.RECORDS.rglob("*.json")):
        if path.name.startswith("."):
            continue
        data = path.read_bytes()
        if data.startswith(b"{") and records.SEAL.encode() not in data and _schema(data) == 1:
            old.append(path)
            continue
        try:
            record = records.unseal(data.decode("utf-8"))
            jobs.append(Job(str(path), record["deterministic"], record["run"]))
        except (ValueError, KeyError, TypeError) as error:
            damaged.append((str(path), str(error), data.decode("utf-8", "replace")))
    if old:
        raise UserError(
            str(records.RECORDS),
            f"{len(old)} records are of an older version, such as {old[0]}",
            "make the results anew (snakemake --forceall), or delete records that are not needed",
        )
    if not jobs and not damaged:
        raise UserError(
            str(Path.cwd()),
            f"there are no records in {records.RECORDS}",
            "start in the working directory of a run, the one that holds results/",
        )
    return Chain(jobs, damaged)


def _schema(data: bytes) -> Any:
    try:
        return json.loads(data)["schema"]
    except (ValueError, KeyError, TypeError):
        return None


def _results() -> set[str]:
    """List the files in `results/` that jobs made, or should have."""
    found = set()
    for top in RESULTS.iterdir() if RESULTS.is_dir() else ():
        if top.name not in ABOUT and not top.name.startswith("."):
            files = top.rglob("*") if top.is_dir() else [top]
            found |= {str(one) for one in files if one.is_file() and one.name[0] != "."}
    return found


def _named_in(text: str) -> set[str]:
    """Return the outputs that a damaged record names, as far as it can be read."""
    try:
        outputs = json.loads(text)["deterministic"]["outputs"]
        return {str(one["path"]) for one in outputs.values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        # No JSON any more: what was an output stands in it between quotation marks.
        return {part for part in text.split('"') if part.startswith(f"{RESULTS}/")}


# --- the chain as a tree


def tree(chain: Chain, job: Job, path: str) -> Iterator[tuple[int, str]]:
    """Yield (depth, line) of the chain of a figure, down to what no job made.

    Jobs of one rule stand together; what was shown once is not shown again.
    """
    yield from _below(chain, {path: job}, 0, set())


def _below(
    chain: Chain, read: Mapping[str, Job], depth: int, shown: set[str]
) -> Iterator[tuple[int, str]]:
    """Yield files that jobs of one rule made, and below them what these were made from."""
    yield from ((depth, _file(path, job.outputs[path])) for path, job in _first(read.items()))
    if len(read) > SHOWN:
        yield depth, f"and {len(read) - SHOWN} more"
    jobs = list({job.place: job for job in read.values()}.values())
    shown |= {job.place for job in jobs}
    yield depth + 1, f"made by {jobs[0].rule}"
    for line in _own(jobs):
        yield depth + 2, line
    before: dict[str, dict[str, Job]] = {}
    above: dict[str, int] = {}
    for path, sha in {path: sha for job in jobs for path, sha in job.inputs.items()}.items():
        maker = chain.made_by.get(path)
        if maker is None:
            yield depth + 2, _file(path, sha)
        elif maker.place in shown:
            above[maker.rule] = above.get(maker.rule, 0) + 1
        else:
            before.setdefault(maker.rule, {})[path] = maker
    for rule, makers in before.items():
        new = {path: maker for path, maker in makers.items() if maker.place not in shown}
        above |= (
            {rule: above.get(rule, 0) + len(makers) - len(new)} if len(new) < len(makers) else {}
        )
        if new:
            yield from _below(chain, new, depth + 2, shown)
    for rule, count in above.items():
        yield depth + 2, f"{count} {'file' if count == 1 else 'files'} of {rule}, shown above"


def _first(items: Iterable[Any]) -> list[Any]:
    return list(itertools.islice(items, SHOWN))


def _file(path: str, sha: str) -> str:
    return f"{path}  {sha[:12]}"


def _own(jobs: list[Job]) -> Iterator[str]:
    """Yield what jobs of one rule depend on beside what other jobs made."""
    first = jobs[0]
    script = next(path for path in first.code if "tokensphere" not in Path(path).parts)
    code = f"code {script}  {first.code[script][:12]}"
    yield code + (f" and {len(first.code) - 1} modules" if len(first.code) > 1 else "")
    if versions := first.params.get("versions"):
        yield "with " + ", ".join(f"{name} {version}" for name, version in versions.items())
    constants = first.params.get("constants") or first.params.get("figure", {}).get("constants")
    if constants:
        yield "constants " + ", ".join(f"{name} {value}" for name, value in constants.items())
    seeds = {f"{name} {seed}" for job in jobs for name, seed in job.seeds.items()}
    if seeds:
        yield "seeds of " + ", ".join(sorted(seeds))
    seen: set[str] = set()
    for job in jobs:
        for name, files in job.external.items():
            place = job.run.get("places", {}).get(name, {})
            title = f"{name} {described(place)}".rstrip()
            if title not in seen:
                seen.add(title)
                yield title
                yield from (f"  {file}  {sha[:12]}" for file, sha in files.items())


def described(place: Mapping[str, Any]) -> str:
    """Say in words where external files are, as a record names their place."""
    source = place.get("source", {})
    if "hub" in source:
        return f"{source['hub']} at {source['revision'][:12]}"
    if "package" in source:
        return f"of the Python package {source['package']}"
    return str(place.get("folder") or place.get("file") or "")


# --- differences


def differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted name, value before, value now) of what differs between two JSON values.

    What is absent is None.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            inner = f"{name}.{key}" if name else str(key)
            yield from differences(before.get(key), now.get(key), inner)
    elif before != now:
        yield name, before, now
