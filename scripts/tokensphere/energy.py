"""Interaction energy of tokens on the sphere.

E_b = 1/(2 b n^2) sum over all i, j (diagonal included) of exp(b <s_i, s_j>), the energy that
self-attention with Q = K = V = I climbs (Geshkovski, Letrouit, Polyanskiy and Rigollet,
arXiv 2312.10794). It is monotone by theorem for full attention with V = Q^T K symmetric only:
under a causal mask it can fall even for Q = K = V = I.
"""

from __future__ import annotations

import numpy as np

from tokensphere.sphere import NO_DIRECTION, Floats


def energy(gram: Floats, beta: float) -> float:
    """Compute the interaction energy.

    Parameters
    ----------
    gram : array, shape (tokens, tokens)
        Inner products, as `sphere.gram` returns them.
    beta : float
        Inverse temperature, > 0.

    Returns
    -------
    float
        Between I(b) > 0 and exp(b) / (2 b), which is reached where all tokens coincide; NaN
        where a token has no direction.
    """
    return float(np.exp(beta * gram).mean() / (2 * beta))


def common_energy(gram: Floats, beta: float) -> float:
    """Compute the part of the energy that the tokens' mean alone makes.

    E_common = exp(b |m|^2) / (2 b), m the mean of the s_i. By Jensen's inequality it is at most
    the energy; what is above it comes from the spread of the tokens around their mean.

    Parameters
    ----------
    gram : array, shape (tokens, tokens)
    beta : float

    Returns
    -------
    float
    """
    return float(np.exp(beta * gram.mean()) / (2 * beta))  # |m|^2 is the mean of the Gram matrix


FIRST_LAYER = "the first layer: there is nothing to fall from"


def summarise(
    gram: Floats,
    before: Floats | None,
    beta: float,
    drop: float = 1e-6,
    drop_relative: float = 1e-3,
) -> dict[str, float | bool | str]:
    """Summarise the energy of one state and its fall from the state before.

    Parameters
    ----------
    gram : array, shape (tokens, tokens)
    before : array, shape (tokens, tokens), or None
        Gram matrix of the state before, None at layer 0.
    beta : float
    drop : float
        Published rule: the energy is violated by an absolute fall greater than this.
    drop_relative : float
        Controlled rule: by a fall greater than this share of the value before.

    Returns
    -------
    dict
        `n_tokens`; `energy`; `drop_absolute`, positive where the energy falls; `drop_relative`,
        as a share of the value before; `common` <= energy and `spread`, what is above it;
        `violation_published`, `violation_controlled`; `reason`, why a value is NaN.
    """
    value, common = energy(gram, beta), common_energy(gram, beta)
    fall = share = float("nan")
    reason = FIRST_LAYER
    if before is not None:
        earlier = energy(before, beta)
        fall, share, reason = earlier - value, (earlier - value) / earlier, ""
    if np.isnan(value) or (before is not None and np.isnan(fall)):
        reason = NO_DIRECTION
    return {
        "n_tokens": len(gram),
        "energy": value,
        "drop_absolute": fall,
        "drop_relative": share,
        "common": common,
        "spread": value - common,
        "violation_published": fall > drop,
        "violation_controlled": share > drop_relative,
        "reason": reason,
    }


def largest_falls(
    before: Floats, after: Floats, beta: float, most: int
) -> list[tuple[int, int, float]]:
    """Find the pairs of tokens whose part of the energy falls most from one state to the next.

    Parameters
    ----------
    before, after : array, shape (tokens, tokens)
        Gram matrices of the two states.
    beta : float
    most : int
        How many pairs; fewer where there are fewer.

    Returns
    -------
    list of (i, j, change)
        i < j; the change of the energy by this pair, both orders of it together, smallest
        (most negative) first; equal ones by i, then j. A pair with a token that has no direction
        in one of the states has no change and is left out.
    """
    tokens = len(before)
    first, second = np.triu_indices(tokens, k=1)
    change = np.exp(beta * after[first, second]) - np.exp(beta * before[first, second])
    change /= beta * tokens**2
    defined = np.count_nonzero(~np.isnan(change))
    chosen = np.argsort(change, kind="stable")[: min(most, defined)]  # NaN is sorted to the end
    return [(int(first[k]), int(second[k]), float(change[k])) for k in chosen]
