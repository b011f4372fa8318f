"""Flip single bytes in finished results, and see that the audit finds each, with its figures.

    python tests/tools/flips.py FOLDER --flips 60 --seed 0

FOLDER is a working directory whose results hold; it is left as it was. What depends on a file is
worked out from the records alone, by another way than the audit's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tokensphere import audit, chain

KINDS = {
    "store": ("results/activations/", "results/attention/"),
    "table": ("results/metrics/", "results/tables/", "results/weights/", "results/value_matrices/"),
    "figure": ("results/figures/", "results/contact_sheet", "results/text/", "results/prompts/"),
    "record": ("results/records/",),
}


def files(kind: str) -> list[Path]:
    found = (path for path in sorted(Path("results").rglob("*")) if path.is_file())
    return [
        path
        for path in found
        if str(path).startswith(KINDS[kind]) and not path.name.startswith(".")
    ]


def figure(path: str) -> str | None:
    """Name the figure of a file, in the words of the audit."""
    place = Path(path)
    if place.parts[1] == "figures":
        return place.name.split(".")[0]
    return (
        str(Path(*place.parts[1:]).with_suffix("")) if place.suffix in (".png", ".html") else None
    )


def dependents() -> dict[str, set[str]]:
    """File, or record -> the figures that depend on it, from sound records."""
    made: dict[str, set[str]] = {}  # input -> outputs
    of_record: dict[str, set[str]] = {}
    for place in sorted(Path("results/records").rglob("*.json")):
        record = json.loads(place.read_text())["deterministic"]
        outputs = {one["path"] for one in record.get("outputs", {}).values()}
        of_record[str(place)] = outputs
        for given in record.get("inputs", {}).values():
            for one in given:
                made.setdefault(one["path"], set()).update(outputs)

    def reach(paths: set[str]) -> set[str]:
        while (more := paths.union(*(made.get(path, set()) for path in paths))) != paths:
            paths = more
        return {name for path in paths if (name := figure(path))}

    every = {str(path) for kind in KINDS for path in files(kind)}
    return {path: reach(of_record.get(path, {path})) for path in every}


@contextlib.contextmanager
def flipped(path: Path, at: int, with_: int, *, hidden: bool) -> Iterator[None]:
    """Change one byte for a while; hidden, the file keeps its time stamps, else later ones."""
    status, before = path.stat(), path.read_bytes()
    times = (status.st_atime_ns, status.st_mtime_ns)
    try:
        path.write_bytes(before[:at] + bytes([before[at] ^ with_]) + before[at + 1 :])
        later = 0 if hidden else 3600 * 10**9
        os.utime(path, ns=(times[0], times[1] + later))
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=times)


def trial(seed: int, truth: dict[str, set[str]], workflow: Path) -> str:
    """Flip one byte; return what the audit missed or named wrongly, '' if nothing."""
    draw = random.Random(seed)
    path = draw.choice(files(draw.choice(list(KINDS))))
    at, with_ = draw.randrange(path.stat().st_size), draw.randrange(1, 256)
    hidden = draw.random() < 0.5
    with flipped(path, at, with_, hidden=hidden):
        report = audit.verify(chain.read(), workflow)
    what = f"seed {seed}: {path}, byte {at} ^ {with_:#x}"
    named = {name for one in report.findings for name in one.figures}
    if {one.what for one in report.findings} != {str(path)}:
        return f"{what}: the findings are {[one.what for one in report.findings]}"
    if (kind := report.findings[0].kind) != ("tampered" if hidden else "edited"):
        return f"{what}: it is called {kind}"
    if named != truth[str(path)]:
        return f"{what}: missed {truth[str(path)] - named}, innocent {named - truth[str(path)]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--flips", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.chdir(asked.folder)
    workflow = audit.workflow_folder()
    if audit.verify(chain.read(), workflow).findings:
        sys.exit("the results do not hold before any byte is flipped")
    truth = dependents()
    wrong = [
        said
        for seed in range(asked.seed, asked.seed + asked.flips)
        if (said := trial(seed, truth, workflow))
    ]
    print("\n".join([*wrong, f"{asked.flips - len(wrong)} of {asked.flips} flips were found"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
