"""How much attention tokens receive, and from whom: as published, and against the mask alone.

Under a causal mask an early token is seen by more queries, so that even attention which looks at
no content gives it more. What such content-free attention gives, A_ij = 1 / (i + 1) (1 / n where
bidirectional), is the expectation that the controlled readings are measured against. A token's
attention to itself never counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokensphere.masks import content_free
from tokensphere.pieces import CLASSES
from tokensphere.sphere import Floats

CLUSTERED, UNCLUSTERED = GROUPS = ("clustered", "unclustered")

PER_HEAD = (
    "group",
    "published",
    "published_without_first",
    "mask_corrected",
    "mask_corrected_without_first",
    "reason",
)

Flags = NDArray[np.bool_]

NO_MEMBER = "no token is {}"
NO_MEMBER_LEFT = "no token but position 0 and special ones is {}"
NOT_SEEN = "no later token can see a token that is {}"
NOTHING = "no token receives attention from another"
NOTHING_LEFT = "position 0 and special tokens receive everything"


def expected(tokens: int, causal: bool) -> Floats:
    """Return what content-free attention gives each token, shape (tokens,).

    0 for the last token of a causal model, which no later one sees.
    """
    free: Floats = profile(content_free(tokens, causal)[None])[0]
    return free


def profile(attention: ArrayLike) -> Floats:
    """Sum what each token receives in each head from all other tokens.

    Parameters
    ----------
    attention : array, shape (heads, queries, keys)

    Returns
    -------
    array, shape (heads, tokens)
    """
    weights = np.asarray(attention, dtype=np.float64)
    received: Floats = weights.sum(axis=1) - np.diagonal(weights, axis1=1, axis2=2)
    return received


def by_group(
    received: Floats, expectation: Floats, clustered: ArrayLike, special: ArrayLike
) -> list[dict[str, Any]]:
    """Compare what the clustered tokens of a layer receive with what the unclustered ones do.

    Parameters
    ----------
    received : array, shape (tokens,)
        Summed over heads, as `profile` gives it.
    expectation : array, shape (tokens,)
        The same of content-free attention, summed over as many heads.
    clustered, special : array of bool, shape (tokens,)
        Which tokens are in a cluster; which ones the tokenizer added.

    Returns
    -------
    list of dict
        For each group:

        `tokens`, how many are in it; `published`, its mean over the mean of all tokens (1 =
        parity); `published_without_first`, the same among the tokens that are neither position 0
        nor special; `mask_corrected`, what it receives over what content-free attention would
        give it; `mask_corrected_without_first`, the same without position 0 and special tokens,
        both sides as shares of what the others receive (1 = parity);
        `of_expected_without_first`, the same but not as shares: below 1 for both groups where the
        tokens that are left out draw attention from all; `mask_corrected_median`, the median over
        tokens of received over expected; `mask_corrected_median_without_first`, the same without
        position 0 and special tokens, again of shares;
        `reason`, why a value is NaN. The last token of a causal model, which has no expectation,
        is in the published values alone.
    """
    inside = np.asarray(clustered, dtype=bool)
    others = ~np.asarray(special, dtype=bool)
    others[0] = False
    everyone = np.ones(len(received), dtype=bool)
    seen = expectation > 0
    left = others & seen
    shares = _shares(received, left), _shares(expectation, left)
    rows = []
    for name, group in ((CLUSTERED, inside), (UNCLUSTERED, ~inside)):
        row = {
            "group": name,
            "tokens": int(group.sum()),
            "published": _over_mean(received, group, everyone),
            "published_without_first": _over_mean(received, group, others),
            "mask_corrected": _of_expected(received, expectation, group & seen),
            "mask_corrected_without_first": _of_expected(*shares, group & left),
            "of_expected_without_first": _of_expected(received, expectation, group & left),
            "mask_corrected_median": _median(received, expectation, group & seen),
            "mask_corrected_median_without_first": _median(*shares, group & left),
        }
        rows.append(row | {"reason": _reason(name, received, group, others, seen)})
    return rows


def _reason(name: str, received: Floats, group: Flags, others: Flags, seen: Flags) -> str:
    """Say why values of a group are NaN; '' where none is."""
    if not group.any():
        return NO_MEMBER.format(name)
    if not received.any():
        return NOTHING
    if not (group & others).any():
        return NO_MEMBER_LEFT.format(name)
    if not received[others].any():
        return NOTHING_LEFT
    return "" if (group & others & seen).any() else NOT_SEEN.format(name)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _over_mean(received: Floats, group: Flags, among: Flags) -> float:
    """Divide a group's mean by the mean of all among whom it is, NaN if these receive nothing."""
    mean = _mean(received[among])
    return _mean(received[group & among]) / mean if mean > 0 else float("nan")


