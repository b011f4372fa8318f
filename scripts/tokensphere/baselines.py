"""Random baselines: weights drawn to compare a trained model with, kept in a cache.

Every tensor is drawn in float32 by NumPy from a generator seeded by (scheme, seed, tensor
name): no draw depends on another, on the number of threads, or on the kind of processor.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tokensphere import hashes, models, sources, weight_cache
from tokensphere.harness.errors import UserError

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


def orthogonal(trained: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Draw a matrix whose singular values are all 1, uniformly (Haar).

    The Q of a Gaussian matrix, the signs of R's diagonal taken out, in float64. A tensor with
    more than two axes is a matrix of its first axis against all others.
    """
    rows, columns = trained.shape[0], trained[0].size
    gaussian = random.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(gaussian)
    q = q * np.sign(np.diagonal(r))
    drawn = q if rows >= columns else q.T
    return np.ascontiguousarray(drawn.reshape(trained.shape), dtype=np.float32)


def small_gaussian(
    trained: NDArray[np.float32], random: np.random.Generator
) -> NDArray[np.float32]:
    """Draw from N(0, 0.02), the embeddings of the orthogonal scheme."""
    return np.float32(0.02) * random.standard_normal(trained.shape, dtype=np.float32)


# Scheme -> how it draws matrices, and embeddings.
SCHEMES: dict[str, tuple[Draw, Draw]] = {
    "norm_matched": (norm_matched, norm_matched),
    "orthogonal": (orthogonal, small_gaussian),
}


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
    draw_matrix, draw_embedding = SCHEMES[scheme]
    norms = {
        name for name, module in model.named_modules() if "norm" in type(module).__name__.lower()
    }
    embeddings = {
        name for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding)
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
                draw = draw_embedding if owner in embeddings else draw_matrix
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

    def write(part: Path) -> dict[str, Any]:
        model = models.load(folder, "cpu", where)
        tensors = randomise(model, scheme, seed)
        model.save_pretrained(part)
        for path in sources.tokenizer_files(folder):
            shutil.copy(path, part / path.name)
        return {"source": source, "scheme": scheme, "seed": seed, "tensors": tensors}

    code = hashes.of_file(__file__)
    return weight_cache.ensure(cache, [source, scheme, seed, code], write, known)
