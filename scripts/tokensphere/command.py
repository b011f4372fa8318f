"""The command line: `tokensphere verify`, `explain` and `impact`, beside a folder of results.

Ends with 0 if all is well, with 1 if there is a finding, with 2 if it was asked for nonsense.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokensphere import audit, chain, hashes
from tokensphere import impact as effects
from tokensphere.chain import Chain, Job
from tokensphere.harness import records
from tokensphere.harness.errors import UserError

FINE, FINDING, USAGE = 0, 1, 2
MARGIN = 11  # where a line goes on after the kind of a finding
CONTROLLED = "_controlled"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        status: int = asked.run(asked)
    except UserError as error:
        print(error, file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stderr.close()
        return FINE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tokensphere",
        description="Ask figures what made them, and whether it is still true. "
        "Run it in the folder that holds results/.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> Any:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument(
            "--workflow",
            metavar="FOLDER",
            default="",
            help="the folder of the Snakefile (default: this one, or the installed one)",
        )
        return command

    command = add("verify", verify, "Compare files, code, checkpoints and versions with records.")
    command.add_argument("figures", nargs="*", metavar="FIGURE", help="look at their chains alone")
    command.add_argument("--full", action="store_true", help="hash every file, known or not")
    command = add("explain", explain, "Show the chain of a figure, down to texts and weights.")
    command.add_argument("figure", metavar="FIGURE", help="a name, or a file from anywhere")
    command.add_argument(
        "--record", metavar="FILE", help="the record that came with a figure from elsewhere"
    )
    command = add("impact", impact, "Name the figures that a change would change.")
    command.add_argument(
        "name", metavar="PATH|KEY", help="a file, a key (metrics.near_one) or a library"
    )
    return parser


def _say(asked: argparse.Namespace, value: dict[str, Any], text: str) -> None:
    print(hashes.to_json(value) if asked.json else text, end="")


# --- verify


def verify(asked: argparse.Namespace) -> int:
    """Print what holds and what does not."""
    report = audit.verify(
        chain.read(),
        audit.workflow_folder(asked.workflow),
        asked.figures,
        full=asked.full,
        start=_bar,
    )
    _say(asked, report.to_json(), "\n".join(_lines(report)) + "\n")
    return FINDING if report.findings else FINE


def _bar(size: int) -> audit.Progress:
    from tqdm import tqdm

    bar = tqdm(
        total=size, unit="B", unit_scale=True, desc="hash", delay=2, leave=False,
        disable=not sys.stderr.isatty(),
    )  # fmt: skip

    def done(size: int) -> None:
        bar.update(size)

    return done


def _lines(report: audit.Report) -> list[str]:
    lines = []
    for one in report.findings:
        lines.append(f"{one.kind.upper():<{MARGIN}}{one.what}")
        said = [one.says, *(f"  {part}" for part in one.parts)]
        lines += [f"{'':<{MARGIN}}{line}" for line in said]
        lines += _wrapped("figures: ", _paired(one.figures), MARGIN)
    lines += [f"{'note':<{MARGIN}}{note}" for note in report.notes]
    size = report.size / 1e6
    lines.append(
        f"{report.records} records, {report.files} files, {size:.1f} MB, {report.seconds:.1f} s"
    )
    if not report.findings:
        count = len(report.figures)
        lines.append(f"All holds: {count} of {count} figures are what their records say.")
    elif not report.broken:
        lines.append("No figure depends on what was found.")
    else:
        lines.append(f"{len(report.broken)} of {len(report.figures)} figures do not hold.")
    return lines


def _paired(names: Sequence[str]) -> list[str]:
    """Name a figure and its companion in one word, where both are there."""
    pairs = {name for name in names if f"{name}{CONTROLLED}" in names}
    return [
        f"{name}(+{CONTROLLED[1:]})" if name in pairs else name
        for name in names
        if name.removesuffix(CONTROLLED) not in pairs or name in pairs
    ]


def _wrapped(before: str, words: Sequence[str], margin: int) -> list[str]:
    """Write words in lines that a terminal shows, never cut inside a name."""
    return textwrap.wrap(
        before + (", ".join(words) or "none"), 100, initial_indent=" " * margin,
        subsequent_indent=" " * (margin + len(before)), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


# --- explain


def explain(asked: argparse.Namespace) -> int:
    """Print the chain of a figure, of this folder or from elsewhere."""
    found = chain.read()
    file = Path(asked.figure)
    stamp = records.read_stamp(file) if file.is_file() else {}
    here = _made_here(found, asked.figure)
    if here and not stamp and file.is_file() and file.suffix in (".png", ".svg", ".pdf"):
        stamp = {"figure": chain.figure_of(here)}
    if not here and not stamp:
        if not file.is_file():
            found.find(asked.figure)  # says which figures there are
        raise UserError(
            asked.figure,
            "the file carries no input id of this workflow, and no record here names it",
            "give a PNG, SVG or PDF that this workflow drew",
        )
    job = _same_inputs(found, stamp) if stamp.get("input_id") else found.made_by.get(here)
    value: dict[str, Any] = {"stamp": stamp}
    lines = []
    if "input_id" in stamp:
        lines += [
            f"{asked.figure} says: {stamp['figure']}, input id {stamp['input_id']}",
            f"  models   {', '.join(stamp['models']) or 'not named'}",
            f"  prompts  {', '.join(stamp['prompts']) or 'not named'}",
        ]
    if job is None:
        differs = _differs(found, stamp, asked.record)
        lines += ["It was not drawn from what this folder holds:", *(f"  {one}" for one in differs)]
        _say(asked, value | {"reproducible": False, "differs": differs}, "\n".join(lines) + "\n")
        return FINDING
    path = here if here in job.outputs else _same_kind(job, file)
    same = not file.is_file() or hashes.of_file(file) == job.outputs[path]
    report = audit.verify(found, audit.workflow_folder(asked.workflow), [path])
    others = [one for one in report.findings if one.what != path]
    lines += [""] * bool(lines) + [f"{'  ' * depth}{line}" for depth, line in
                                   chain.tree(found, job, path)]  # fmt: skip
    lines += ["", *_verdict(asked.figure, job, same, report, others)]
    value |= {
        "job": job.name,
        "same_bytes": same,
        "reproducible": not others,
        "findings": [vars(one) for one in report.findings],
        "chain": [
            {"record": one.place, **one.deterministic, "places": one.run.get("places", {})}
            for one in found.upstream([job])
        ],
    }
    _say(asked, value, "\n".join(lines) + "\n")
    return FINE if same and not report.findings else FINDING


def _made_here(found: Chain, figure: str) -> str:
    try:
        return found.find(figure)
    except UserError:
        return ""


def _same_inputs(found: Chain, stamp: dict[str, Any]) -> Job | None:
    jobs = (job for job in found.jobs if job.deterministic["input_id"] == stamp["input_id"])
    return next(jobs, None)


def _same_kind(job: Job, file: Path) -> str:
    """Return the output of a job that a figure from elsewhere is like: in name, or in kind."""
    names = [path for path in job.outputs if Path(path).name == file.name]
    kinds = [path for path in job.outputs if Path(path).suffix == file.suffix]
    return (names or kinds)[0]


def _verdict(
    figure: str, job: Job, same: bool, report: audit.Report, others: list[audit.Finding]
) -> list[str]:
    lines = []
    if same:
        lines.append(f"{figure} is, byte for byte, what {job.name} made here.")
    else:
        lines.append(
            f"{figure} names the inputs of {job.name} here, but its bytes are not what that made."
        )
    if others:
        lines.append("This folder no longer holds what it was made from:")
        lines += [f"  {one.kind} {one.what}: {one.says}" for one in others]
    else:
        lines.append(f"All it was made from is still here: snakemake --forcerun {job.rule}")
    return lines


def _differs(found: Chain, stamp: dict[str, Any], record: str | None) -> list[str]:
    """Say how a figure from elsewhere differs from the one that this folder would draw."""
    own = next((job for job in found.jobs if job.rule == stamp.get("figure")), None)
    if own is None:
        return [f"no record here is of {stamp.get('figure')}"]
    runs = own.params.get("figure", {}).get("runs", [])
    here = {
        "models": list(dict.fromkeys(map(records.run_in_short, runs))),
        "prompts": list(dict.fromkeys(one["prompt"] for one in runs)),
    }
    lines = [f"its input id here is {own.deterministic['input_id']}"]
    for name, names in here.items():
        lines += [
            f"{name}: {one} is in that figure alone" for one in stamp[name] if one not in names
        ]
        lines += [f"{name}: {one} is here alone" for one in names if one not in stamp[name]]
    if record is None:
        if len(lines) == 1:
            lines.append("models and prompts are the same: tables, code, params or versions differ")
        return [*lines, f"for what differs, give its record ({own.place}) with --record"]
    try:
        theirs = json.loads(Path(record).read_text(encoding="utf-8"))["deterministic"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            record, f"it is no record ({error})", f"give a file like {own.place}"
        ) from None
    if theirs.get("input_id") != stamp["input_id"]:
        raise UserError(
            record, "it is the record of another figure", f"give a file like {own.place}"
        )
    ours, given = (
        {key: value for key, value in one.items() if key not in ("input_id", "outputs")}
        for one in (own.deterministic, theirs)
    )
    return lines + [
        f"{name}: {_text(there)} there, {_text(mine)} here"
        for name, mine, there in _by_path(ours, given)
    ]


def _by_path(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """List differences; inputs are compared by path."""

    def flat(one: dict[str, Any]) -> dict[str, Any]:
        files = [file for given in one.get("inputs", {}).values() for file in given]
        by_path = {file["path"]: file.get("sha256") or file["members"] for file in files}
        return one | {"inputs": by_path}

    return list(chain.differences(flat(ours), flat(theirs)))


def _text(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text[:12] if len(text) == 64 and text.isalnum() else text


# --- impact


def impact(asked: argparse.Namespace) -> int:
    """Print which figures would change."""
    found = chain.read()
    kind, jobs = effects.find(found, asked.name, audit.workflow_folder(asked.workflow))
    figures = found.figures(jobs)
    rerun = found.downstream(jobs)
    rules = sorted({job.rule for job in jobs})
    text = [f"{asked.name} ({kind})"]
    if jobs:
        text += _wrapped(f"{audit.count(jobs)} take it: ", rules, 2)
        text.append(f"  {audit.count(rerun)} would run again, and these figures change:")
    text += [f"    {name}" for name in _paired(figures)] or ["    none"]
    value = {"name": asked.name, "kind": kind, "figures": figures, "rules": rules,
             "jobs": sorted(job.name for job in rerun)}  # fmt: skip
    _say(asked, value, "\n".join(text) + "\n")
    return FINE


if __name__ == "__main__":
    sys.exit(main())
