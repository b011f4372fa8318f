"""Tokens as points on the unit sphere, and the inner products between them.

A token's residual-stream vector x_i becomes the point s_i = x_i / |x_i|: plain L2, no mean
removed, no gain. The Gram matrix G = S S^T holds every inner product <s_i, s_j>; "pairs" are
i < j, each counted once, the diagonal never.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

NO_DIRECTION = "a token's vector is zero: it has no direction"
NO_PAIR = "fewer than two tokens: there is no pair"
NO_DISTINCT_PAIR = "no pair of distinct token ids"


def project(states: ArrayLike) -> Floats:
    """Project residual-stream vectors to the unit sphere.

    Parameters
    ----------
    states : array, shape (tokens, width)
        One vector a token, any scale.

    Returns
    -------
    array, shape (tokens, width), float64
        Rows of norm 1. A zero vector has no direction: its row is NaN.

    Raises
    ------
    ValueError
        If `states` is not a matrix.
    """
    vectors: Floats = np.asarray(states, dtype=np.float64)
    if vectors.ndim != 2:
        raise ValueError(f"states must have shape (tokens, width), not {vectors.shape}")
    # Dividing by the largest entry first keeps the squares of huge and tiny vectors in range.
    scale = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        vectors = vectors / scale
        points: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return points


def gram(points: Floats) -> Floats:
    """Compute the Gram matrix of points on the sphere.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `project` returns them.

    Returns
    -------
    array, shape (tokens, tokens), float64
        <s_i, s_j>, clipped to [-1, 1]: rounding leaves values such as 1 + 1e-16.
    """
    clipped: Floats = np.clip(points @ points.T, -1.0, 1.0)
    return clipped


def pairs(points: Floats, token_ids: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    """List the inner product of every pair i < j, and whether its token ids differ.

    Repeated tokens coincide at layer 0 where no position is added, and make a floor under every
    statistic of pairs; the distinct pairs are free of it.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `project` returns them.
    token_ids : array of int, shape (tokens,)

    Returns
    -------
    values : array, shape (tokens (tokens - 1) / 2,), float64
        NaN where a token of the pair has no direction.
    distinct : array of bool, same shape
    """
    ids = np.asarray(token_ids)
    if ids.shape != (len(points),):
        raise ValueError(f"{len(points)} points need as many token ids, not {ids.shape}")
    first, second = np.triu_indices(len(points), k=1)
    return gram(points)[first, second], ids[first] != ids[second]


def inner_products(
    points: Floats, token_ids: ArrayLike, near_one: float = 0.9
) -> dict[str, float | int | str]:
    """Summarise the inner products of one layer.

    Published reading: mean, standard deviation and mass near 1 over all pairs. Controlled
    reading: mean and mass near 1 over pairs of distinct token ids.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `project` returns them.
    token_ids : array of int, shape (tokens,)
    near_one : float
        A pair counts as near 1 if its inner product is strictly greater.

    Returns
    -------
    dict
        `n_tokens`; `mean` in [-1, 1]; `sd` >= 0 (ddof 0); `mass_near_one`, a share in [0, 1];
        `mean_distinct` and `mass_near_one_distinct`, likewise; `reason`, why a value is NaN.
    """
    values, distinct = pairs(points, token_ids)
    undefined = float("nan")
    row: dict[str, float | int | str] = {
        "n_tokens": len(points),
        "mean": undefined,
        "sd": undefined,
        "mass_near_one": undefined,
        "mean_distinct": undefined,
        "mass_near_one_distinct": undefined,
        "reason": "",
    }
    if values.size == 0:
        row["reason"] = NO_PAIR
    elif np.isnan(values).any():
        row["reason"] = NO_DIRECTION
    else:
        row["mean"] = float(values.mean())
        row["sd"] = float(values.std())
        row["mass_near_one"] = float((values > near_one).mean())
        if distinct.any():
            row["mean_distinct"] = float(values[distinct].mean())
            row["mass_near_one_distinct"] = float((values[distinct] > near_one).mean())
        else:
            row["reason"] = NO_DISTINCT_PAIR
    return row


def inner_product_histogram(
    points: Floats, token_ids: ArrayLike, bins: int = 50
) -> list[dict[str, float | int]]:
    """Count the inner products of one layer in equal bins on [-1, 1].

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `project` returns them.
    token_ids : array of int, shape (tokens,)
    bins : int
        Bins are closed on the left; the last one also holds 1.

    Returns
    -------
    list of dict
        One a bin: `bin` (from 0), `bin_left`, `bin_right`, `count` over all pairs,
        `count_distinct` over pairs of distinct token ids. A pair with a token that has no
        direction is in no bin.
    """
    values, distinct = pairs(points, token_ids)
    directed = ~np.isnan(values)
    edges = np.linspace(-1.0, 1.0, bins + 1)
    every, _ = np.histogram(values[directed], bins=edges)
    unlike, _ = np.histogram(values[directed & distinct], bins=edges)
    return [
        {
            "bin": index,
            "bin_left": float(edges[index]),
            "bin_right": float(edges[index + 1]),
            "count": int(every[index]),
            "count_distinct": int(unlike[index]),
        }
        for index in range(bins)
    ]
