"""What a run of config/paper.yaml would cost, from what its rehearsal took.

    python tests/tools/cost.py FOLDER

FOLDER is that of a rehearsal (tests/tools/rehearsal.py) that is done. Each job of the whole study
is taken to cost what the rehearsal's job of its rule and model did: on the same prompt, or on the
long one. A draw of random weights, once a weight set, costs what passes of such weights took longer
than those of the trained ones.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from tools import rehearsal  # noqa: E402

LONG = "wiki_paragraph"
PASSES = ("extract", "attention")
KINDS = {
    "forward passes": PASSES,
    "measures of attention": (
        "fiedler", "fiedler_floors", "attention_entropy", "attention_profiles",
        "attention_received",
    ),
    "figures, tables, pages": ("collect", "contact_sheet", "text_view", "prompt"),
}  # fmt: skip


class Job(NamedTuple):
    """One job: what it did, to which run; empty where it is of none, or to which table."""

    rule: str
    model: str = ""
    weights: str = ""
    prompt: str = ""
    table: str = ""


def measured(results: Path) -> dict[Job, dict[str, float]]:
    """Read what each job of a rehearsal took."""
    found = {}
    for _, record in rehearsal.records(results):
        wildcards = record["deterministic"].get("wildcards", {})
        job = Job(record["deterministic"]["rule"], **{
            key: value for key, value in wildcards.items() if key in Job._fields
        })  # fmt: skip
        found[job] = record["run"]
    return found


def planned(folder: Path) -> list[Job]:
    """List the jobs of the whole study, on the rehearsal's checkpoints."""
    paper = yaml.safe_load((ROOT / "config/paper.yaml").read_text(encoding="utf-8"))
    whole = folder / "whole"
    (whole / "config").mkdir(parents=True, exist_ok=True)
    config = paper | {"local_models": str(folder / "checkpoints")}
    config["prompts"] = {
        name: {key: str(ROOT / value) if key == "file" else value for key, value in one.items()}
        for name, one in paper["prompts"].items()
    }
    (whole / "config/config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    said = subprocess.run(
        [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--directory", whole,
         "--summary"],
        env=rehearsal.environment(folder), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    jobs = set()
    for row in csv.DictReader(io.StringIO(said), delimiter="\t"):
        parts = Path(row["output_file"]).parts
        name = parts[-1].split(".")[0]
        if parts[1] in ("activations", "attention", "metrics", "text"):
            jobs.add(Job(row["rule"], *parts[-3:-1], name))
        elif parts[1] in ("prompts", "tables"):
            jobs.add(Job(row["rule"], **{parts[1].removesuffix("s"): name}))
        else:
            jobs.add(Job(row["rule"]))
    return sorted(jobs)


def seconds(job: Job, took: dict[Job, float]) -> float:
    """Return what a job is taken to cost: of its rule and model, on its prompt or the long one."""
    like = {one: cost for one, cost in took.items() if one[:2] == job[:2]}
    for alike in (
        # A pass of random weights costs as one of trained ones, but for the draw.
        lambda one: job.rule in PASSES and one.weights == "trained" and one.prompt == job.prompt,
        lambda one: job.rule in PASSES and one.weights == "trained" and one.prompt == LONG,
        lambda one: job.rule not in PASSES and one.prompt == job.prompt,
        lambda one: job.rule not in PASSES,
    ):
        if same := [cost for one, cost in like.items() if alike(one)]:
            return mean(same)
    raise SystemExit(f"the rehearsal has no job like {job}")


def draw(model: str, weights: str, took: dict[Job, float]) -> float:
    """Return what the draw of a weight set is taken to cost."""
    scheme = weights.partition(".")[0]
    passes = {
        one: cost
        for one, cost in took.items()
        if one.rule in PASSES and one.model == model and one.weights.partition(".")[0] == scheme
    }
    if not passes:
        raise SystemExit(f"the rehearsal has no pass of {model} with {scheme} weights")
    return max(0.0, sum(cost - seconds(one, took) for one, cost in passes.items()))


def main() -> None:
    """Print jobs and processor hours of each kind of work, and of each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    took = {job: run["cpu_seconds"] for job, run in measured(folder / "results").items()}
    jobs = [job for job in planned(folder) if job.rule != "all"]
    kind_of = {rule: kind for kind, rules in KINDS.items() for rule in rules}
    spent: list[tuple[str, str, float]] = []
    for job in jobs:
        kind = kind_of.get(job.rule, "geometry" if job.model else "figures, tables, pages")
        spent.append((kind, job.model, seconds(job, took)))
    drawn = {(job.model, job.weights) for job in jobs if job.rule in PASSES} - {
        (job.model, "trained") for job in jobs
    }
    spent += [("draws of weights", model, draw(model, weights, took)) for model, weights in drawn]
    for place, title in enumerate(("work", "model")):
        hours: dict[str, float] = defaultdict(float)
        for row in spent:
            hours[row[place] or "none of one alone"] += row[2] / 3600
        count = Counter(row[place] or "none of one alone" for row in spent)
        print(f"{title:<28}{'count':>7}{'processor hours':>17}")
        for name in sorted(hours, key=lambda name: -hours[name]):
            print(f"{name:<28}{count[name]:>7}{hours[name]:>17.2f}")
        print(f"{'all':<28}{len(spent):>7}{sum(hours.values()):>17.2f}\n")


if __name__ == "__main__":
    main()
