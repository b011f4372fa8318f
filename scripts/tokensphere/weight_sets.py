"""Weight sets: where the weights of a run lie, as a checkpoint folder that transformers loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokensphere import baselines, dequantised, hashes, shapes, sources, weight_cache
from tokensphere.harness.errors import UserError
from tokensphere.harness.job import Job

TRAINED = "trained"


class WeightSet(NamedTuple):
    """The weights of a run, and where they come from.

    Attributes
    ----------
    folder : Path
        A checkpoint folder that transformers loads.
    facts : dict
        What a store says of its weights: `weights`, `weights_are`, `scheme`, `seed` of a random
        scheme, `source`, `revision`, `files_sha256`.
    files : dict
        Of the checkpoint that the model comes from: file name -> sha256 of weights, configuration
        and tokenizer as they are on this disk; empty where an architecture has none.
    place : dict
        `source`, and the `folder` in which these files lie.
    """

    folder: Path
    facts: dict[str, Any]
    files: dict[str, str]
    place: dict[str, Any]


def for_job(run: Job) -> WeightSet:
    """Find the weights that a job's wildcards name, or make them, and tell its record of them."""
    found = find(
        **run.params.where,
        revision=run.params.source,
        weights=run.wildcards.weights,
        where=run.name,
    )
    run.facts["weights_are"] = found.facts["weights_are"]
    if "seed" in found.facts:
        run.seeds["weights"] = found.facts["seed"]
    run.external["checkpoint"], run.places["checkpoint"] = found.files, found.place
    return found


def find(
    source: Mapping[str, Any],
    revision: str,
    weights: str,
    cache: str | Path,
    where: str,
    cache_limit_gb: float | None = None,
) -> WeightSet:
    """Find the checkpoint folder of trained weights, or make it: dequantised, or drawn at random.

    Parameters
    ----------
    source : mapping
        As `sources.resolve` returns it.
    revision : str
        The identity that `sources.look_up` found when the run was planned.
    weights : str
        `trained` or SCHEME.SEED.
    cache : str or Path
        The folder of the cache, where weights are put that no checkpoint holds.
    where : str
        How errors call the run.
    cache_limit_gb : float, optional
        What was not used for longest is deleted from the cache so that it holds no more.

    Raises
    ------
    UserError
        If the source is not there, or changed since the run was planned.
    """
    cache = Path(cache)
    known = hashes.Cache(cache / "hashes.json")
    checkpoint = sources.look_up(source, where, known)
    if checkpoint.identity != revision:
        raise UserError(
            where,
            f"{checkpoint.folder or source['tokenizer']} changed since the run was planned",
            "run the workflow again",
        )
    sets = cache / "weights"
    folder = checkpoint.folder or shapes.ensure(sets, revision, source, known, where)
    if folder.suffix == sources.GGUF:
        folder = dequantised.ensure(sets, revision, folder, known)
    scheme, _, seed = weights.partition(".")
    if scheme != TRAINED:
        folder = baselines.ensure(
            sets, revision, folder, scheme, int(seed), known=known, where=where
        )
    if cache_limit_gb is not None and sets.is_dir():
        weight_cache.make_room(sets, cache_limit_gb)
    facts = {
        "weights": weights,
        "weights_are": _called(source, random=bool(seed)),
        "scheme": scheme,
        **({"seed": int(seed)} if seed else {}),
        "source": sources.describe(source),
        "revision": revision,
        "files_sha256": sources.file_hashes(folder, known),
    }
    files, place = sources.origin(checkpoint, known)
    known.save()
    return WeightSet(folder, facts, files, {"source": dict(source), "folder": str(place)})


def _called(source: Mapping[str, Any], *, random: bool) -> str:
    """Say what weights are; random ones that are not drawn from trained ones say from which."""
    if not random:
        return sources.honest_weights(source)
    return f"random, drawn from {source['stand_in']}" if "stand_in" in source else "random"
