"""What attention looks like: how spread, how much of it on one token, how near to Boolean.

In the limit of the theory attention becomes a Boolean matrix of low rank whose rows point at a
few leaders (Geshkovski et al., The emergence of clusters in self-attention dynamics, 2023,
theorem 2.1). `leaders` asks real heads how near they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tokensphere.sphere import Floats

ENERGY = 0.99
HALF = 0.5


def entropy(attention: ArrayLike, causal: bool) -> list[dict[str, float | int | str]]:
    """Measure how spread the attention of each head is, and how much of it position 0 has.

    Parameters
    ----------
    attention : array, shape (heads, queries, keys)
        Rows sum to 1.
    causal : bool

    Returns
    -------
    list of dict
        For each head `head` (from 0); `entropy`, the mean over queries of the Shannon entropy of
        their row, in nats, in [0, log n]; `entropy_share`, the mean over queries of their
        entropy over the largest that the mask allows, log(i + 1) or log n, in [0, 1]: 1 for
        content-free attention under any mask; `first_token_share`, the mean over queries of the
        weight on position 0; `first_token_expected`, the same of content-free attention;
        `reason`, why a value is NaN. Query 0 of a causal model, which has no choice, is in
        `entropy` and `first_token_share` alone.
    """
    weights = np.asarray(attention, dtype=np.float64)
    tokens = weights.shape[1]
    allowed = np.arange(1, tokens + 1) if causal else np.full(tokens, tokens)
    rows: list[dict[str, float | int | str]] = []
    for head, matrix in enumerate(weights):
        terms = np.zeros_like(matrix)
        np.log(matrix, out=terms, where=matrix > 0)
        # Clipped: rows of float32 add up to 1 but for rounding, which alone must not pass a bound.
        spread = np.clip(-(matrix * terms).sum(axis=1), 0.0, np.log(allowed))
        free = allowed > 1
        share = float(np.mean(spread[free] / np.log(allowed[free]))) if free.any() else np.nan
        rows.append(
            {
                "head": head,
                "entropy": float(spread.mean()) + 0.0,
                "entropy_share": share,
                "first_token_share": float(matrix[:, 0].mean()),
                "first_token_expected": float(np.mean(1 / allowed)),
                "reason": "" if free.any() else "one token: no query has a choice",
            }
        )
    return rows


def leaders(attention: ArrayLike, followers: float) -> list[dict[str, float | int]]:
    """Ask each head how near it is to the low-rank Boolean limit.

    Parameters
    ----------
    attention : array, shape (heads, queries, keys)
        Rows sum to 1.
    followers : float
        The share of queries that a leader needs.

    Returns
    -------
    list of dict
        For each head `head` (from 0); `rank_99`, the number of singular values, largest first,
        that hold 99% of the energy (the sum of their squares), in 1..n; `boolean_distance`, the
        root mean square over queries of the distance of their row to the nearest row with a
        single 1, in [0, 1): 0 for a Boolean matrix, near 1 for uniform attention; `leaders`, how
        many keys hold more than half of the row of at least that share of the queries.
    """
    weights = np.asarray(attention, dtype=np.float64)
    return [
        {
            "head": head,
            "rank_99": rank_at(matrix, ENERGY),
            "boolean_distance": boolean_distance(matrix),
            "leaders": int(np.count_nonzero((matrix > HALF).mean(axis=0) >= followers)),
        }
        for head, matrix in enumerate(weights)
    ]


def rank_at(matrix: Floats, energy: float) -> int:
    """Count the singular values, largest first, that hold a share of the energy of a matrix."""
    # Squares of singular values are enough here, and several times cheaper.
    squares = np.linalg.eigvalsh(matrix @ matrix.T)[::-1]
    held = np.cumsum(squares) / squares.sum()
    return int(np.searchsorted(held, energy - 1e-12)) + 1


def boolean_distance(matrix: Floats) -> float:
    """Return the root mean square distance of rows to the nearest row with a single 1.

    |a - e_m|^2 = |a|^2 - 2 a_m + 1 is least where a_m is largest.
    """
    squares = (matrix**2).sum(axis=1) - 2 * matrix.max(axis=1) + 1
    return float(np.sqrt(np.maximum(squares, 0.0).mean()))
