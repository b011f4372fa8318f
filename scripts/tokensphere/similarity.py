"""How alike two clouds of the same tokens are: CKA, and whether nearest neighbours stay.

Both compare a layer with the one before it, token by token in the same order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokensphere.sphere import NO_DIRECTION, NO_PAIR, Floats

FLAT = 1e-12  # a smaller denominator of CKA means a cloud without spread, as published
FEWEST_DEBIASED = 4
# Inner products of equal vectors differ in their last bits with their place in the matrix.
TIE = 1e-12

NO_SPREAD = "a cloud has no spread: all its points coincide"
EQUIDISTANT = "HSIC_1 of a cloud with itself is 0: its points are equally far apart, or nearly so"
TOO_FEW = f"fewer than {FEWEST_DEBIASED} tokens: HSIC_1 is undefined"


def linear_cka(first: ArrayLike, second: ArrayLike) -> float:
    """Compute linear centred kernel alignment, the published reading.

    |Yc^T Xc|_F^2 / (|Xc^T Xc|_F |Yc^T Yc|_F), columns centred (Kornblith et al., ICML 2019), here
    in the equal form of centred Gram matrices. Where there are about as many tokens as
    dimensions it is near 1 for unrelated clouds too: `debiased_cka` is not.

    Parameters
    ----------
    first, second : array, shape (tokens, width)
        The same tokens in the same order; widths may differ.

    Returns
    -------
    float
        In [0, 1]; 1 for clouds equal up to rotation, scale and shift. NaN where a cloud has no
        spread (denominator < 1e-12).
    """
    return float(np.clip(_alignment(_kernel(first), _kernel(second)), 0.0, 1.0))


def debiased_cka(first: ArrayLike, second: ArrayLike) -> float:
    """Compute debiased linear CKA, the controlled reading.

    The same ratio with the unbiased estimator HSIC_1 in all three places (Song et al., JMLR 13,
    2012, eq. 5), here as inner products of U-centred Gram matrices (Székely and Rizzo, 2014).

    Parameters
    ----------
    first, second : array, shape (tokens, width)

    Returns
    -------
    float
        At most 1, and about 0 (a little below, too) for unrelated clouds. NaN for fewer than
        four tokens, and where HSIC_1 of a cloud with itself is 0: it has no spread, or its
        points are equally far apart.
    """
    one, two = _kernel(first), _kernel(second)
    if len(one) < FEWEST_DEBIASED:
        return float("nan")
    return _alignment(_u_centred(one), _u_centred(two))


def _kernel(points: ArrayLike) -> Floats:
    """Compute the Gram matrix of a cloud whose columns are centred.

    The debiased reading is the same without centring, but a far-away cloud would lose its digits.
    """
    values: Floats = np.asarray(points, dtype=np.float64)
    centred: Floats = values - values.mean(axis=0)
    kernel: Floats = centred @ centred.T
    return kernel


def _u_centred(kernel: Floats) -> Floats:
    """Centre a kernel so that off-diagonal rows sum to 0 without the diagonal's bias."""
    tokens = len(kernel)
    outside = kernel - np.diag(np.diag(kernel))
    sums = outside.sum(axis=0)
    centred: Floats = outside - (sums + sums[:, None]) / (tokens - 2)
    centred += sums.sum() / ((tokens - 1) * (tokens - 2))
    np.fill_diagonal(centred, 0.0)
    return centred


def _alignment(one: Floats, two: Floats) -> float:
    size = float(np.linalg.norm(one) * np.linalg.norm(two))
    return float(np.vdot(one, two) / size) if size >= FLAT else float("nan")


def cka(before: Floats, points: Floats) -> dict[str, float | int | str]:
    """Compare the sphere points of two neighbouring layers by CKA.

    Parameters
    ----------
    before, points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.

    Returns
    -------
    dict
        `n_tokens`; `cka` in [0, 1]; `cka_debiased` <= 1; `reason`, why one is NaN.
    """
    row: dict[str, float | int | str] = {
        "n_tokens": len(points),
        "cka": float("nan"),
        "cka_debiased": float("nan"),
        "reason": "",
    }
    if np.isnan(before).any() or np.isnan(points).any():
        return row | {"reason": NO_DIRECTION}
    row |= {"cka": linear_cka(before, points), "cka_debiased": debiased_cka(before, points)}
    if np.isnan(row["cka"]):
        row["reason"] = NO_SPREAD
    elif np.isnan(row["cka_debiased"]):
        row["reason"] = TOO_FEW if len(points) < FEWEST_DEBIASED else EQUIDISTANT
    return row


def nearest(gram: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Find each token's nearest neighbour by cosine.

    Parameters
    ----------
    gram : array, shape (tokens, tokens)
        Inner products, at least two tokens.

    Returns
    -------
    neighbour : array of int, shape (tokens,)
        The other token with the largest inner product; of tied ones (within 1e-12, the rounding
        of equal vectors) the one of lowest index.
    tied : array of bool, shape (tokens,)
        Whether there was such a choice.
    """
    others: Floats = gram.copy()
    np.fill_diagonal(others, -np.inf)
    near = others >= others.max(axis=1, keepdims=True) - TIE
    return near.argmax(axis=1), near.sum(axis=1) > 1


def neighbours(before: Floats, gram: Floats) -> dict[str, float | int | str]:
    """Measure how many tokens keep their nearest neighbour from one layer to the next.

    Parameters
    ----------
    before, gram : array, shape (tokens, tokens)
        Gram matrices of the two layers, as `sphere.gram` returns them.

    Returns
    -------
    dict
        `n_tokens`; `stability`, the share of tokens whose nearest neighbour is the same, in
        [0, 1]; `ties`, how many tokens have several nearest ones in either layer; `chance`, the
        stability of independent layers, 1 / (n - 1); `reason`, why a value is NaN.
    """
    row: dict[str, float | int | str] = {
        "n_tokens": len(gram),
        "stability": float("nan"),
        "ties": 0,
        "chance": float("nan"),
        "reason": "",
    }
    if len(gram) < 2:
        return row | {"reason": NO_PAIR}
    row["chance"] = 1 / (len(gram) - 1)
    if np.isnan(before).any() or np.isnan(gram).any():
        return row | {"reason": NO_DIRECTION}
    (was, was_tied), (now, now_tied) = nearest(before), nearest(gram)
    return row | {
        "stability": float((was == now).mean()),
        "ties": int(np.count_nonzero(was_tied | now_tied)),
    }
