"""Effective rank: how many directions a cloud of tokens spreads over.

The exponential of the Shannon entropy of the normalised singular values (Roy and Vetterli,
EUSIPCO 2007). Published: of the RAW residual stream, by sigma. A few tokens of huge norm make
that small while directions hardly change, so the same is given on the sphere, and by sigma^2.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokensphere.sphere import NO_DIRECTION

Floats = NDArray[np.float64]

NEGLIGIBLE = 1e-10  # singular values up to this are dropped, as published
GAUSSIAN_SEED = 0


def singular_values(states: ArrayLike) -> Floats:
    """Return the singular values of a matrix of tokens, shape (min(tokens, width),), descending."""
    return np.linalg.svd(np.asarray(states, dtype=np.float64), compute_uv=False)


def effective_rank(values: Floats, power: int = 1) -> float:
    """Compute the exponential of the entropy of sigma^power / sum(sigma^power).

    Parameters
    ----------
    values : array
        Singular values.
    power : int
        1 as published, 2 for the share of variance.

    Returns
    -------
    float
        From 1 (one direction) to the number of values; NaN if none is above 1e-10.
    """
    kept = values[values > NEGLIGIBLE]
    if kept.size == 0:
        return float("nan")
    weights = kept**power / np.sum(kept**power)
    weights = weights[weights > 0]  # a square may underflow
    return float(np.exp(-np.sum(weights * np.log(weights))))


def norm_participation(states: ArrayLike) -> float:
    """Compute (sum |x|^2)^2 / (n sum |x|^4): which share of tokens carries the squared norm.

    Returns
    -------
    float
        1 where all norms are equal, 1/n where one token has all; NaN where all are zero.
    """
    squares = np.square(np.asarray(states, dtype=np.float64)).sum(axis=1)
    if not squares.any():
        return float("nan")
    squares /= squares.max()
    return float(squares.sum() ** 2 / (len(squares) * np.square(squares).sum()))


@cache
def gaussian_rank(tokens: int, width: int) -> float:
    """Return the effective rank of a standard Gaussian cloud: rank is bounded by the tokens.

    One draw of a fixed seed; at 512 tokens another draw differs by less than a unit.
    """
    cloud = np.random.default_rng(GAUSSIAN_SEED).standard_normal((tokens, width))
    return effective_rank(singular_values(cloud))


def summarise(states: ArrayLike, points: ArrayLike) -> dict[str, float | bool | str]:
    """Summarise how many directions one layer spreads over.

    Parameters
    ----------
    states : array, shape (tokens, width)
        The raw residual stream.
    points : array, shape (tokens, width)
        The same tokens on the sphere, as `sphere.project` returns them.

    Returns
    -------
    dict
        `n_tokens`; effective ranks `raw` (published), `sphere`, `raw_squared`, `sphere_squared`;
        `norm_participation` in [1/n, 1]; `raw_share` and `sphere_share` of min(n, d), in [0, 1];
        `raw_gaussian` and `gaussian_share`, those of a Gaussian cloud of the same shape; the
        gates `gate_raw_3`, `gate_raw_2`, `gate_sphere_3` (open where the rank is at least so
        much); `reason`, why a value is NaN.
    """
    vectors = np.asarray(states, dtype=np.float64)
    directions = np.asarray(points, dtype=np.float64)
    raw_values = singular_values(vectors)
    directed = not np.isnan(directions).any()
    sphere_values = singular_values(directions) if directed else np.zeros(0)
    raw, sphere = effective_rank(raw_values), effective_rank(sphere_values)
    largest = min(vectors.shape)
    reason = "" if directed else NO_DIRECTION
    gaussian = gaussian_rank(*vectors.shape)
    return {
        "n_tokens": len(vectors),
        "raw": raw,
        "sphere": sphere,
        "raw_squared": effective_rank(raw_values, 2),
        "sphere_squared": effective_rank(sphere_values, 2),
        "norm_participation": norm_participation(vectors),
        "raw_share": raw / largest,
        "sphere_share": sphere / largest,
        "raw_gaussian": gaussian,
        "gaussian_share": gaussian / largest,
        "gate_raw_3": raw >= 3,
        "gate_raw_2": raw >= 2,
        "gate_sphere_3": sphere >= 3,
        "reason": reason,
    }
