"""What the workflow would give to its jobs today, as the configuration asks, without Snakemake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokensphere import catalogue, hashes, sources, yaml_files
from tokensphere import config as configuration
from tokensphere.chain import Job


class Plan:
    """What the workflow would give to its jobs today, read without Snakemake.

    Parameters
    ----------
    files : sequence of str
        The configuration files, each overriding those before it.
    workflow : Path
    cache : hashes.Cache

    Raises
    ------
    UserError
        If the configuration is not valid, or a checkpoint is not there.
    """

    def __init__(self, files: Sequence[str], workflow: Path, cache: hashes.Cache) -> None:
        where = ", ".join(files)
        given: dict[str, Any] = {}
        for file in files:
            merge(given, yaml_files.read(file))
        self.metrics = catalogue.load(workflow / "workflow/metrics.yaml")
        self.drawn = catalogue.load(workflow / "workflow/figures.yaml")
        schema = workflow / "workflow/schemas/config.schema.yaml"
        self.config = configuration.check(given, schema, self.drawn, where)
        self.checkpoints = sources.look_up_all(self.config, where, cache)
        figures, _ = catalogue.chosen(self.drawn, self.metrics, self.config, self.checkpoints)
        self.figures = {figure.name: figure for figure in figures}
        self.runs = {tuple(run) for run in catalogue.runs(self.config)}
        self.weights = {tuple(run) for run in catalogue.weight_sets(self.config)}

    def params(self, job: Job) -> dict[str, Any] | None:
        """Return the params of a job's rule that come from the configuration; None if not asked."""
        given = tuple(job.wildcards.get(key, "") for key in catalogue.Run._fields)
        if job.rule in self.drawn:
            figure = self.figures.get(job.rule)
            return {"figure": figure.params} if figure else None
        if job.rule == "prompt":
            entry = self.config["prompts"].get(job.wildcards["prompt"])
            return entry and {"entry": {k: v for k, v in entry.items() if k != "control"}}
        if job.rule == "weights":
            return {} if given in self.weights else None
        if "prompt" not in job.wildcards:
            return {}
        if given not in self.runs:
            return None
        model = job.wildcards["model"]
        if job.rule in self.metrics:
            metric = self.metrics[job.rule]
            return {
                "constants": catalogue.constants(self.config, metric),
                "cut": catalogue.cut(model, self.config) if metric.get("cut") else 0,
            }
        if job.rule in ("extract", "attention"):
            return {"settings": catalogue.settings(model, self.config)}
        return {
            "label": catalogue.label(model, self.config),
            "weights_are": catalogue.weights_are(catalogue.Run(*given), self.checkpoints),
        }


def merge(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Merge a configuration into another as Snakemake does: mappings by key, else the last wins."""
    for key, value in (above or {}).items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            merge(below[key], value)
        else:
            below[key] = value


def key_of(name: str, job: Job) -> str:
    """Turn the dotted name of a job's param into the key of the configuration that sets it."""
    group, _, rest = name.partition(".")
    if name.startswith("figure.constants."):
        return f"metrics.{name.removeprefix('figure.constants.')}"
    if group == "figure":
        return f"{job.rule}: {rest}"
    model = job.wildcards.get("model")
    setting = {"threads": "extraction_threads"}.get(rest, rest)
    if rest.partition(".")[0] in ("iterations", "dtype", "device_map", "max_memory"):
        setting = f"models.{model}.{rest}"
    return {
        "constants": f"metrics.{rest}",
        "settings": setting,
        "entry": f"prompts.{job.wildcards.get('prompt')}.{rest}",
        "label": f"models.{model}.label",
        "weights_are": f"models.{model}.source",
        "cut": f"models.{model}.cut",
    }.get(group, name)
