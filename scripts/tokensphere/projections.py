"""Tokens in two dimensions: PCA, t-SNE and UMAP of their points on the unit sphere.

Projections are for looking, not for measuring. PCA is linear: its axes and distances mean
something, as far as two directions can show them. t-SNE (van der Maaten and Hinton, 2008) and
UMAP (McInnes, Healy and Melville, 2018) keep neighbourhoods alone: their axes, the sizes of
groups and the distances between groups mean little.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tokensphere import sphere

Places = NDArray[np.float64]  # (tokens, 2)

METHODS = ("pca", "pca_centred", "tsne", "umap")
DEPTHS = (0.07, 0.6, 1.0)

# Fewer are no cloud, and t-SNE would have a perplexity below 1.
FEWEST_TOKENS = 5
PERPLEXITY, NEIGHBOURS, SEED = 30, 15, 42
# States are float32: directions that differ by less are the same up to rounding.
COINCIDE = 1e-6
# How wide t-SNE starts, as scikit-learn scales its own start from PCA.
TSNE_START = 1e-4


def drawn_layers(last: int) -> list[int]:
    """List the layers that are drawn of a model with layers 0..last: early, late and the last.

    GPT-2 large, with 36 layers, gives 3, 22 and 36. A very flat model gives fewer than three.
    """
    return sorted({round(depth * last) for depth in DEPTHS})


def _placed(
    points: sphere.Floats, embed: Callable[[sphere.Floats, NDArray[np.intp]], Places]
) -> Places:
    """Embed the tokens that have a direction; the others, or all if too few have one, are NaN."""
    places: Places = np.full((len(points), 2), np.nan)
    directed = np.flatnonzero(~np.isnan(points).any(axis=1))
    if len(directed) >= FEWEST_TOKENS:
        places[directed] = embed(points[directed], directed)
    return places


def _components(points: sphere.Floats) -> Places:
    """Project rows on their two leading right singular vectors, signs fixed."""
    left, sizes, right = np.linalg.svd(points, full_matrices=False)
    strongest = np.abs(right).argmax(axis=1)
    signs = np.where(right[np.arange(len(right)), strongest] < 0, -1.0, 1.0)
    places: Places = np.zeros((len(points), 2))
    kept = min(2, len(sizes))
    places[:, :kept] = (left * sizes * signs)[:, :kept]
    return places


def pca(points: sphere.Floats) -> Places:
    """Project tokens on the two leading singular vectors of their points, without centring.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.

    Returns
    -------
    array, shape (tokens, 2)
        Left singular vectors times singular values, in [-1, 1]. A singular vector has no sign of
        its own: here the entry of largest magnitude of the right one is positive. NaN for a
        token without direction, and for all if fewer than five have one.

    Notes
    -----
    Not centred, as published: where the points share a direction, that is the first component.
    """
    return _placed(points, lambda directed, _: _components(directed))


def pca_centred(points: sphere.Floats) -> Places:
    """Project tokens on the two directions in which their points vary most: PCA proper.

    Parameters and returns are those of `pca`, in [-2, 2].
    """
    return _placed(points, lambda directed, _: _components(directed - directed.mean(axis=0)))


def _start(before: Places | None, directed: NDArray[np.intp]) -> Places | None:
    """Return where a layer's tokens were in the layer before, or None if that tells nothing."""
    if before is None:
        return None
    start = before[directed]
    known = ~np.isnan(start).any(axis=1)
    if np.count_nonzero(known) < FEWEST_TOKENS or np.ptp(start[known], axis=0).min() == 0:
        return None
    # Who had no direction before starts in the middle of the others.
    start[~known] = start[known].mean(axis=0)
    return start


