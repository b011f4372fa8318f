"""A folder of results made by hand: prompt, store, tables, a figure, and their records.

Quick enough for every kind of damage; the passes of the workflow show the same on real ones.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from tokensphere import hashes
from tokensphere.harness import records

STORE = "results/activations/tiny/trained/harbour.zarr.zip"
TABLE = "results/metrics/clusters/tiny/trained/harbour.csv"
OTHER = "results/metrics/energy/tiny/trained/harbour.csv"
FIGURE, SECOND = "results/figures/fig01_clusters", "results/figures/fig02_energy"
STAMP = "2026-01-01T00:00:00Z"


def code(*names: str) -> dict[str, str]:
    return {name: hashes.of_file(name) for name in names}


def write(
    rule: str,
    wildcards: dict[str, str],
    inputs: list[str],
    outputs: list[str],
    modules: list[str],
    run: dict[str, Any] | None = None,
    **parts: Any,
) -> Path:
    """Write the record of a job that has just made its outputs."""
    deterministic = {
        "rule": rule,
        **({"wildcards": wildcards} if wildcards else {}),
        **({"inputs": {"read": [records.fingerprint(path) for path in inputs]}} if inputs else {}),
        "code": code(*modules),
        **parts,
    }
    deterministic["input_id"] = records.input_id(deterministic)
    stores = [path for path in outputs if path.endswith(".zip")]
    deterministic["outputs"] = {
        f"made_{number}": records.fingerprint(path) for number, path in enumerate(outputs)
    }
    archives = {
        path: {"sha256": hashes.of_file(path), "members": dict(hashes.members(path))}
        for path in stores
    }
    record = {
        "schema": records.SCHEMA,
        "deterministic": deterministic,
        "run": {
            **{
                "started": STAMP,
                "seconds": 1.0,
                "cpu_seconds": 1.0,
                "peak_memory_mb": 1.0,
                "threads": 1,
            },
            **{"platform": "any", "python": "3"},
            **({"archives": archives} if archives else {}),
            **(run or {}),
        },
    }
    place = records.place(rule, wildcards)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(records.sealed(record))
    text(f"results/benchmarks/{place.relative_to(records.RECORDS).with_suffix('.tsv')}", "s\n")
    return place


def text(path: str, content: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(content)
    return path


def store(path: str, blocks: int = 2) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zarr.json", json.dumps({"layers": blocks}))
        archive.writestr("residual/zarr.json", "{}")
        for layer in range(blocks + 1):
            archive.writestr(f"residual/c/{layer}/0/0", bytes([layer]) * 400)
        archive.writestr("final_norm/c/0/0", b"norm" * 100)
    return path


def make() -> None:
    """Write everything into the working directory, which is the workflow's folder as well."""
    text("workflow/figures.yaml", "{}\n")
    for name in ("prompt", "extract", "clusters", "energy", "draw", "tokensphere/sphere"):
        text(f"scripts/{name}.py", f'"""{name}."""\n')
    text("texts/harbour.txt", "The harbour froze.\n")
    text("checkpoints/tiny/model.safetensors", "weights")
    text("checkpoints/tiny/config.json", "{}")
    run = {"model": "tiny", "weights": "trained", "prompt": "harbour"}
    prompt = text("results/prompts/harbour.txt", "The harbour froze.\n")
    write("prompt", {"prompt": "harbour"}, ["texts/harbour.txt"], [prompt], ["scripts/prompt.py"])
    files = ("config.json", "model.safetensors")
    write(
        "extract", run, [prompt], [store(STORE)], ["scripts/extract.py"],
        external={"checkpoint": {f: hashes.of_file(f"checkpoints/tiny/{f}") for f in files}},
        run={"places": {"checkpoint": {"source": {"local": "checkpoints/tiny"},
                                       "folder": "checkpoints/tiny"}}},
    )  # fmt: skip
    sphere = "scripts/tokensphere/sphere.py"
    text(TABLE, "layer,clusters\n0,3\n")
    write(
        "clusters", run, [STORE], [TABLE], ["scripts/clusters.py"],
        params={"constants": {"min_cluster_size": 2}},
    )  # fmt: skip
    text(OTHER, "layer,energy\n0,1.5\n")
    write("energy", run, [STORE], [OTHER], ["scripts/energy.py", sphere])
    for figure, table in ((FIGURE, TABLE), (SECOND, OTHER)):
        drawn = [text(f"{figure}.{kind}", f"{figure} {kind}") for kind in ("png", "svg", "csv")]
        write(
            Path(figure).name, {}, [table], drawn, ["scripts/draw.py"],
            params={"versions": {"pytest": "0"}, "figure": {"runs": [run]}},
        )  # fmt: skip
