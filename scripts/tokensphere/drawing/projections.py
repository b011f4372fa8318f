"""Projections: tokens in two dimensions by PCA, t-SNE and UMAP, coloured by their clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tokensphere.drawing import style

COLUMNS = [
    "reading", "model", "weights", "layer", "state", "depth", "method", "token", "x", "y",
    "label", "tracked",
]  # fmt: skip
KEYS = ["model", "weights", "layer", "state", "method", "token"]
EMPTY = ["x", "y"]  # a token without direction, or a cloud of too few tokens
SHOWN: dict[str, tuple[str, ...]] = {
    "published": ("pca", "tsne", "umap"),
    "controlled": ("pca_centred", "tsne", "umap"),
}
NAMES = {"pca": "PCA", "pca_centred": "PCA, centred", "tsne": "t-SNE", "umap": "UMAP"}
FINAL = "final_norm"
NO_CLUSTER = -1


def assemble(
    embeddings: Mapping[str, NDArray[np.float64]],
    labels: Mapping[tuple[int, str], NDArray[np.int64]],
    tracks: pd.DataFrame,
    *,
    model: str,
    weights: str,
) -> pd.DataFrame:
    """Give every token of the drawn states its place and its cluster, in both readings.

    Parameters
    ----------
    embeddings : mapping
        `{method}_{layer}` and `{method}_final_norm` -> array, shape (tokens, 2).
    labels : mapping
        (layer, state) -> the cluster of each token, -1 for a token in none.
    tracks : DataFrame
        `cluster_tracks` of the run: which identity each cluster has.
    model, weights : str

    Returns
    -------
    DataFrame
        One row a reading, state, method and token. Published: PCA without centring, and the
        final norm in the place of the last layer; controlled: centred, raw residual stream
        throughout; t-SNE and UMAP again only where there is a final norm, and so a difference.
        `label` and `tracked` are -1 for a token in no cluster.
    """
    identities = {
        (layer, state, cluster): tracked
        for layer, state, cluster, tracked in tracks[
            ["layer", "state", "cluster", "tracked"]
        ].itertuples(index=False)
    }
    suffixes = [name.removeprefix("tsne_") for name in embeddings if name.startswith("tsne_")]
    layers = sorted(int(suffix) for suffix in suffixes if suffix != FINAL)
    last = max(layer for layer, _ in labels)
    parts = []
    again = SHOWN["controlled"] if FINAL in suffixes else ("pca_centred",)
    for reading, methods in (SHOWN | {"controlled": again}).items():
        for layer in layers:
            final = reading == "published" and layer == last and FINAL in suffixes
            state = FINAL if final else "residual"
            here = labels[layer, state]
            tracked = [identities.get((layer, state, label), NO_CLUSTER) for label in here.tolist()]
            for method in methods:
                places = embeddings[f"{method}_{FINAL if final else layer}"]
                columns: dict[str, Any] = {
                    "reading": reading,
                    "model": model,
                    "weights": weights,
                    "layer": layer,
                    "state": state,
                    "depth": layer / last if last else 0.0,
                    "method": method,
                    "token": np.arange(len(here)),
                    "x": places[:, 0],
                    "y": places[:, 1],
                    "label": here,
                    "tracked": tracked,
                }
                parts.append(pd.DataFrame(columns, columns=COLUMNS))
    return pd.concat(parts, ignore_index=True)


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    names: Mapping[tuple[str, str], str],
    titles: Mapping[str, str],
) -> Figure:
    """Draw a block of panels for each run, one below the other, the readings side by side.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it, of one run or several.
    readings : sequence of str
    names : mapping
        (model, weights) -> text above its block.
    titles : mapping
        Reading -> text above its half, where there are two.
    """
    runs = {run: data[(data["model"] == run[0]) & (data["weights"] == run[1])] for run in names}
    several = len(readings) > 1
    rows = sum(shown["layer"].nunique() for shown in runs.values())
    height = rows * (1.35 if several else 1.9) + 0.45 * len(runs) + 0.5
    figure = style.new(style.PAGE, min(height, style.TALLEST))
    drawn = {reading: set(data.loc[data["reading"] == reading, "method"]) for reading in readings}
    methods = {
        reading: [method for method in SHOWN[reading] if method in drawn[reading]]
        for reading in readings
    }
    blocks = figure.subfigures(
        len(runs),
        len(readings),
        squeeze=False,
        height_ratios=[shown["layer"].nunique() for shown in runs.values()],
        # The ticks and the label of the PCA panels take about half a panel.
        width_ratios=[len(methods[reading]) + 0.5 for reading in readings],
    )
    for row, (run, shown) in zip(blocks, runs.items(), strict=True):
        for block, reading in zip(row, readings, strict=True):
            # The name of the run may reach over both halves, so the right one leaves its line free.
            above = names[run] if reading == readings[0] else ""
            text = f"{above}\n{titles[reading]}" if several else above
            block.suptitle(text, x=0.01, ha="left", fontsize=8)
            # Half as wide a panel, half as large a point.
            _panels(
                block, shown[shown["reading"] == reading], methods[reading], 4 if several else 9
            )
    figure.legend(
        handles=[
            _sample(style.cluster_marker(10), style.cluster_colour(10), "a token in a cluster"),
            _sample("x", style.UNCLUSTERED, "a token in no cluster"),
            Line2D([], [], lw=0, label="same colour and shape = same cluster, at every depth"),
        ],
        loc="outside lower left",
        ncols=3,
        columnspacing=1.5,
    )
    return figure


def _sample(marker: str, colour: str, label: str) -> Line2D:
    return Line2D([], [], lw=0, marker=marker, ms=5, mfc=colour, mec=colour, label=label)


def _panels(block: SubFigure, data: pd.DataFrame, methods: Sequence[str], size: float) -> None:
    layers = sorted(data["layer"].unique().tolist())
    grid = block.subplots(len(layers), len(methods), squeeze=False)
    for row, layer in zip(grid, layers, strict=True):
        here = data[data["layer"] == layer]
        for axes, method in zip(row, methods, strict=True):
            _panel(axes, here[here["method"] == method], size)
            if layer == layers[0]:
                axes.set_title(NAMES[method])
            if not method.startswith("pca"):
                axes.set(xticks=[], yticks=[])
        state = "\nfinal norm" if (here["state"] == FINAL).any() else ""
        row[0].set_ylabel(f"layer {layer}{state}\ncomponent 2")
    grid[-1][0].set_xlabel("component 1")


def _panel(axes: Axes, data: pd.DataFrame, size: float) -> None:
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=style.UNDEFINED)
    axes.xaxis.set_major_locator(MaxNLocator(2))
    axes.yaxis.set_major_locator(MaxNLocator(2))
    # Of a collapsed cloud the common part would stand apart from the ticks, across the label.
    axes.ticklabel_format(useOffset=False)
    axes.margins(0.08)
    placed = data.dropna(subset=["x", "y"])
    if placed.empty:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "too few\ntokens", ha="center", va="center", transform=axes.transAxes)
        return
    loose = placed[placed["tracked"] == NO_CLUSTER]
    axes.scatter(loose["x"], loose["y"], s=size * 0.7, marker="x", color=style.UNCLUSTERED, lw=0.5)
    clustered = placed[placed["tracked"] != NO_CLUSTER]
    for marker, points in clustered.groupby(clustered["tracked"].map(style.cluster_marker)):
        axes.scatter(
            points["x"],
            points["y"],
            s=size,
            marker=str(marker),
            c=[style.cluster_colour(tracked) for tracked in points["tracked"]],
            edgecolors="#333333",
            lw=0.2,
        )
