"""Heads: every head of every block as a cell of a map, and what the maps have to do with rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from tokensphere.drawing import style
from tokensphere.received import CLUSTERED
from tokensphere.tables import states

COLUMNS = ["reading", "weights", "measure", "layer", "head", "depth", "rank", "value"]
KEYS = ["weights", "measure", "layer", "head"]
EMPTY = ["head", "rank", "value"]

FIEDLER, RECEIVED, AGAINST = "fiedler", "received", "fiedler_against_rank"
# Reading -> columns of the Fiedler value, of attention received, of the effective rank.
READ = {
    "published": ("published", "published", "raw"),
    "controlled": ("symmetrised", "mask_corrected_without_first", "sphere"),
}
NAMES = {
    "published": (
        "Fiedler value,\nas published", "received by clustered\ntokens (1 = parity)",
        "effective rank, raw",
    ),
    "controlled": (
        "Fiedler value,\nsymmetrised", "the same over what the\nmask gives, without pos. 0",
        "effective rank on the sphere",
    ),
}  # fmt: skip
# Of a map of ratios; beyond these ends colours say no more.
RATIOS = (1 / 4, 4.0)


def assemble(
    fiedler: pd.DataFrame, received: pd.DataFrame, ranks: pd.DataFrame, *, weights: str
) -> pd.DataFrame:
    """Choose the numbers that a figure of heads draws of one run, both readings.

    Parameters
    ----------
    fiedler, received : DataFrame
        `fiedler` and `attention_received_heads` of the run.
    ranks : DataFrame
        `effective_rank` of the run.
    weights : str
        trained or random.

    Returns
    -------
    DataFrame
        One row a cell of a map (measure `fiedler` or `received`, the latter of clustered tokens),
        and one a point of the plot beside them (`fiedler_against_rank`: the mean over heads of a
        block, and the effective rank of the layer that it reads); value NaN where no token is
        clustered.
    """
    clustered = received[received["group"] == CLUSTERED]
    residual = states(ranks, "controlled").set_index("layer")
    parts = []
    for reading, (value, ratio, rank) in READ.items():
        means = fiedler.groupby("layer", as_index=False)[value].mean()
        for measure, rows, column in (
            (FIEDLER, fiedler, value),
            (RECEIVED, clustered, ratio),
            (AGAINST, means, value),
        ):
            points = pd.DataFrame({"layer": rows["layer"], "value": rows[column]})
            points["head"] = rows.get("head", np.nan)
            if measure == AGAINST:
                points["rank"] = residual.loc[rows["layer"] - 1, rank].to_numpy()
            parts.append(points.assign(reading=reading, measure=measure))
    every = pd.concat(parts, ignore_index=True).reindex(columns=COLUMNS)
    return every.assign(weights=weights, depth=every["layer"] / every["layer"].max())


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    names: Mapping[str, str],
    titles: Mapping[str, str],
) -> Figure:
    """Draw a row of two maps and a plot for each reading and weights.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it, of one run or several with different weights.
    readings : sequence of str
    names : mapping
        Weights -> text above their row.
    titles : mapping
        Reading -> text above its rows, where there are two.
    """
    rows = [(reading, weights) for reading in readings for weights in names]
    figure = style.new(style.PAGE, min(0.3 + 1.95 * len(rows), style.TALLEST))
    blocks = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
    for block, (reading, weights) in zip(blocks, rows, strict=True):
        above = f"{titles[reading]}: {names[weights]}" if len(readings) > 1 else names[weights]
        block.suptitle(above, x=0.01, ha="left", fontsize=8)
        shown = data[data["reading"] == reading]
        own = shown[shown["weights"] == weights]
        value, ratio, rank = NAMES[reading]
        maps, ratios, plot = block.subplots(1, 3, width_ratios=[1.15, 1.15, 1])
        largest = float(np.nanmax(shown.loc[shown["measure"] == FIEDLER, "value"]))
        _map(maps, own[own["measure"] == FIEDLER], value, "viridis", Normalize(0, largest))
        _map(ratios, own[own["measure"] == RECEIVED], ratio, "PuOr", LogNorm(*RATIOS))
        ratios.set_ylabel("")
        points = own[own["measure"] == AGAINST]
        dots = plot.scatter(points["rank"], points["value"], c=points["depth"], s=9, cmap="cividis")
        every = shown[shown["measure"] == AGAINST]
        plot.set(
            xlabel=rank,
            ylabel="mean over heads",
            xlim=_ends(every["rank"]),
            ylim=_ends(every["value"]),
        )
        bar = block.colorbar(dots, ax=plot, label="depth", ticks=(0.0, 0.5, 1.0))
        bar.outline.set_visible(False)
    return figure


def _map(axes: Axes, cells: pd.DataFrame, name: str, colours: str, norm: Normalize) -> None:
    grid = cells.pivot(index="head", columns="layer", values="value")
    heads, layers = len(grid), len(grid.columns)
    shades: Colormap = style.colours(colours)
    image = axes.imshow(
        grid.to_numpy(dtype=float),
        cmap=shades,
        norm=norm,
        aspect="auto",
        interpolation="nearest",
        extent=(0.5, layers + 0.5, heads - 0.5, -0.5),
    )
    axes.grid(visible=False)
    axes.set(xlabel="block", ylabel="head")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True))
    ratio = isinstance(norm, LogNorm)
    bar = axes.figure.colorbar(image, ax=axes, extend="both" if ratio else "neither")
    bar.outline.set_visible(False)
    if ratio:
        bar.set_ticks([RATIOS[0], 1.0, RATIOS[1]])
        bar.minorticks_off()
        bar.formatter = ScalarFormatter()
        bar.update_ticks()
    axes.set_title(name, loc="left")


def _ends(values: pd.Series[Any]) -> tuple[float, float]:
    """Return ends of an axis from 0 to just above the largest value."""
    largest = float(np.nanmax(values))
    return -0.03 * largest, 1.05 * largest
