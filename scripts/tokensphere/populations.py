"""Pairs and tokens by belonging: who is in a cluster, with whom, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokensphere import sphere
from tokensphere.sphere import Floats

POPULATIONS = ("within", "between", "mixed", "unclustered")
NO_PAIR_OF_KIND = "no such pair"
NO_DISTINCT_PAIR_OF_KIND = "no such pair of distinct token ids"


def population_of_pairs(labels: ArrayLike) -> NDArray[np.int64]:
    """Say for every pair i < j which population it belongs to.

    Parameters
    ----------
    labels : array of int, shape (tokens,)
        Clusters, -1 for a token in none.

    Returns
    -------
    array of int, shape (tokens (tokens - 1) / 2,)
        Index into `POPULATIONS`: within one cluster, between two, mixed (one token clustered,
        one not), both unclustered; pairs in the order of `sphere.pairs`.
    """
    every = np.asarray(labels)
    first, second = (every[index] for index in np.triu_indices(len(every), k=1))
    clustered = (first >= 0).astype(int) + (second >= 0)
    kind = np.where(first == second, 0, 1)
    return np.where(clustered == 2, kind, np.where(clustered == 1, 2, 3))


def pair_populations(
    points: Floats, token_ids: ArrayLike, labels: ArrayLike, near_one: float = 0.9
) -> list[dict[str, float | int | str]]:
    """Summarise the inner products of one layer by pair population.

    The populations are made by labels that were found from these very inner products: that
    pairs within a cluster are nearer than others is so by construction, how much nearer is not.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.
    token_ids : array of int, shape (tokens,)
    labels : array of int, shape (tokens,)
        Clusters, -1 for a token in none.
    near_one : float
        A pair counts as near 1 if its inner product is strictly greater.

    Returns
    -------
    list of dict
        One a population (`within`, `between`, `mixed`, `unclustered`): `n_tokens`, `population`,
        `mean`, `mass_near_one`, `share` of all pairs; the same over pairs of distinct token ids,
        `mean_distinct`, `mass_near_one_distinct`, `share_distinct`; `reason`, why one is NaN.
    """
    values, distinct = sphere.pairs(points, token_ids)
    kinds = population_of_pairs(labels)
    rows = []
    for index, population in enumerate(POPULATIONS):
        chosen = kinds == index
        every, unlike = values[chosen], values[chosen & distinct]
        row: dict[str, float | int | str] = {"n_tokens": len(points), "population": population}
        row |= _summary(every, len(values), near_one, "")
        row |= _summary(unlike, int(np.count_nonzero(distinct)), near_one, "_distinct")
        if not len(values):
            reason = sphere.NO_PAIR
        elif np.isnan(every).any():
            reason = sphere.NO_DIRECTION
        elif not every.size:
            reason = NO_PAIR_OF_KIND
        else:
            reason = "" if unlike.size else NO_DISTINCT_PAIR_OF_KIND
        rows.append(row | {"reason": reason})
    return rows


def _summary(values: Floats, total: int, near_one: float, suffix: str) -> dict[str, float]:
    undefined = not values.size or bool(np.isnan(values).any())
    return {
        f"mean{suffix}": float("nan") if undefined else float(values.mean()),
        f"mass_near_one{suffix}": float("nan") if undefined else float((values > near_one).mean()),
        f"share{suffix}": values.size / total if total else float("nan"),
    }


def shares_of_layers(labels: Sequence[ArrayLike]) -> Floats:
    """Compute for each token in which share of the states it is clustered.

    Parameters
    ----------
    labels : sequence of arrays of int, each of shape (tokens,)
        The clusters of each state, -1 for a token in none.

    Returns
    -------
    array, shape (tokens,)
        In [0, 1].
    """
    shares: Floats = (np.asarray(labels) >= 0).mean(axis=0)
    return shares
