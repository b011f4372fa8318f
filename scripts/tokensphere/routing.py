"""How well attention connects its tokens: the Fiedler value of each head, as published and posed.

Published: clip attention from below at a floor, scale it towards doubly stochastic by Sinkhorn's
sweeps, and take the second-smallest eigenvalue of the normalised Laplacian of (P + P^T) / 2, self
loops dropped. A causal matrix has no doubly stochastic scaling but the identity: without a floor
the value counts the sweeps, with one it is a function of the floor and of n. So two readings
that need no Sinkhorn stand beside it, `symmetrised` and `bipartite`, and each of the three
beside its value for content-free attention under the same mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

from tokensphere import laplacian
from tokensphere.masks import content_free
from tokensphere.sphere import NO_PAIR, Floats

Row = dict[str, float | int | bool | str]
Reader = Callable[..., list[Row]]
Witness = tuple[int, int, int]  # head, row, column

FLOOR, TOLERANCE, MOST = 1e-12, 1e-6, 100  # of Sinkhorn, as published
FLOORS = (1e-16, FLOOR, 1e-8)
ROW_SUM = 1e-4  # a softmax in float32 sums to 1 within about 1e-6

STRETCH = 10  # sweeps of one head before the next head's turn

# Lanczos beats a decomposition above about so many tokens. It looks at its residual every few
# steps; an eigenvalue is wrong by about the residual's square over the gap: 1e-14 / 1e-3.
FEW_TOKENS = 256
MOST_STEPS, LOOK_EVERY, RESIDUAL = 150, 6, 1e-7
CERTAIN = 1e-11  # far above what rounding does to a Cholesky factor of norm 1: n * 1e-16


def check(attention: ArrayLike, causal: bool, row_sum: float = ROW_SUM) -> Floats:
    """Return attention in float64 once every row of every head is a distribution.

    Parameters
    ----------
    attention : array, shape (heads, tokens, tokens)
        Queries in rows.
    causal : bool
        Whether queries must not see later keys.
    row_sum : float
        By how much a row may miss 1: more, where a model ran in 16 bits.

    Raises
    ------
    ValueError
        Naming the first head and row that are not finite, negative somewhere, do not sum to 1
        within `row_sum`, or, where causal, are not exactly 0 above the diagonal.
    """
    weights: Floats = np.asarray(attention, dtype=np.float64)
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
        raise ValueError(f"attention must have shape (heads, tokens, tokens), not {weights.shape}")
    sums = weights.sum(axis=2)
    faults = {
        "is not finite": ~np.isfinite(sums),
        "has a negative weight": weights.min(axis=2) < 0,
        "does not sum to 1": ~(np.abs(sums - 1) <= row_sum),
    }
    if causal:
        faults["attends to a later token"] = np.triu(weights != 0, 1).any(axis=2)
    for fault, where in faults.items():
        for head, row in np.argwhere(where):
            raise ValueError(f"head {head}, row {row} {fault}")
    return weights


# --- Sinkhorn


@dataclass(frozen=True)
class Scaling:
    """What Sinkhorn's sweeps made of the heads of a layer.

    P_ij = rows_i clipped_ij columns_j, columns of sum 1. `residual` is a head's largest |row sum
    - 1|; `converged` says whether no entry of that head changed by the tolerance or more in the
    last sweep (the layer stops for its slowest head, so others may have converged before).
    """

    clipped: Floats
    rows: Floats
    columns: Floats
    sweeps: int
    residual: Floats
    converged: NDArray[np.bool_]

    def matrix(self, head: int) -> Floats:
        """Return P of one head, shape (tokens, tokens)."""
        matrix: Floats = np.multiply.outer(self.rows[head], self.columns[head])
        matrix *= self.clipped[head]
        return matrix

    def graph(self, head: int) -> Floats:
        """Return (P + P^T) / 2 of one head."""
        matrix = self.matrix(head)
        return (matrix + matrix.T) / 2


def sinkhorn(
    attention: Floats, floor: float, *, tolerance: float = TOLERANCE, most: int = MOST
) -> Scaling:
    """Scale the heads of a layer towards doubly stochastic matrices, as published.

    A sweep normalises rows, then columns, of all heads; sweeps end once no entry of any head
    changes by the tolerance or more. Vectors are scaled here, not the matrix, and one entry that
    still moves is proof enough that the sweeps go on: all entries are compared only when the
    last such witness has come to rest.

    Parameters
    ----------
    attention : array, shape (heads, tokens, tokens)
        Not negative.
    floor : float
        Smaller entries are raised to it; above 0, without which scaling vectors may overflow.
    tolerance : float
        0: exactly `most` sweeps.
    most : int
        Sweeps at most, at least one.
    """
    if floor <= 0 or most < 1:
        raise ValueError(f"Sinkhorn needs a floor above 0 and a sweep, not {floor} and {most}")
    clipped = np.maximum(attention, floor)
    sweeps, witness = 0, (0, 0, 0)
    for before, after in islice(_sweeps(clipped, floor), most):
        sweeps += 1
        found = _witness(clipped, before, after, tolerance, witness)
        if found is None:
            break
        witness = found
    rows, columns = after
    sums = (clipped @ columns[..., None])[..., 0]
    return Scaling(
        clipped,
        rows,
        columns,
        sweeps,
        residual=np.abs(rows * sums - 1).max(axis=1),
        converged=np.array(
            [
                _change(matrix, before[:, head], after[:, head]).max() < tolerance
                for head, matrix in enumerate(clipped)
            ]
        ),
    )


def _sweeps(clipped: Floats, floor: float) -> Iterator[tuple[Floats, Floats]]:
    """Yield the scaling vectors (rows, columns; of all heads) before and after each sweep.

    A head advances several sweeps at a time, while its matrix is in the processor's cache.
    """
    triangular = not np.triu(clipped > floor, 1).any()
    vectors = np.ones((STRETCH + 1, 2, *clipped.shape[:2]))
    while True:
        for head, matrix in enumerate(clipped):
            for before, after in pairwise(vectors[:, :, head]):
                after[0] = 1 / _times(matrix, before[1], floor, triangular)
                after[1] = 1 / _transposed_times(matrix, after[0], floor, triangular)
        yield from pairwise(vectors)
        vectors[0] = vectors[-1]


def _times(matrix: Floats, vector: Floats, floor: float, triangular: bool) -> Floats:
    """Multiply a clipped matrix by a vector; above the diagonal it may be all floor."""
    if not triangular:
        return matrix @ vector
    above = np.append(vector[:0:-1].cumsum()[::-1], 0.0)
    return np.asarray(blas.dtrmv(matrix.T, vector, trans=1)) + floor * above


def _transposed_times(matrix: Floats, vector: Floats, floor: float, triangular: bool) -> Floats:
    if not triangular:
        return vector @ matrix
    below = np.append(0.0, vector[:-1].cumsum())
    return np.asarray(blas.dtrmv(matrix.T, vector)) + floor * below


def _change(clipped: Floats, before: Floats, after: Floats) -> Floats:
    """Compute how much each entry of one head changed in a sweep."""
    change: Floats = clipped * (np.multiply.outer(*after) - np.multiply.outer(*before))
    return np.abs(change)


def _witness(
    clipped: Floats, before: Floats, after: Floats, tolerance: float, last: Witness
) -> Witness | None:
    """Find an entry that changed by the tolerance or more, the last witness first."""
    heads, tokens, _ = clipped.shape
    head, row, column = last
    moved = [rows[head, row] * columns[head, column] for rows, columns in (before, after)]
    if abs(clipped[last] * (moved[1] - moved[0])) >= tolerance:
        return last
    for other in np.roll(np.arange(heads), -head):
        change = _change(clipped[other], before[:, other], after[:, other])
        if change.max() >= tolerance:
            return (int(other), *divmod(int(change.argmax()), tokens))
    return None


def sinkhorn_iterate(attention: ArrayLike, sweeps: int) -> Floats:
    """Apply exactly so many sweeps, rows then columns, to matrices that may hold exact zeros.

    Without a floor the scaling vectors of a causal matrix diverge, the matrix does not.

    Parameters
    ----------
    attention : array, shape (..., tokens, tokens)
        No row and no column of zeros.
    sweeps : int

    Returns
    -------
    array, shape (..., tokens, tokens)
    """
    matrix: Floats = np.array(attention, dtype=np.float64)
    for _ in range(sweeps):
        matrix /= matrix.sum(axis=-1, keepdims=True)
        matrix /= matrix.sum(axis=-2, keepdims=True)
    return matrix


# --- eigenvalues


def fiedler_value(weights: Floats, self_loops: bool) -> float:
    """Compute the second-smallest eigenvalue of the normalised Laplacian.

    Parameters
    ----------
    weights : array, shape (tokens, tokens)
        Symmetric, not negative.
    self_loops : bool
        Whether the diagonal counts; scipy.sparse.csgraph, and so the published reading, drops it.

    Returns
    -------
    float
        In [0, n / (n - 1)]; 0 where the graph has several components (a token without weight is
        one of its own). NaN for one token.
    """
    if len(weights) < 2:
        return float("nan")
    matrix = laplacian.normalised(weights, self_loops)
    if not matrix.diagonal().all():
        return 0.0
    degrees = weights.sum(axis=1)
    if not self_loops:
        degrees -= weights.diagonal()
    # The eigenvector of 0 is known: moved to 2, where no eigenvalue is larger, it leaves the
    # second-smallest as the smallest.
    known = np.sqrt(2 * degrees / degrees.sum())
    matrix += np.multiply.outer(known, known)
    return max(_smallest(matrix), 0.0)


def symmetrised(attention: Floats) -> float:
    """Compute the Fiedler value of A + A^T, loops kept: no Sinkhorn, no floor; in [0, 2].

    Parameters
    ----------
    attention : array, shape (tokens, tokens)
    """
    return fiedler_value(attention + attention.T, self_loops=True)


def bipartite(attention: Floats) -> float:
    """Compute 1 - sigma_2 of D_r^(-1/2) A D_c^(-1/2): queries against keys, honest under a mask.

    Parameters
    ----------
    attention : array, shape (tokens, tokens)

    Returns
    -------
    float
        In [0, 1]: 1 where all queries look alike, 0 where the graph falls apart. A key that
        nobody attends to is left out, not counted as a component. Right to 1e-10. NaN for one
        token.
    """
    if len(attention) < 2:
        return float("nan")
    queries, keys = (np.sqrt(attention.sum(axis=axis)) for axis in (1, 0))
    scales = (1 / np.where(degrees > 0, degrees, np.inf) for degrees in (queries, keys))
    matrix = attention * np.multiply.outer(*scales)
    # sigma_1 = 1 and its vectors are known. Taken out before squaring, not after, it leaves a
    # Gram matrix whose rounding is as small as sigma_2^2.
    matrix -= np.multiply.outer(queries, keys) / queries.dot(queries)
    gram = matrix.T @ matrix
    size = float(np.linalg.norm(gram))
    if size == 0:
        return 1.0
    gram /= -size
    return float(np.clip(1 - np.sqrt(max(-size * _smallest(gram), 0.0)), 0.0, 1.0))


def _smallest(matrix: Floats) -> float:
    """Compute the smallest eigenvalue of a symmetric matrix of norm about 1, right to 1e-11.

    A Rayleigh quotient never lies below the smallest eigenvalue, and a Cholesky factorisation
    proves that it lies above by no more than CERTAIN. Without the proof the matrix is decomposed.
    """
    if len(matrix) > FEW_TOKENS:
        value = _lanczos(matrix)
        shifted = matrix.copy()
        shifted[np.diag_indices(len(matrix))] -= value - CERTAIN
        _, failed = lapack.dpotrf(shifted.T, clean=0, overwrite_a=1)
        if not failed:
            return value
    return float(linalg.eigvalsh(matrix, subset_by_index=[0, 0])[0])


def _lanczos(matrix: Floats) -> float:
    """Estimate the smallest eigenvalue from above, with full reorthogonalisation."""
    basis = np.empty((MOST_STEPS + 1, len(matrix)))
    diagonal, beside = np.empty((2, MOST_STEPS))
    start = np.random.default_rng(0).standard_normal(len(matrix))
    basis[0] = start / np.linalg.norm(start)
    for step in range(MOST_STEPS):
        done = step + 1
        image = blas.dsymv(1.0, matrix.T, basis[step])
        diagonal[step] = image @ basis[step]
        for _ in range(2):  # once leaves it skew
            image -= (basis[:done] @ image) @ basis[:done]
        beside[step] = np.linalg.norm(image)
        if done % LOOK_EVERY == 0 or beside[step] < RESIDUAL:
            _, vectors = linalg.eigh_tridiagonal(
                diagonal[:done], beside[:step], select="i", select_range=(0, 0)
            )
            if beside[step] * abs(vectors[-1, 0]) < RESIDUAL:
                break
        basis[done] = image / beside[step]
    vector = vectors[:, 0] @ basis[:done]
    return float(vector @ blas.dsymv(1.0, matrix.T, vector) / vector.dot(vector))


# --- tables


def heads(
    attention: ArrayLike,
    causal: bool,
    *,
    floor: float = FLOOR,
    tolerance: float = TOLERANCE,
    most: int = MOST,
    row_sum: float = ROW_SUM,
) -> list[Row]:
    """Read how well each head of a layer connects its tokens, beside content-free attention.

    Parameters
    ----------
    attention : array, shape (heads, tokens, tokens)
    causal : bool
    floor, tolerance, most
        Of `sinkhorn`, for the published reading.
    row_sum : float
        As `check` takes it.

    Returns
    -------
    list of dict
        One a head: `head`; `n_tokens`; `published`, the Fiedler value after Sinkhorn, with its
        `sweeps`, `residual` and `converged`; `symmetrised`; `bipartite`; the three for
        content-free attention of the same n and mask, which stops at its own sweeps:
        `published_baseline`, `symmetrised_baseline`, `bipartite_baseline`; `reason`, why values
        are NaN.
    """
    baselines = {f"{name}_baseline": name for name in ("published", "symmetrised", "bipartite")}
    weights = check(attention, causal, row_sum)
    return _table(_read, weights, causal, baselines, floor, tolerance, most)


def floors(
    attention: ArrayLike,
    causal: bool,
    floors: Sequence[float] = FLOORS,
    *,
    tolerance: float = TOLERANCE,
    most: int = MOST,
    row_sum: float = ROW_SUM,
) -> list[Row]:
    """Read the published value of each head of a layer at other floors, loops dropped and kept.

    Parameters
    ----------
    attention : array, shape (heads, tokens, tokens)
    causal : bool
    floors : sequence of float
    tolerance, most
        Of `sinkhorn`.
    row_sum : float
        As `check` takes it.

    Returns
    -------
    list of dict
        One a floor and head: `head`; `n_tokens`; `floor`; `value`, loops dropped; `value_kept`;
        `sweeps`; `residual`; `converged`; `baseline` and `baseline_kept`, the two for
        content-free attention of the same n and mask; `reason`, why values are NaN.
    """
    baselines = {"baseline": "value", "baseline_kept": "value_kept"}
    weights = check(attention, causal, row_sum)
    rows = (
        _table(_read_both, weights, causal, baselines, floor, tolerance, most) for floor in floors
    )
    return list(chain.from_iterable(rows))


def _table(
    read: Reader, weights: Floats, causal: bool, baselines: dict[str, str], *settings: float
) -> list[Row]:
    tokens = weights.shape[1]
    base = _content_free(read, tokens, causal, *settings)
    shared: Row = {column: base[name] for column, name in baselines.items()}
    shared["reason"] = NO_PAIR if tokens < 2 else ""
    return [
        {"head": head, "n_tokens": tokens, **row, **shared}
        for head, row in enumerate(read(weights, *settings))
    ]


@lru_cache
def _content_free(read: Reader, tokens: int, causal: bool, *settings: float) -> Row:
    return read(content_free(tokens, causal)[None], *settings)[0]


def _read(weights: Floats, floor: float, tolerance: float, most: int) -> list[Row]:
    scaling = sinkhorn(weights, floor, tolerance=tolerance, most=most)
    return [
        {
            "published": fiedler_value(scaling.graph(head), self_loops=False),
            **_convergence(scaling, head),
            "symmetrised": symmetrised(each),
            "bipartite": bipartite(each),
        }
        for head, each in enumerate(weights)
    ]


def _read_both(weights: Floats, floor: float, tolerance: float, most: int) -> list[Row]:
    scaling = sinkhorn(weights, floor, tolerance=tolerance, most=most)
    graphs = (scaling.graph(head) for head in range(len(weights)))
    return [
        {
            "floor": floor,
            "value": fiedler_value(graph, self_loops=False),
            "value_kept": fiedler_value(graph, self_loops=True),
            **_convergence(scaling, head),
        }
        for head, graph in enumerate(graphs)
    ]


def _convergence(scaling: Scaling, head: int) -> Row:
    return {
        "sweeps": scaling.sweeps,
        "residual": float(scaling.residual[head]),
        "converged": bool(scaling.converged[head]),
    }
