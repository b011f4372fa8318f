"""Two classical partitions of the tokens beside HDBSCAN's: k-means and average linkage."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tokensphere.clusters import cosine_distances
from tokensphere.sphere import NO_DIRECTION, NO_PAIR, Floats

COINCIDE = 1e-12  # a smaller cosine distance is rounding: the points are the same

TOO_FEW_POINTS = "k-means found fewer than k distinct groups: points coincide"
NO_PARTITION = "fewer than three tokens: there is no k from 2 to n - 1"


def kmeans(
    points: Floats, largest: int = 9, starts: int = 3, seed: int = 42
) -> list[dict[str, Any]]:
    """Partition the sphere points by k-means and judge each k by its cosine silhouette.

    The defaults are the published ones.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.
    largest : int
        k = 2..min(largest, n - 1).
    starts : int
        Of each k; the tightest partition counts.
    seed : int
        Of the starts.

    Returns
    -------
    list of dict
        One a k: `n_tokens`, `k`, `silhouette` in [-1, 1] (Rousseeuw, 1987), `best`, true for the
        k of the largest silhouette (the smaller of equal ones); `reason`, why it is NaN. One row
        of k = 0 where there are too few tokens.
    """
    import sklearn.cluster
    import sklearn.metrics
    from sklearn.exceptions import ConvergenceWarning

    tokens = len(points)
    empty = {"n_tokens": tokens, "k": 0, "silhouette": float("nan"), "best": False}
    if tokens < 3:
        return [empty | {"reason": NO_PARTITION}]
    if np.isnan(points).any():
        return [empty | {"reason": NO_DIRECTION}]
    distances = cosine_distances(points)
    distances[distances < COINCIDE] = 0.0
    points = points[(distances == 0).argmax(axis=1)]  # else k-means parts them by their last bits
    rows: list[dict[str, Any]] = []
    for k in range(2, min(largest, tokens - 1) + 1):
        model = sklearn.cluster.KMeans(n_clusters=k, n_init=starts, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer points than k: a reason
            labels = model.fit_predict(points)
        groups = len(np.unique(labels))
        silhouette = (
            float(sklearn.metrics.silhouette_score(distances, labels, metric="precomputed"))
            if groups == k and distances.any()
            else float("nan")
        )
        reason = TOO_FEW_POINTS if np.isnan(silhouette) else ""
        rows.append(empty | {"k": k, "silhouette": silhouette, "reason": reason})
    values = np.array([row["silhouette"] for row in rows], dtype=float)
    if not np.isnan(values).all():
        rows[int(np.nanargmax(values))]["best"] = True
    return rows


def agglomerative(
    points: Floats, thresholds: Sequence[float]
) -> list[dict[str, float | int | str]]:
    """Count the clusters of average linkage on cosine distances at several thresholds.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.
    thresholds : sequence of float
        Clusters are joined up to this mean cosine distance.

    Returns
    -------
    list of dict
        One a threshold: `n_tokens`, `threshold`, `count` from 1 to n, single tokens included;
        `reason`, why it is NaN.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(points) < 2:
        counts, reason = [float("nan")] * len(thresholds), NO_PAIR
    elif np.isnan(points).any():
        counts, reason = [float("nan")] * len(thresholds), NO_DIRECTION
    else:
        tree = linkage(squareform(cosine_distances(points), checks=False), method="average")
        counts = [int(fcluster(tree, each, criterion="distance").max()) for each in thresholds]
        reason = ""
    return [
        {"n_tokens": len(points), "threshold": float(each), "count": count, "reason": reason}
        for each, count in zip(thresholds, counts, strict=True)
    ]