def tsne(
    points: sphere.Floats,
    perplexity: int = PERPLEXITY,
    seed: int = SEED,
    before: Places | None = None,
) -> Places:
    """Embed tokens with t-SNE by cosine distance.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.
    perplexity : int
        About how many neighbours count; less where there are few tokens, (tokens - 1) // 3.
    seed : int
    before : array, shape (tokens, 2), optional
        The same tokens in the layer before, to start from; from PCA where not given.

    Returns
    -------
    array, shape (tokens, 2)
        NaN for a token without direction, and for all if fewer than five have one. All in the
        origin if they coincide.
    """
    from sklearn.manifold import TSNE

    def embed(directed: sphere.Floats, rows: NDArray[np.intp]) -> Places:
        if _coincide(directed):
            return np.zeros((len(directed), 2))
        start = _start(before, rows)
        if start is not None:
            start = (start - start.mean(axis=0)) * (TSNE_START / start[:, 0].std())
        model = TSNE(
            perplexity=min(perplexity, (len(directed) - 1) // 3),
            metric="cosine",
            init="pca" if start is None else start.astype(np.float32),
            random_state=seed,
        )
        return np.asarray(model.fit_transform(directed), dtype=np.float64)

    return _placed(points, embed)


def umap(
    points: sphere.Floats,
    neighbours: int = NEIGHBOURS,
    seed: int = SEED,
    before: Places | None = None,
) -> Places:
    """Embed tokens with UMAP by cosine distance.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.
    neighbours : int
        Nearest tokens that are joined, the token itself counted; at most one fewer than there
        are tokens.
    seed : int
    before : array, shape (tokens, 2), optional
        The same tokens in the layer before, to start from; from the graph's spectrum where not
        given. UMAP itself scales a start to the range [0, 10] on both axes.

    Returns
    -------
    array, shape (tokens, 2)
        Around the origin, and all in it if they coincide. NaN for a token without direction, and
        for all if fewer than five have one.
    """
    from umap import UMAP

    def embed(directed: sphere.Floats, rows: NDArray[np.intp]) -> Places:
        if _coincide(directed):
            return np.zeros((len(directed), 2))
        start = _start(before, rows)
        model = UMAP(
            n_neighbors=min(neighbours, len(directed) - 1),
            metric="cosine",
            init="spectral" if start is None else start,
            random_state=seed,
            n_jobs=1,  # a seed gives the same numbers on one thread alone
        )
        with warnings.catch_warnings():
            # It warns of what it mends itself: a graph in pieces, whose spectrum it does without.
            warnings.filterwarnings("ignore", module="umap")
            places = np.asarray(model.fit_transform(directed), dtype=np.float64)
        centred: Places = places - places.mean(axis=0)
        return centred

    return _placed(points, embed)


def _coincide(points: sphere.Floats) -> bool:
    return bool(np.ptp(points, axis=0).max() < COINCIDE)


def align(places: Places, before: Places) -> Places:
    """Turn or mirror an embedding about the origin so that it lies nearest to another.

    Parameters
    ----------
    places, before : array, shape (tokens, 2)
        The same tokens in two layers. Those that are NaN in one do not count.

    Returns
    -------
    array, shape (tokens, 2)
        `places` times the orthogonal matrix that makes the sum of squared distances to `before`
        least (orthogonal Procrustes; Schönemann, 1966): lengths and angles stay.
    """
    known = ~np.isnan(places).any(axis=1) & ~np.isnan(before).any(axis=1)
    left, _, right = np.linalg.svd(places[known].T @ before[known])
    turned: Places = places @ (left @ right)
    return turned


def project(
    points: sphere.Floats,
    *,
    perplexity: int = PERPLEXITY,
    neighbours: int = NEIGHBOURS,
    seed: int = SEED,
    before: Mapping[str, Places] | None = None,
) -> dict[str, Places]:
    """Project the tokens of one state with every method.

    Parameters
    ----------
    points : array, shape (tokens, width)
        Unit rows, as `sphere.project` returns them.
    perplexity, neighbours, seed : int
        As `tsne` and `umap` take them.
    before : mapping, optional
        What this function returned for the layer before. t-SNE and UMAP then start from it, and
        all are aligned to it, so that a token moves no more than it must.

    Returns
    -------
    dict
        Method (`METHODS`) -> array, shape (tokens, 2).
    """
    last = before or {}
    found = {
        "pca": pca(points),
        "pca_centred": pca_centred(points),
        "tsne": tsne(points, perplexity, seed, last.get("tsne")),
        "umap": umap(points, neighbours, seed, last.get("umap")),
    }
    # A start does not keep t-SNE and UMAP from turning: on few tokens their first steps are wide.
    return {
        name: align(places, last[name]) if name in last else places
        for name, places in found.items()
    }
