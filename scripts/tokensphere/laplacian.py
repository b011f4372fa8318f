"""The normalised Laplacian of a weighted graph of tokens, and the clusters that its gaps count.

L = I - D^(-1/2) W D^(-1/2), D the row sums of W (von Luxburg, Statistics and Computing 17, 2007).
Its eigenvalues lie in [0, 2]; as many of them are 0 as the graph has components. Whether W keeps
its diagonal (each token's weight with itself) is a choice that moves every eigenvalue: it is
always named `self_loops`. scipy.sparse.csgraph, and so the published reading, drops it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokensphere.sphere import NO_DIRECTION, NO_PAIR, Floats

FEWEST_TO_SPLIT = 3  # a graph of two tokens has one gap: its count is 1, whatever they do
GAP_TIE = 1e-9  # gaps that differ by rounding alone: the smaller count wins


def normalised(weights: Floats, self_loops: bool) -> Floats:
    """Compute the normalised Laplacian of a symmetric graph.

    Parameters
    ----------
    weights : array, shape (tokens, tokens)
        Symmetric, not negative.
    self_loops : bool
        Whether the diagonal counts.

    Returns
    -------
    array, shape (tokens, tokens)
        A token without any weight is a component of its own: its row is zero.
    """
    graph = weights.copy()
    if not self_loops:
        np.fill_diagonal(graph, 0.0)
    degrees = graph.sum(axis=1)
    isolated = degrees == 0
    scale = 1 / np.sqrt(np.where(isolated, 1.0, degrees))
    laplacian: Floats = -graph * scale * scale[:, None]
    laplacian[np.diag_indices(len(graph))] += ~isolated
    return laplacian


def spectrum(gram: Floats, self_loops: bool) -> Floats:
    """Return the Laplacian eigenvalues of a Gram matrix clipped at 0, ascending.

    Parameters
    ----------
    gram : array, shape (tokens, tokens)
        Inner products, as `sphere.gram` returns them; negative ones weigh nothing.
    self_loops : bool
    """
    symmetric = (gram + gram.T) / 2
    laplacian = normalised(np.maximum(symmetric, 0.0), self_loops)
    return np.asarray(np.linalg.eigvalsh(laplacian), dtype=np.float64)


def gaps(eigenvalues: Floats) -> list[int]:
    """Return the cluster counts at the largest gap of a spectrum and at the second largest.

    Parameters
    ----------
    eigenvalues : array, shape (tokens,)
        Ascending, at least two.

    Returns
    -------
    list of int
        Counts k in 1..n-1, k = 1 for the gap between the first eigenvalue and the second; of
        equal gaps (within 1e-9) the smaller count stands first. One count where there is one gap.
    """
    sizes = np.diff(eigenvalues)
    counts = []
    for _ in range(min(2, len(sizes))):
        largest = int(np.argmax(sizes >= sizes.max() - GAP_TIE))
        counts.append(largest + 1)
        sizes[largest] = -np.inf
    return counts


def eigengap(gram: Floats, self_loops: bool = False) -> int:
    """Count clusters as the position of the largest gap of the Laplacian spectrum.

    k well separated clusters give k zeros, then a gap. The count fails, and is 1, once clusters
    share a cosine above 1 / (k + 1): the gap at k is (1 - c) / (1 + (k - 1) c) and the one at 1
    is k c / (1 + (k - 1) c).

    Parameters
    ----------
    gram : array, shape (tokens, tokens)
        Inner products of at least two tokens.
    self_loops : bool
        False as published.
    """
    return gaps(spectrum(gram, self_loops))[0]


def summarise(gram: Floats, labels: ArrayLike) -> dict[str, float | int | str]:
    """Count clusters of one layer by the eigengap, of the whole cloud and within its clusters.

    Parameters
    ----------
    gram : array, shape (tokens, tokens)
        Inner products, as `sphere.gram` returns them.
    labels : array of int, shape (tokens,)
        HDBSCAN clusters, -1 for a token in none.

    Returns
    -------
    dict
        `n_tokens`; `eigengap`, the count as published (self loops dropped); `gap`, the size of
        that gap; `second_gap`, the count at the second largest gap; `eigengap_kept`, the count
        with self loops kept; `within`, the mean eigengap count over the HDBSCAN clusters of at
        least three tokens, each on its own Gram matrix (1: none falls apart further);
        `within_clusters`, how many these are; `reason`, why a value is NaN.
    """
    row: dict[str, float | int | str] = dict.fromkeys(
        ("eigengap", "gap", "second_gap", "eigengap_kept", "within"), float("nan")
    )
    row = {"n_tokens": len(gram), **row, "within_clusters": 0, "reason": ""}
    if len(gram) < 2:
        return row | {"reason": NO_PAIR}
    if np.isnan(gram).any():
        return row | {"reason": NO_DIRECTION}
    eigenvalues = spectrum(gram, self_loops=False)
    counts = gaps(eigenvalues)
    inside = [
        eigengap(gram[np.ix_(members, members)])
        for members in members_of(labels)
        if len(members) >= FEWEST_TO_SPLIT
    ]
    row |= {
        "eigengap": counts[0],
        "gap": float(eigenvalues[counts[0]] - eigenvalues[counts[0] - 1]),
        "eigengap_kept": eigengap(gram, self_loops=True),
        "within_clusters": len(inside),
    }
    reasons = []
    if len(counts) > 1:
        row["second_gap"] = counts[1]
    else:
        reasons.append("two tokens: there is one gap")
    if inside:
        row["within"] = float(np.mean(inside))
    else:
        reasons.append(f"no cluster has {FEWEST_TO_SPLIT} tokens")
    return row | {"reason": "; ".join(reasons)}


def members_of(labels: ArrayLike) -> list[NDArray[np.intp]]:
    """List the members of each cluster, by its label; unclustered tokens are in none."""
    every = np.asarray(labels)
    return [np.flatnonzero(every == label) for label in np.unique(every[every >= 0])]
