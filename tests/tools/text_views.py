"""Stores and tables made by hand, and what the text view makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tokensphere import store, text_view, tracking


def states(tokens: int, layers: int = 2, width: int = 8, seed: int = 0) -> np.ndarray:
    """Draw layers 0..`layers` and a final norm, shape (layers + 2, tokens, width)."""
    random = np.random.default_rng(seed)
    return random.standard_normal((layers + 2, tokens, width)).astype(np.float32)


def write_store(
    path: Path,
    pieces: Sequence[str],
    vectors: np.ndarray,
    *,
    final_norm: bool = True,
    **attributes: Any,
) -> None:
    """Write a store of these pieces; the last of `vectors` may be the final norm."""
    count = len(vectors) - 1 - final_norm
    facts = {
        "layers": count,
        "n_tokens": len(pieces),
        "width": vectors.shape[2],
        "final_norm": final_norm,
        "weights_are": "trained (4-bit weights, dequantised)",
        "scheme": "trained",
        "prompt": "by_hand",
        "truncated": False,
        "piece_markers": {"space": "ĠĊĉ"},
    }
    with store.Writer(path, facts | attributes) as writer:
        writer.write_tokens(list(range(len(pieces))), list(pieces), [False] * len(pieces))
        for layer in range(count + 1):
            writer.write_residual(layer, vectors[layer])
        if final_norm:
            writer.write_final_norm(vectors[-1])


def tracked(
    labels: Mapping[tuple[int, str], Sequence[int]],
) -> tuple[dict[tuple[int, str], np.ndarray], pd.DataFrame, pd.DataFrame]:
    """Follow clusters: labels, tracks and events as their tables are read."""
    arrays = {state: np.array(one) for state, one in labels.items()}
    identities, happened = tracking.track(arrays)
    tracks = pd.DataFrame(
        tracking.describe(arrays, identities), columns=list(tracking.TRACK_COLUMNS)
    )
    return arrays, tracks, pd.DataFrame(happened, columns=list(tracking.EVENT_COLUMNS))


def assemble(
    path: Path, labels: Mapping[tuple[int, str], Sequence[int]], label: str = "A model"
) -> dict[str, Any]:
    """Put together what the text view shows of a store and these labels."""
    with store.Activations(path) as activations:
        return text_view.assemble(activations, *tracked(labels), label=label)
