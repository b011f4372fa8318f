"""The text view: a prompt as text, each token on the colour of its cluster, layer by layer.

One page that needs nothing else: what it shows lies in it as JSON, and its script builds the text
from that. Nothing of a prompt is ever markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokensphere import pieces, similarity, sphere, tracking

if TYPE_CHECKING:
    import pandas as pd

    from tokensphere.store import Activations

NEIGHBOURS = 5
NO_CLUSTER = -1
NO_NEIGHBOUR = -1
# Cosines go as whole thousandths: that is all a reader sees, and half the size.
THOUSAND = 1000

# What could end the element that holds the data, or a line of a script.
UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
DATA = "@DATA@"


def assemble(
    activations: Activations,
    labels: Mapping[tuple[int, str], NDArray[np.int64]],
    tracks: pd.DataFrame,
    events: pd.DataFrame,
    *,
    label: str,
) -> dict[str, Any]:
    """Put together what the text view of one run shows.

    Parameters
    ----------
    activations : Activations
        The run's store.
    labels : mapping
        (layer, state) -> the cluster of each token, as `tables.read_labels` returns it.
    tracks, events : DataFrame
        The tables `cluster_tracks` and `cluster_events`.
    label : str
        How the model is called.

    Returns
    -------
    dict
        Of what JSON can hold: `model`, `weights`, `prompt`; `pieces`; `texts`, as `pieces.texts`
        returns them; `classes`; `neighbours`, how many each token has; `since`, for each identity
        the first stop that has it; `stops`, the layers in order and the final norm last. A stop
        has `layer`, `state`, `clusters` (their number), `clustered` (tokens in one), `events`
        (event -> count, null where no layer comes before), `of` (the identity of each token's
        cluster, or -1), and for each token after the other `nearest` (tokens by falling cosine,
        -1 where there is none) and `cosines` (in thousandths).

    Raises
    ------
    ValueError
        If the tables of labels and tracks are not of the same clusters.
    """
    attributes = activations.attributes
    tokens, special = activations.tokens, activations.special
    markers = attributes["piece_markers"]
    stops: list[dict[str, Any]] = []
    since: dict[int, int] = {}
    for layer, state, vectors in activations.states():
        here = _at(tracks, layer, state)
        of = _identities(labels[layer, state], here)
        for identity in here["tracked"].tolist():
            since.setdefault(identity, len(stops))
        nearest, cosines = _nearest(sphere.gram(sphere.project(vectors)), NEIGHBOURS)
        happened = _at(events, layer, state)["event"].tolist()
        stops.append(
            {
                "layer": layer,
                "state": state,
                "clusters": len(here),
                "clustered": int(np.count_nonzero(of != NO_CLUSTER)),
                "events": {event: happened.count(event) for event in tracking.EVENTS}
                if layer
                else None,
                "of": of.tolist(),
                "nearest": nearest.ravel().tolist(),
                "cosines": cosines.ravel().tolist(),
            }
        )
    return {
        "model": label,
        "weights": _weights(attributes),
        "prompt": attributes["prompt"],
        "truncated": attributes["truncated"],
        "pieces": tokens,
        "texts": pieces.texts(tokens, special, markers),
        "classes": pieces.classes(tokens, special, markers),
        "neighbours": nearest.shape[1],
        "since": [since[identity] for identity in range(len(since))],
        "stops": stops,
    }


def _at(table: pd.DataFrame, layer: int, state: str) -> pd.DataFrame:
    return table[(table["layer"] == layer) & (table["state"] == state)]


def _weights(attributes: Mapping[str, Any]) -> str:
    """Say what the weights are; of random ones the scheme and the seed too."""
    named = str(attributes["weights_are"])
    if "seed" in attributes:
        named += f" ({attributes['scheme']}, seed {attributes['seed']})"
    return named


def _identities(labels: NDArray[np.int64], here: pd.DataFrame) -> NDArray[np.int64]:
    """Replace the labels of a state by the identities that its clusters have through depth."""
    counted = {int(label): int((labels == label).sum()) for label in np.unique(labels[labels >= 0])}
    if counted != dict(zip(here["cluster"].tolist(), here["size"].tolist(), strict=True)):
        raise ValueError("the tables of labels and of tracks are not of the same clusters")
    of = np.full(len(labels), NO_CLUSTER, dtype=np.int64)
    for label, identity in zip(here["cluster"], here["tracked"], strict=True):
        of[labels == label] = identity
    return of


def _nearest(gram: sphere.Floats, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find each token's nearest neighbours, the first as `similarity.nearest` does.

    Parameters
    ----------
    gram : array, shape (tokens, tokens)
    most : int

    Returns
    -------
    nearest : array of int, shape (tokens, k), k = min(most, tokens - 1)
        By falling cosine; of tied ones the lowest index first. -1 where a token has no direction.
    cosines : array of int, shape (tokens, k)
        In thousandths.
    """
    others = np.where(np.isnan(gram), -np.inf, gram)
    tokens = np.arange(len(gram))
    nearest, cosines = [], []
    for _ in range(min(most, len(gram) - 1)):
        found, _ = similarity.nearest(others)
        cosine = others[tokens, found]
        lost = np.isinf(cosine) | (found == tokens)
        nearest.append(np.where(lost, NO_NEIGHBOUR, found))
        cosines.append(np.rint(THOUSAND * np.where(lost, 0.0, cosine)).astype(np.int64))
        others[tokens, found] = -np.inf
    return np.stack(nearest, axis=1), np.stack(cosines, axis=1)


def embedded(shown: Any) -> str:
    """Write data as JSON that may stand in an element of a page, whatever text it holds."""
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).translate(UNSAFE)


def page(template: str, shown: Mapping[str, Any]) -> str:
    """Fill the page of the text view.

    Parameters
    ----------
    template : str
        A page with one `<style>`, one `<script>`, and in its Content-Security-Policy the words
        @STYLE@ and @SCRIPT@: the page then runs these two, by hash, and nothing else. @DATA@
        stands where the data go.
    shown : mapping
        As `assemble` returns it.

    Returns
    -------
    str
    """
    for element in ("style", "script"):
        (inside,) = re.findall(rf"<{element}>(.*?)</{element}>", template, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        template = template.replace(f"@{element.upper()}@", f"'sha256-{digest}'")
    # Last, and once: the data may hold any of these words themselves.
    before, _, after = template.partition(DATA)
    return before + embedded(shown) + after
