"""Histograms: how the inner products of one run are spread, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tokensphere.drawing import style
from tokensphere.tables import states

# A bin's left edge is a sum of rounded numbers: .9 may read .8999999999.
EDGE = 1e-9
COUNTS = {"published": "count", "controlled": "count_distinct"}


def assemble(table: pd.DataFrame, panels: int) -> pd.DataFrame:
    """Compute the densities that a figure of histograms draws, both readings.

    Parameters
    ----------
    table : DataFrame
        `inner_product_histogram` of one run.
    panels : int
        How many layers are chosen, evenly from 0 to L; fewer where L is smaller.

    Returns
    -------
    DataFrame
        One row a bar: reading, layer, state, depth, bin_left, bin_right, count, density
        (integrates to 1 over [-1, 1]; NaN where no pair is counted). In the published reading
        the final norm, where there is one, stands in the place of the last layer.
    """
    last = int(table["layer"].max())
    parts = []
    for reading, column in COUNTS.items():
        shown = states(table, reading)
        for layer in np.unique(np.linspace(0, last, panels).astype(int)):
            rows = shown[shown["layer"] == layer]
            width = rows["bin_right"] - rows["bin_left"]
            total = rows[column].sum()
            parts.append(
                rows[["layer", "state", "bin_left", "bin_right"]].assign(
                    reading=reading,
                    depth=layer / last,
                    count=rows[column],
                    density=rows[column] / (total * width) if total else np.nan,
                )
            )
    columns = [
        "reading", "layer", "state", "depth", "bin_left", "bin_right", "count", "density",
    ]  # fmt: skip
    every: pd.DataFrame = pd.concat(parts, ignore_index=True)[columns]
    return every


def density_axis(runs: Sequence[pd.DataFrame], hidden: float) -> dict[str, Any]:
    """Choose one density axis for all panels: linear, or logarithmic where a spike hides the rest.

    Parameters
    ----------
    runs : sequence of DataFrame
        Bars of all panels that share the axis, one frame a run, as `assemble` returns them.
    hidden : float
        The axis is logarithmic if, in some panel, a larger share of pairs than this lies in bars
        lower than a twentieth of the axis.

    Returns
    -------
    dict
        `scale` (linear, log) and `limits`.
    """
    data = pd.concat(runs, keys=range(len(runs)), names=["run", "bar"])
    top = float(data["density"].max())
    low = data[data["density"] < top / 20]
    panel = ["run", "reading", "layer", "state"]
    share = low.groupby(panel)["count"].sum() / data.groupby(panel)["count"].sum()
    if share.max() > hidden:
        positive = data.loc[data["density"] > 0, "density"]
        return {"scale": "log", "limits": (float(positive.min()) / 2, top * 2)}
    return {"scale": "linear", "limits": (0.0, top * 1.05)}


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    title: str,
    titles: dict[str, str],
    axis: dict[str, Any],
    near_one: float,
    bar_colour: str,
    near_one_colour: str,
) -> Figure:
    """Draw one block of panels for each reading, side by side; the first reading is left.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it.
    readings : sequence of str
    title : str
        What the whole picture shows.
    titles : dict
        Reading -> text above its block.
    axis : dict
        As `density_axis` returns it.
    near_one : float
        Bins at or above it have the signal colour, the bin that contains it is hatched.
    bar_colour, near_one_colour : str
    """
    columns = 4 if len(readings) == 1 else 2
    number = data[["layer", "state"]][data["reading"] == readings[0]].drop_duplicates().shape[0]
    rows = -(-number // columns)
    figure = style.new(style.PAGE, 0.75 + 1.55 * rows)
    figure.suptitle(title, x=0.01, ha="left")
    blocks = figure.subfigures(1, len(readings), wspace=0.03, squeeze=False)[0]
    for block, reading in zip(blocks, readings, strict=True):
        shown = data[data["reading"] == reading]
        if len(readings) > 1:
            block.suptitle(titles[reading], x=0.02, ha="left", fontsize=8)
        panels = block.subplots(rows, columns, sharey=True, squeeze=False)
        bars = list(shown.groupby(["layer", "state"], sort=False))
        for axes, ((layer, state), points) in zip(panels.flat, bars, strict=False):
            _bars(axes, points, near_one, bar_colour, near_one_colour)
            name = f"layer {layer}" if state == "residual" else "final norm"
            axes.set_title(f"{name}, depth {points['depth'].iloc[0]:.2f}", loc="left")
            axes.set(xlim=(-1, 1), xticks=(-1, 0, 1), yscale=axis["scale"], ylim=axis["limits"])
        for axes in panels.flat[len(bars) :]:
            axes.set_visible(False)
        block.supxlabel("inner product ⟨sᵢ, sⱼ⟩", fontsize=8)
        block.supylabel("density of pairs", fontsize=8)
    figure.legend(
        handles=[
            Patch(color=bar_colour, label="pairs of tokens"),
            Patch(color=near_one_colour, label=f"wholly above {near_one:g}"),
            Patch(
                facecolor=bar_colour,
                hatch="////",
                edgecolor="white",
                label=f"the bin that contains {near_one:g}",
            ),
        ],
        loc="outside lower left",
        ncols=3,
    )
    return figure


def _bars(
    axes: Axes, points: pd.DataFrame, near_one: float, colour: str, near_one_colour: str
) -> None:
    left, right = points["bin_left"].to_numpy(), points["bin_right"].to_numpy()
    near = left >= near_one - EDGE
    holds = ~near & (right > near_one + EDGE)
    bars = axes.bar(
        left,
        points["density"].to_numpy(),
        width=right - left,
        align="edge",
        color=np.where(near, near_one_colour, colour),
    )
    for index in np.flatnonzero(holds):
        bars[index].set(hatch="////////", edgecolor="white", linewidth=0)
