"""What a change would change: the jobs that depend on a file, a key or a library."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tokensphere import audit, catalogue, yaml_files
from tokensphere.chain import Chain, Job
from tokensphere.harness import closure
from tokensphere.harness.errors import UserError, suggest


def find(found: Chain, name: str, workflow: Path) -> tuple[str, list[Job]]:
    """Find the jobs that a change of a file, a configuration key or a library makes out of date.

    Parameters
    ----------
    found : Chain
    name : str
        A path (a module, a prompt, a result, a checkpoint's file or folder), a key
        (`metrics.near_one`, `models.minilm`, `prompts.wiki`, `device`) or a distribution.
    workflow : Path

    Returns
    -------
    kind : str
        What the name is: code, input, checkpoint, result, configuration or library.
    jobs : list of Job
        Those that it changes directly.

    Raises
    ------
    UserError
        If no job depends on anything of that name.
    """
    path = _relative(name, workflow)
    lookups: list[tuple[str, Callable[[Job], bool]]] = [
        ("code", lambda job: path in job.code),
        ("result", lambda job: path in job.outputs),
        ("input", lambda job: path in job.inputs),
        ("checkpoint", lambda job: _has_checkpoint(job, name)),
        ("configuration", lambda job: _takes(job, name, workflow)),
        ("library", lambda job: closure.normalised(name) in job.params.get("versions", {})),
    ]
    for kind, depends in lookups:
        jobs = [job for job in found.jobs if depends(job)]
        if kind == "result" and jobs:  # who made it is not changed, who reads it is
            return kind, found.readers.get(path, [])
        if jobs:
            return kind, jobs
    if (workflow / name).exists() or Path(name).exists():
        return "file", []
    keys = _keys(workflow)
    if name in keys:
        return "configuration", []
    raise UserError(
        name,
        "no job of these results depends on a file, a configuration key or a library of that name",
        suggest(
            name,
            [*keys, *(path for job in found.jobs for path in job.code)],
            "name a file as the records do (scripts/tokensphere/sphere.py), a key with its "
            "section (metrics.near_one) or a distribution (numpy)",
        ),
    )


def _keys(workflow: Path) -> list[str]:
    """List the keys that a configuration may have; models and prompts go by their own names."""
    schema = workflow / "workflow/schemas/config.schema.yaml"
    properties = yaml_files.read(schema)["properties"]
    return [
        key
        for section, rule in properties.items()
        for key in (section, *(f"{section}.{inner}" for inner in rule.get("properties", {})))
    ]


def _relative(name: str, workflow: Path) -> str:
    """Name a path as records do: from the workflow's folder, or from the working directory."""
    full = Path(os.path.normpath(Path.cwd() / name))
    for folder in (workflow.resolve(), Path.cwd()):
        for one in (full, full.resolve()):
            if one.is_relative_to(folder) and one.exists():
                return one.relative_to(folder).as_posix()
    return str(Path(name))


def _has_checkpoint(job: Job, name: str) -> bool:
    folder = audit.folders(job).get("checkpoint")
    if folder is None or not Path(name).exists():
        return False
    there, here = Path(name).resolve(), folder.resolve()
    return there == here or any(there == (here / file).resolve()
                                for file in job.external["checkpoint"])  # fmt: skip


def _takes(job: Job, key: str, workflow: Path) -> bool:
    """Say whether a job takes a key of the configuration."""
    section, *rest = key.split(".", 1)
    inner = rest[0] if rest else ""
    figure = job.params.get("figure", {})
    runs = figure.get("runs", []) or job.params.get("runs", [])
    if section == "metrics":
        taken = {**job.params.get("constants", {}), **figure.get("constants", {})}
        return inner.partition(".")[0] in taken if inner else bool(taken)
    if section in ("models", "prompts"):
        # A name may hold dots: of those that are there, the one that the key begins with.
        kind = section.removesuffix("s")
        names = {job.wildcards.get(kind, ""), *(one.get(kind, "") for one in runs)} - {""}
        named = [one for one in names if inner == one or inner.startswith(f"{one}.")]
        if not inner or not named:
            return not inner and bool(names)
        detail = inner.removeprefix(max(named, key=len)).removeprefix(".")
        if detail in ("label", "colour"):
            return bool(runs) or (detail == "label" and "label" in job.params)
        if detail == "cut":
            return bool(job.params.get("cut")) or any("cut" in one for one in runs)
        if detail == "control":
            return bool(figure)
        return True
    if section == "roles":
        drawn = catalogue.load(workflow / "workflow/figures.yaml").get(job.rule, {})
        models = drawn.get("models", [])
        return bool(figure) and models != "all" and (not inner or inner in models)
    if section == "figures":
        return bool(figure) and inner in ("", "prompt", "baseline")
    setting = {"extraction_threads": "threads"}.get(section, section)
    return setting in job.params.get("settings", {})
