"""Random baselines: weights drawn to compare a trained model with, kept in a cache.

Every tensor is drawn in float32 by NumPy from a generator seeded by (scheme, seed, tensor
name): no draw depends on another, on the number of threads, or on the kind of processor. The
cache holds ordinary checkpoint folders, named by what decides their content; it can be deleted
at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray

from tokensphere import hashes, models, sources
from tokensphere.harness.errors import UserError

MANIFEST = "manifest.json"

Draw = Callable[[NDArray[np.float32], np.random.Generator], NDArray[np.float32]]


def generator(scheme: str, seed: int, tensor: str) -> np.random.Generator:
    """Return the random generator of one tensor."""
    digest = hashlib.sha256(f"{scheme}.{seed}:{tensor}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def frobenius_norm(tensor: NDArray[np.float32]) -> float:
    """Return the Frobenius norm, summed in float64."""
    return float(np.sqrt(np.sum(np.square(tensor, dtype=np.float64))))


def norm_matched(trained: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Draw a Gaussian tensor with the Frobenius norm of the trained one.

    Its operator norm is about half the trained one: a trained matrix has a few directions far
    above the rest, a Gaussian one has none.
    """
    drawn = random.standard_normal(trained.shape, dtype=np.float32)
    return (drawn * np.float64(frobenius_norm(trained) / frobenius_norm(drawn))).astype(np.float32)


SCHEMES: dict[str, Draw] = {"norm_matched": norm_matched}


def randomise(model: Any, scheme: str, seed: int) -> list[dict[str, Any]]:
    """Replace the weights of a model by random ones, in place.

    Matrices and embeddings are drawn by the scheme, each tensor as the checkpoint stores it;
    norms become gain 1 and bias 0, other biases 0.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        With the trained weights.
    scheme : str
        A key of `SCHEMES`.
    seed : int

    Returns
    -------
    list of dict
        One a tensor: `tensor`, `trained_norm`, `random_norm` (Frobenius).

    Raises
    ------
    RuntimeError
        If a drawn tensor equals the trained one.
    """
    draw = SCHEMES[scheme]
    norms = {
        name for name, module in model.named_modules() if "norm" in type(module).__name__.lower()
    }
    report = []
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            owner, _, kind = name.rpartition(".")
            trained = parameter.detach().cpu().numpy()
            if owner in norms and kind == "weight":
                drawn = np.ones_like(trained)
            elif owner in norms or trained.ndim < 2:
                drawn = np.zeros_like(trained)
            else:
                drawn = draw(trained, generator(scheme, seed, name))
                if np.array_equal(drawn, trained) and trained.any():
                    raise RuntimeError(f"{scheme}.{seed}: {name} is still the trained tensor")
            report.append(
                {
                    "tensor": name,
                    "trained_norm": frobenius_norm(trained),
                    "random_norm": frobenius_norm(drawn),
                }
            )
            parameter.copy_(torch.from_numpy(drawn))
    return report


def ensure(
    cache: Path,
    source: str,
    folder: Path,
    scheme: str,
    seed: int,
    *,
    known: hashes.Cache,
    where: str,
) -> Path:
    """Return the checkpoint folder of a random weight set, drawing it if it is not there yet.

    Whichever process needs it first draws it under a lock, in a folder of a unique name that is
    moved into place once it is complete; the others wait. A cached folder whose files are not
    those of its manifest is drawn again.

    Parameters
    ----------
    cache : Path
        The folder of all cached weight sets.
    source : str
        Identity of the trained checkpoint (`sources.identify`).
    folder : Path
        The trained checkpoint.
    scheme, seed : str, int
    known : hashes.Cache
        Hashes of files that did not change since they were last read.
    where : str
        How errors call the model.
    """
    if scheme not in SCHEMES:
        raise UserError(
            where, f"{scheme!r} is no random scheme", f"use one of {', '.join(SCHEMES)}"
        )
    code = hashes.of_file(__file__)
    place = cache / hashes.of_value([source, scheme, seed, code])
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{place.name}.lock"):
        _remove_dead_parts(cache, place.name)
        if not is_complete(place, known):
            shutil.rmtree(place, ignore_errors=True)
            part = cache / f".{place.name}.{secrets.token_hex(4)}.part"
            _write(part, source, folder, scheme, seed, where)
            os.replace(part, place)
    return place


def _remove_dead_parts(cache: Path, name: str) -> None:
    # The lock is ours, so whoever began one of these parts is gone.
    for part in cache.glob(f".{name}.*.part"):
        shutil.rmtree(part, ignore_errors=True)


def is_complete(place: Path, known: hashes.Cache) -> bool:
    """Say whether a cached weight set holds exactly the files of its manifest."""
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        return all(known.of_file(place / name) == sha for name, sha in manifest["files"].items())
    except (OSError, ValueError, KeyError):
        return False


def _write(part: Path, source: str, folder: Path, scheme: str, seed: int, where: str) -> None:
    model = models.load(folder, "cpu", where)
    tensors = randomise(model, scheme, seed)
    model.save_pretrained(part)
    for path in sources.tokenizer_files(folder):
        shutil.copy(path, part / path.name)
    files = {path.name: hashes.of_file(path) for path in sorted(part.iterdir())}
    manifest = {
        "source": source,
        "scheme": scheme,
        "seed": seed,
        "files": files,
        "tensors": tensors,
    }
    (part / MANIFEST).write_text(hashes.to_json(manifest), encoding="utf-8")
