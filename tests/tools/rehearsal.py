"""Rehearse config/paper.yaml at its true shapes, with random weights and without a network.

    python tests/tools/rehearsal.py FOLDER [--tiny] [--models gpt2 ...] [--prompts NAME ...]
                                    [--cores N] [--snakemake ARGUMENTS ...]

writes the checkpoints that FOLDER lacks (tests/tools/make_checkpoint.py) and a configuration with
one seed of every random scheme, runs the workflow on it in FOLDER, and says what each rule took.
What an earlier run made stays. Nothing that is drawn is a result, and everything says so.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[2]
# Before any other: an installed tokensphere of another checkout must not be rehearsed with.
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

from tools import make_checkpoint, offline  # noqa: E402

PROMPTS = ("short_heterogeneous", "wiki_paragraph", "repeated_tokens")
CONFIG = "config/rehearsal.yaml"
# Tiny models iterate as many times less than the true ones.
TINY_ITERATIONS = 8
# Memory that is left to the rest of the machine.
LEFT_MB = 1000


def configure(
    paper: dict[str, Any], models: Sequence[str], prompts: Sequence[str], *, tiny: bool = False
) -> dict[str, Any]:
    """Derive the configuration of a rehearsal from that of the study.

    Parameters
    ----------
    paper : dict
        config/paper.yaml.
    models, prompts : sequence of str
        Which of it; empty for all. A role whose model is not among them falls to the first.
    tiny : bool
        Whether models that iterate their block do so less often.

    Returns
    -------
    dict
        The same configuration with one seed of each random scheme and `local_models`.
    """
    chosen = {name: dict(paper["models"][name]) for name in models or paper["models"]}
    for model in chosen.values():
        schemes = {weights.partition(".")[0]: weights for weights in reversed(model["weights"])}
        model["weights"] = [one for one in model["weights"] if one in schemes.values()]
        for key in {"iterations", "cut"} & model.keys():
            model[key] //= TINY_ITERATIONS if tiny else 1
    texts = {name: paper["prompts"][name] for name in prompts or paper["prompts"]}
    shown = paper["figures"]["prompt"]
    roles = {
        role: model if model in chosen else next(iter(chosen))
        for role, model in paper["roles"].items()
    }
    return paper | {
        "local_models": "checkpoints",
        "models": chosen,
        "prompts": texts,
        "roles": roles,
        "figures": paper["figures"] | {"prompt": shown if shown in texts else next(iter(texts))},
    }


def prepare(
    folder: Path, models: Sequence[str], prompts: Sequence[str], *, tiny: bool = False
) -> dict[str, Any]:
    """Write what a rehearsal needs into its folder, and return its configuration."""
    paper = yaml.safe_load((ROOT / "config/paper.yaml").read_text(encoding="utf-8"))
    config = configure(paper, models, prompts, tiny=tiny)
    for name in config["models"]:
        place = folder / config["local_models"] / name
        if not place.exists():
            started = time.monotonic()
            make_checkpoint.write(name, place, tiny=tiny)
            print(f"{place} written in {time.monotonic() - started:.0f} s", flush=True)
    shutil.copytree(ROOT / "config/prompts", folder / "config/prompts", dirs_exist_ok=True)
    text = "# Derived from config/paper.yaml: random weights stand in for the published ones.\n"
    text += yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (folder / CONFIG).write_text(text, encoding="utf-8")
    offline.write(folder / "offline")
    return config


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a run that reaches no network."""
    kept = {key: value for key, value in os.environ.items() if key != "TOKENSPHERE_DRIVER"}
    path = os.pathsep.join(filter(None, [str(folder / "offline"), kept.get("PYTHONPATH")]))
    return kept | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}


