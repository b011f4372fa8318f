"""Sweeps: checkpoints of one training run, each the model NAME@REVISION with its training step.

The Snakefile reads this module while it plans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokensphere.harness.errors import UserError

# Between the name of a sweep and that of a revision; no name in a configuration holds one.
AT = "@"
COMMIT = re.compile(r"[0-9a-f]{40}")
# `stage1-step1000-tokens3B` is at step 1000: the word decides before the place.
NAMED_STEP = re.compile(r"step[-_]?(\d+)", re.IGNORECASE)
# Whole, so that `epoch-0.25` does not become step 25.
NUMBER = re.compile(r"\d+(?:\.\d+)*")
SHOWN = 20


def expand(models: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Replace every model with revisions by one model a revision.

    Parameters
    ----------
    models : mapping
        Of a configuration: name -> entry. The `revisions` of an entry are the names of branches or
        tags of a hub source, or of sub-folders of a local one; or a mapping from names to these,
        or to commits.
    where : str
        The configuration file, for errors.

    Returns
    -------
    dict
        Other entries as they are. That of a revision has its own source, the label of the sweep,
        its `step`, and all else from the entry: `{hub: REPO, revision: COMMIT}`, `{hub: REPO, ref:
        BRANCH or TAG}`, or `{local: SUB-FOLDER}`.

    Raises
    ------
    UserError
        If the source cannot have revisions or names one itself, a sub-folder is missing, a name
        tells no step, or two tell the same.
    """
    expanded: dict[str, Any] = {}
    for name, entry in models.items():
        if "revisions" not in entry:
            expanded[name] = entry
            continue
        place = f"{where}: models.{name}.revisions"
        shared = {key: value for key, value in entry.items() if key != "revisions"}
        steps: dict[int, str] = {}
        for revision, target in _targets(entry["revisions"]).items():
            step = step_of(revision)
            if step is None:
                raise UserError(
                    place,
                    f"the name {revision!r} tells no training step (it holds no whole number)",
                    f"name it by its step: `revisions: {{step1000: {target}, ...}}`",
                )
            if step in steps:
                raise UserError(
                    place,
                    f"{steps[step]!r} and {revision!r} are both step {step}",
                    "leave one out, or name each by its step: "
                    f"`revisions: {{step{step}: {target}, ...}}`",
                )
            steps[step] = revision
            expanded[f"{name}{AT}{revision}"] = {
                **shared,
                "source": _source(entry["source"], target, place),
                "label": entry.get("label", name),
                "step": step,
            }
    return expanded


def step_of(revision: str) -> int | None:
    """Read the training step from a revision's name: the number after `step`, else the last whole.

    None where there is no such number.
    """
    whole = [number for number in NUMBER.findall(revision) if number.isdecimal()]
    numbers = NAMED_STEP.findall(revision) or whole
    return int(numbers[-1]) if numbers else None


def sweep_of(model: str) -> str:
    """Return the name under which a configuration has a model: of NAME@REVISION, NAME."""
    return model.partition(AT)[0]


def _targets(revisions: Any) -> dict[str, str]:
    """Return name -> branch, tag, commit or sub-folder; a list names each as it is called."""
    return dict(revisions) if isinstance(revisions, Mapping) else {one: one for one in revisions}


def _source(source: Mapping[str, Any], target: str, place: str) -> dict[str, str]:
    if "revision" in source:
        raise UserError(
            place,
            f"the source names one revision, {source['revision']!r}, and here are others",
            "leave `revision` out of the source",
        )
    if "hub" in source:
        kind = "revision" if COMMIT.fullmatch(target) else "ref"
        return {"hub": source["hub"], kind: target}
    if "local" not in source:
        raise UserError(
            place,
            f"a source with the key {next(iter(source))!r} has no revisions",
            "a source that has: {hub: OWNER/NAME}, or {local: FOLDER} with a sub-folder for each",
        )
    folder = Path(source["local"])
    if not (folder / target).is_dir():
        there = sorted(path.name for path in folder.glob("*/"))
        listed = ", ".join(there[:SHOWN]) + (", ..." if len(there) > SHOWN else "")
        raise UserError(
            place,
            f"the folder {str(folder)!r} holds no folder {target!r}",
            f"folders there: {listed or 'none'}",
        )
    return {"local": str(folder / target)}
