"""The object that Snakemake injects into a script, made without a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from snakemake import iocontainers

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

Names = TypeVar("Names", bound=iocontainers.Namedlist)


def _named(kind: type[Names], entries: Mapping[str, Any], *, files: bool = False) -> Names:
    """Build one of Snakemake's lists; among files, a list is many files under one name."""
    made = kind()
    for name, entry in entries.items():
        start = len(made)
        if files and isinstance(entry, list):
            made.extend(map(str, entry))
            made._set_name(name, start, end=len(made))
        else:
            made.append(str(entry) if files else entry)
            made._add_name(name)
    return made


def snakemake_object(
    rule: str,
    *,
    wildcards: Mapping[str, str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    threads: int = 1,
) -> iocontainers.Snakemake:
    """Build what a script of this workflow finds under the name `snakemake`."""
    return iocontainers.Snakemake(
        _named(iocontainers.InputFiles, inputs or {}, files=True),
        _named(iocontainers.OutputFiles, outputs or {}, files=True),
        _named(iocontainers.Params, params or {}),
        _named(iocontainers.Wildcards, wildcards or {}),
        threads,
        _named(iocontainers.ResourceList, resources or {}),
        _named(iocontainers.Log, {"log": f"results/logs/{rule}.log"}, files=True),
        {},
        rule,
        None,
        str(SCRIPTS),
    )