def command(folder: Path, cores: int, *arguments: str) -> list[str]:
    """Return the call of Snakemake; jobs run side by side only if their memory fits."""
    memory = psutil.virtual_memory().available // 10**6 - LEFT_MB
    return [
        *(sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile")),
        *("--directory", str(folder), "--configfile", str(folder / CONFIG)),
        *("--cores", str(cores), "--resources", f"mem_mb={memory}", "gpu=1"),
        *("--keep-going", *arguments),
    ]


class Cost(NamedTuple):
    """What one job took: its record, and where Snakemake measured it, its benchmark."""

    rule: str
    job: str
    seconds: float
    cpu_seconds: float
    peak_mb: float
    rss_mb: float


def records(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Read every record; yield it with the job's place, its rule and wildcards as a path."""
    for path in sorted((results / "records").rglob("*.json")):
        place = path.relative_to(results / "records").with_suffix("")
        yield place, json.loads(path.read_text(encoding="utf-8"))


def costs(results: Path) -> Iterator[Cost]:
    """Read what each job took whose record is there."""
    for place, record in records(results):
        benchmark = (results / "benchmarks" / place).with_suffix(".tsv")
        benchmark = benchmark.with_name(place.name + ".tsv")
        rss = 0.0
        if benchmark.is_file():
            with open(benchmark, newline="", encoding="utf-8") as file:
                measured = [row["max_rss"] for row in csv.DictReader(file, delimiter="\t")]
            # A job of less than a few seconds may end before it is measured.
            rss = max((float(one) for one in measured if one not in ("-", "NA")), default=0.0)
        run = record["run"]
        yield Cost(
            record["deterministic"]["rule"],
            str(place),
            run["seconds"],
            run["cpu_seconds"],
            run["peak_memory_mb"],
            rss,
        )


def size_mb(folder: Path) -> float:
    """Return the size of all files below a folder, in MB."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def summary(folder: Path) -> str:
    """Say what each rule took, and how large each folder is."""
    by_rule: dict[str, list[Cost]] = {}
    for cost in costs(folder / "results"):
        by_rule.setdefault(cost.rule, []).append(cost)
    lines = [
        f"{'rule':<28}{'jobs':>6}{'total s':>10}{'cpu s':>10}{'longest s':>11}{'peak MB':>9}"
        f"{'max_rss MB':>12}  longest job"
    ]
    total = {rule: sum(one.seconds for one in jobs) for rule, jobs in by_rule.items()}
    for rule in sorted(by_rule, key=lambda rule: -total[rule]):
        jobs = by_rule[rule]
        longest = max(jobs, key=lambda one: one.seconds)
        lines.append(
            f"{rule:<28}{len(jobs):>6}{total[rule]:>10.1f}"
            f"{sum(one.cpu_seconds for one in jobs):>10.1f}{longest.seconds:>11.1f}"
            f"{max(one.peak_mb for one in jobs):>9.0f}{max(one.rss_mb for one in jobs):>12.0f}"
            f"  {longest.job}"
        )
    lines.append(f"{'all':<28}{sum(map(len, by_rule.values())):>6}{sum(total.values()):>10.1f}")
    lines += ["", f"{'folder':<28}{'MB':>10}"]
    places = [folder / "checkpoints", *sorted(path for path in (folder / "results").glob("*/"))]
    lines += [f"{place.relative_to(folder)!s:<28}{size_mb(place):>10.1f}" for place in places]
    return "\n".join(lines)


def main() -> int:
    """Prepare, run and sum up; return Snakemake's exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="narrow models of few layers")
    parser.add_argument("--models", nargs="+", default=[], choices=make_checkpoint.SHAPES)
    parser.add_argument("--prompts", nargs="+", default=PROMPTS)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--snakemake", nargs=argparse.REMAINDER, default=[],
                        help="everything after it goes to Snakemake: targets, -n")  # fmt: skip
    given = parser.parse_args()
    folder = given.folder.resolve()
    prepare(folder, given.models, given.prompts, tiny=given.tiny)
    started = time.monotonic()
    done = subprocess.run(
        command(folder, given.cores, *given.snakemake), env=environment(folder), check=False
    )
    wall = time.monotonic() - started
    print(f"\n{summary(folder)}\n\nwall time of this run: {wall:.0f} s", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
