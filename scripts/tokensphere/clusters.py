"""HDBSCAN clusters of tokens by cosine distance."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from tokensphere import sphere

Labels = NDArray[np.int64]

# The package refuses fewer than it needs for a tree; two tokens are no cluster in any case.
FEWEST_TOKENS = 3

NEVER_BOTH = "no two tokens are clustered in both layers"


def cosine_distances(points: sphere.Floats) -> sphere.Floats:
    """Compute 1 - <s_i, s_j> in float64, symmetric, in [0, 2], zero on the diagonal.

    In float32 the difference cancels where tokens nearly coincide, and labels move.
    """
    distances = 1.0 - sphere.gram(points)
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0.0)
    return distances


def hdbscan_labels(points: sphere.Floats, min_cluster_size: int = 2) -> Labels:
    """Cluster tokens with HDBSCAN on their cosine distances, defaults beside the cluster size.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.
    min_cluster_size : int
        2 as published.

    Returns
    -------
    array of int, shape (tokens,)
        The cluster of each token from 0, or -1 for a token in none. A token without direction
        is in none, and no other token's label depends on it.
    """
    import hdbscan

    labels: Labels = np.full(len(points), -1, dtype=np.int64)
    directed = np.flatnonzero(~np.isnan(points).any(axis=1))
    if len(directed) >= FEWEST_TOKENS:
        model = hdbscan.HDBSCAN(min_cluster_size=min_cluster_size, metric="precomputed")
        # Core distances repeat, so equal merge heights are the rule, and hdbscan sorts them with
        # NumPy's default sort, whose order of ties changes with the processor, and labels with
        # it. A stable sort makes them the same everywhere.
        with patch.object(np, "argsort", partial(np.argsort, kind="stable")):
            labels[directed] = model.fit_predict(cosine_distances(points[directed]))
    return labels


def summarise(labels: Labels) -> dict[str, float | int]:
    """Summarise the labels of one layer.

    Returns
    -------
    dict
        `n_tokens`; `count` of clusters; `membership`, the share of tokens in one, in [0, 1];
        `largest`, the tokens of the largest one; `count_per_100_tokens`.
    """
    clustered = labels[labels >= 0]
    sizes = np.bincount(clustered) if clustered.size else np.zeros(0, dtype=int)
    count = int(np.count_nonzero(sizes))
    return {
        "n_tokens": labels.size,
        "count": count,
        "membership": clustered.size / labels.size,
        "largest": int(sizes.max(initial=0)),
        "count_per_100_tokens": 100 * count / labels.size,
    }


def agreement(before: Labels, labels: Labels) -> dict[str, float | str]:
    """Compare the clusters of two layers by the adjusted Rand index (Hubert and Arabie, 1985).

    Parameters
    ----------
    before, labels : array of int, shape (tokens,)
        The same tokens' clusters in the two layers, -1 for a token in none.

    Returns
    -------
    dict
        `label_ari`, the unclustered tokens counted as one group; `label_ari_clustered`, over the
        tokens clustered in both layers, so that nothing is won by agreeing on who is
        unclustered. 1 for equal partitions, about 0 for independent ones, negative below chance.
        `reason`, why a value is NaN: there are no two tokens to compare.
    """
    both = (before >= 0) & (labels >= 0)
    return {
        "label_ari": _adjusted_rand(before, labels),
        "label_ari_clustered": _adjusted_rand(before[both], labels[both]),
        "reason": "" if np.count_nonzero(both) > 1 else NEVER_BOTH,
    }


def _adjusted_rand(one: Labels, two: Labels) -> float:
    """Return the adjusted Rand index of two partitions, NaN of fewer than two tokens.

    scikit-learn has it, too; but importing that takes longer than the whole measure.
    """
    tokens = one.size
    if tokens < 2:
        return float("nan")

    def together(sizes: NDArray[np.int64]) -> int:
        """Count ordered pairs of tokens of one group, from the sizes of the groups."""
        return int((sizes * (sizes - 1)).sum())

    first, second = (np.unique(groups, return_inverse=True)[1] for groups in (one, two))
    table = np.zeros((first.max() + 1, second.max() + 1), dtype=np.int64)
    np.add.at(table, (first, second), 1)
    of_one, of_two = together(table.sum(axis=1)), together(table.sum(axis=0))
    # All counts are integers, so that the one division is the only rounding.
    pairs = tokens * (tokens - 1)
    above_chance = pairs * together(table) - of_one * of_two
    largest = pairs * (of_one + of_two) - 2 * of_one * of_two
    # All tokens in one group in both, or each alone: the same partition, and chance has no say.
    return 2 * above_chance / largest if largest else 1.0


def prefix_lengths(tokens: int) -> list[int]:
    """List the lengths at which clusters are counted: 64, 128, 256, ... and all tokens."""
    lengths = []
    length = 64
    while length < tokens:
        lengths.append(length)
        length *= 2
    return [*lengths, tokens]
