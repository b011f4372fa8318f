"""Clusters through depth: which cluster of a layer is which of the layer before.

HDBSCAN numbers the clusters of each layer anew. Here clusters of neighbouring layers are matched
by their members, so that a cluster has one identity from its birth to its death, and what happens
to it can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST_OVERLAP = 0.1
EVENTS = ("birth", "death", "merge", "split")
TRACK_COLUMNS = ("layer", "state", "cluster", "tracked", "size", "position")
EVENT_COLUMNS = ("layer", "state", "event", "cluster", "into", "jaccard", "age", "reason")


class Match(NamedTuple):
    """How the clusters of one layer follow those of the layer before.

    Attributes
    ----------
    kept : dict
        Label before -> label after, one to one.
    events : list of (event, label before, label after, Jaccard overlap)
        What happened to the others: a cluster that is matched with none dies, or merges into the
        one it overlaps most; a new one is born, or split from the one it overlaps most. A label
        is None where there is none, and the overlap NaN.
    """

    kept: dict[int, int]
    events: list[tuple[str, int | None, int | None, float]]


def jaccard(before: ArrayLike, after: ArrayLike) -> NDArray[np.float64]:
    """Compute the Jaccard overlap of the members of every two clusters.

    Parameters
    ----------
    before, after : array of int, shape (tokens,)
        Clusters of the same tokens in two layers, -1 for a token in none.

    Returns
    -------
    array, shape (clusters before, clusters after)
        Tokens in both over tokens in either, by ascending label.
    """
    one, two = (_membership(labels) for labels in (before, after))
    both = one @ two.T
    either = one.sum(axis=1)[:, None] + two.sum(axis=1) - both
    overlap: NDArray[np.float64] = both / either
    return overlap


def _membership(labels: ArrayLike) -> NDArray[np.float64]:
    every = np.asarray(labels)
    clusters = np.unique(every[every >= 0])
    members: NDArray[np.float64] = np.equal(clusters[:, None], every).astype(np.float64)
    return members


def match(before: ArrayLike, after: ArrayLike, least: float = LEAST_OVERLAP) -> Match:
    """Match the clusters of two layers so that the sum of their Jaccard overlaps is largest.

    Parameters
    ----------
    before, after : array of int, shape (tokens,)
        Clusters of the same tokens, -1 for a token in none.
    least : float
        Clusters that overlap less have nothing to do with each other.

    Returns
    -------
    Match
    """
    from scipy.optimize import linear_sum_assignment

    labels = [np.unique(every[every >= 0]).tolist() for every in map(np.asarray, (before, after))]
    overlap = jaccard(before, after)
    overlap[overlap < least] = 0.0
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    pairs = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if overlap[i, j] > 0]
    kept = {labels[0][i]: labels[1][j] for i, j in pairs}
    events: list[tuple[str, int | None, int | None, float]] = []
    for i in sorted(set(range(len(labels[0]))) - {i for i, _ in pairs}):
        j = int(overlap[i].argmax()) if overlap.shape[1] else 0
        if overlap.shape[1] and overlap[i, j] > 0:
            events.append(("merge", labels[0][i], labels[1][j], float(overlap[i, j])))
        else:
            events.append(("death", labels[0][i], None, float("nan")))
    for j in sorted(set(range(len(labels[1]))) - {j for _, j in pairs}):
        i = int(overlap[:, j].argmax()) if overlap.shape[0] else 0
        if overlap.shape[0] and overlap[i, j] > 0:
            events.append(("split", labels[0][i], labels[1][j], float(overlap[i, j])))
        else:
            events.append(("birth", None, labels[1][j], float("nan")))
    return Match(kept, events)


Layer = tuple[int, str]


def track(
    labels: Mapping[Layer, ArrayLike], least: float = LEAST_OVERLAP
) -> tuple[dict[Layer, dict[int, int]], list[dict[str, Any]]]:
    """Follow every cluster of a run through its layers.

    Parameters
    ----------
    labels : mapping
        (layer, state) -> the cluster of each token. Residual layer l follows layer l - 1; the
        final norm, which stands at layer L, follows residual layer L - 1 too.
    least : float
        As `match` takes it.

    Returns
    -------
    identities : dict
        (layer, state) -> label -> identity, numbered by first appearance. The clusters of
        layer 0 are there from the start: they are no births.
    events : list of dict
        `layer`, `state`, `event`, `cluster` (the identity that is born, dies, merges or is split
        from), `into` (the identity merged into or split off, or empty), `jaccard`, `age` (in how
        many layers an identity that ends was seen), `reason`, why there is no overlap.
    """
    identities: dict[Layer, dict[int, int]] = {}
    events: list[dict[str, Any]] = []
    first_seen: list[int] = []  # by identity

    def new(layer: int) -> int:
        first_seen.append(layer)
        return len(first_seen) - 1

    for (layer, state), here in _in_order(labels):
        before = (layer - 1, "residual")
        if layer == 0:
            found = np.unique(np.asarray(here))
            identities[layer, state] = {int(label): new(0) for label in found if label >= 0}
            continue
        known = identities[before]
        matched = match(labels[before], here, least)
        now = {after: known[old] for old, after in matched.kept.items()}
        for event, _, after, _ in matched.events:
            if event in ("birth", "split") and after is not None:
                now[after] = new(layer)
        identities[layer, state] = dict(sorted(now.items()))
        for event, old, after, overlap in matched.events:
            ended = event in ("death", "merge")
            cluster = now[after] if old is None else known[old]  # type: ignore[index]
            events.append(
                {
                    "layer": layer,
                    "state": state,
                    "event": event,
                    "cluster": cluster,
                    "into": "" if after is None or old is None else now[after],
                    "jaccard": overlap,
                    "age": layer - first_seen[cluster] if ended else "",
                    "reason": "it overlaps no cluster of the other layer"
                    if np.isnan(overlap)
                    else "",
                }
            )
    return identities, events


def _in_order(labels: Mapping[Layer, ArrayLike]) -> list[tuple[Layer, ArrayLike]]:
    """Sort layers by depth, the residual stream of a layer before its final norm."""
    return sorted(labels.items(), key=lambda entry: (entry[0][0], entry[0][1] != "residual"))


def describe(
    labels: Mapping[Layer, ArrayLike], identities: Mapping[Layer, Mapping[int, int]]
) -> list[dict[str, Any]]:
    """List the clusters of every state with their identities.

    Returns
    -------
    list of dict
        `layer`, `state`, `cluster` (the label), `tracked` (the identity), `size` in tokens,
        `position`, the mean place of its tokens in the text, from 0.
    """
    rows = []
    for (layer, state), clusters in identities.items():
        for label, identity in clusters.items():
            members = np.flatnonzero(np.asarray(labels[layer, state]) == label)
            values = (layer, state, label, identity, len(members), float(members.mean()))
            rows.append(dict(zip(TRACK_COLUMNS, values, strict=True)))
    return rows


def turnover(
    labels: Mapping[Layer, ArrayLike],
    permutations: int,
    seed: int,
    least: float = LEAST_OVERLAP,
) -> list[dict[str, Any]]:
    """Count what happens to clusters from layer to layer, and what would by chance.

    Parameters
    ----------
    labels : mapping
        As `track` takes it.
    permutations : int
        How often the later layer's labels are dealt out to the tokens anew.
    seed : int
    least : float

    Returns
    -------
    list of dict
        One a state but layer 0: `layer`, `state`, `clusters` (there before), `kept`, `birth`,
        `death`, `merge`, `split`, and the mean of each over permuted labels, `kept_chance` and
        so on.
    """
    random = np.random.default_rng(seed)
    rows = []
    for (layer, state), here in _in_order(labels):
        if layer == 0:
            continue
        before = labels[layer - 1, "residual"]
        counts = _counts(match(before, here, least))
        chance = [
            _counts(match(before, random.permutation(np.asarray(here)), least))
            for _ in range(permutations)
        ]
        rows.append(
            {"layer": layer, "state": state, "clusters": len(_membership(before))}
            | counts
            | {f"{name}_chance": float(np.mean([one[name] for one in chance])) for name in counts}
        )
    return rows


def _counts(matched: Match) -> dict[str, int]:
    happened: Sequence[str] = [event for event, *_ in matched.events]
    return {"kept": len(matched.kept)} | {event: happened.count(event) for event in EVENTS}