def _shares(values: Floats, among: Flags) -> Floats:
    total = values[among].sum()
    return values / total if total > 0 else np.full_like(values, np.nan)


def _of_expected(received: Floats, expectation: Floats, group: Flags) -> float:
    if not group.any():
        return float("nan")
    return float(received[group].sum() / expectation[group].sum())


def _median(received: Floats, expectation: Floats, group: Flags) -> float:
    if not group.any():
        return float("nan")
    return float(np.median(received[group] / expectation[group]))


def by_head(
    received: Floats, expectation: Floats, clustered: ArrayLike, special: ArrayLike
) -> list[dict[str, Any]]:
    """Compare the two groups in every head on its own.

    Parameters
    ----------
    received : array, shape (heads, tokens)
    expectation : array, shape (tokens,)
        Of one head.
    clustered, special : array of bool, shape (tokens,)

    Returns
    -------
    list of dict
        For each head and group `head` (from 0) and, as `by_group` has them, `group`, `published`,
        `published_without_first`, `mask_corrected`, `mask_corrected_without_first` and `reason`.
    """
    return [
        {"head": head} | {name: row[name] for name in PER_HEAD}
        for head, one in enumerate(received)
        for row in by_group(one, expectation, clustered, special)
    ]


def mass(attention: Floats, free: Floats, clustered: ArrayLike) -> list[dict[str, Any]]:
    """Measure how much attention goes from each group to each.

    Parameters
    ----------
    attention : array, shape (queries, keys)
        Mean over heads.
    free : array, shape (queries, keys)
        `content_free` attention under the same mask.
    clustered : array of bool, shape (tokens,)

    Returns
    -------
    list of dict
        For each pair `from_group` (queries), `to_group` (keys): `mass`, the mean over queries of
        the weight that they give to keys of the group, themselves left out, in [0, 1];
        `expected`, the same of content-free attention; `first`, how much of `mass` position 0
        has; `reason`, why a value is NaN.
    """
    inside = np.asarray(clustered, dtype=bool)
    away = 1.0 - np.eye(len(inside))
    rows = []
    for source, queries in ((CLUSTERED, inside), (UNCLUSTERED, ~inside)):
        for target, keys in ((CLUSTERED, inside), (UNCLUSTERED, ~inside)):
            row: dict[str, Any] = {"from_group": source, "to_group": target}
            first = keys & (np.arange(len(keys)) == 0)
            for name, weights, of in (
                ("mass", attention, keys),
                ("expected", free, keys),
                ("first", attention, first),
            ):
                sent = (weights * away)[np.ix_(queries, of)].sum(axis=1)
                row[name] = _mean(sent)
            rows.append(row | {"reason": "" if queries.any() else NO_MEMBER.format(source)})
    return rows


def classes(found: list[str], clustered: ArrayLike) -> list[dict[str, Any]]:
    """Count what kinds of token are in each group.

    Parameters
    ----------
    found : list of str
        The class of each token, as `pieces.classes` gives it.
    clustered : array of bool, shape (tokens,)

    Returns
    -------
    list of dict
        For each group `group`, `tokens`, the share of each class in it (they add up to 1), and
        `first`, the share that is position 0, whatever its class; `reason`.
    """
    inside = np.asarray(clustered, dtype=bool)
    kinds = np.asarray(found)
    rows: list[dict[str, Any]] = []
    for name, group in ((CLUSTERED, inside), (UNCLUSTERED, ~inside)):
        shares: Mapping[str, float] = {kind: _mean(kinds[group] == kind) for kind in CLASSES}
        first = _mean(np.flatnonzero(group) == 0)
        reason = "" if group.any() else NO_MEMBER.format(name)
        rows.append(
            {"group": name, "tokens": int(group.sum()), **shares, "first": first, "reason": reason}
        )
    return rows
