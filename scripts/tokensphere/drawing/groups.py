"""Groups: the attention that clustered and unclustered tokens receive, and what tokens they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tokensphere.drawing import style
from tokensphere.received import GROUPS
from tokensphere.tables import states

COLUMNS = ["reading", "measure", "line", "layer", "state", "depth", "n_tokens", "value"]
KEYS = ["measure", "line", "layer", "state"]
EMPTY = ["value"]  # a group without a token

# Measure -> reading, cell in the companion's grid, label of its axis.
PANELS = {
    "received": ("published", (0, 0), "attention received\n(its mean over that of all)"),
    "punctuation": ("published", (1, 0), "punctuation\n(share of the group)"),
    "unclustered": ("published", (2, 0), "unclustered\n(share of tokens)"),
    "without_first": ("controlled", (0, 1), "attention received,\nwithout position 0"),
    "mask_corrected": ("controlled", (1, 1), "attention received,\nover what the mask gives"),
    "corrected_without_first": (
        "controlled", (2, 1), "over what the mask gives,\nwithout position 0",
    ),
    "first": ("controlled", (3, 0), "weight of position 0\n(share of attention)"),
    "heads": ("controlled", (3, 1), "heads in which unclustered\nreceive more (share)"),
}  # fmt: skip
# Measure of the attention received -> the column of its table.
RECEIVED = {
    "received": "published",
    "without_first": "published_without_first",
    "mask_corrected": "mask_corrected",
    "corrected_without_first": "mask_corrected_without_first",
}
ALL, EXPECTED, PUBLISHED = "all tokens", "content-free", "published"
CORRECTED = "over what the mask gives, without position 0"
PARITY = 1.0


def assemble(
    received: pd.DataFrame,
    heads: pd.DataFrame,
    entropy: pd.DataFrame,
    classes: pd.DataFrame,
    clusters: pd.DataFrame,
) -> pd.DataFrame:
    """Choose the numbers that a figure of groups draws, both readings.

    Parameters
    ----------
    received, heads, entropy : DataFrame
        `attention_received`, `attention_received_heads` and `attention_entropy` of one run, of
        blocks 1..L.
    classes, clusters : DataFrame
        `token_classes` and `clusters` of the same run, of layers 0..L and the final norm.

    Returns
    -------
    DataFrame
        One row a point drawn: reading, measure (a key of `PANELS`), line (the group, or what else
        a panel has a line of), layer (a block's number where the measure is of attention), state,
        depth, n_tokens, value (NaN for a group without a token). The published measures are
        those of the study; the shares of punctuation and of unclustered tokens have the final
        norm, where there is one, in the place of the last layer.
    """
    parts = [
        _points(measure, received["group"], received, received[column])
        for measure, column in RECEIVED.items()
    ]
    kinds, counts = states(classes, "published"), states(clusters, "published")
    parts.append(_points("punctuation", kinds["group"], kinds, kinds["punctuation"]))
    parts.append(_points("unclustered", ALL, counts, 1 - counts["membership"]))
    first = entropy.groupby("layer", as_index=False).mean(numeric_only=True)
    parts.append(_points("first", PUBLISHED, first, first["first_token_share"]))
    parts.append(_points("first", EXPECTED, first, first["first_token_expected"]))
    for line, column in (
        (PUBLISHED, "published"),
        (CORRECTED, "mask_corrected_without_first"),
    ):
        more = _heads_with_more(heads, column)
        parts.append(_points("heads", line, more, more["value"]))
    every = pd.concat(parts, ignore_index=True)
    return every.assign(
        reading=every["measure"].map({name: panel[0] for name, panel in PANELS.items()}),
        depth=every["layer"] / every["layer"].max(),
        n_tokens=int(clusters["n_tokens"].iloc[0]),
    )[COLUMNS]


def _points(
    measure: str, line: str | pd.Series[str], rows: pd.DataFrame, value: pd.Series[float]
) -> pd.DataFrame:
    points = {"measure": measure, "line": line, "layer": rows["layer"], "value": value}
    return pd.DataFrame(points).assign(state=rows.get("state", "residual"))


def _heads_with_more(heads: pd.DataFrame, column: str) -> pd.DataFrame:
    """Count the heads of each block in which unclustered tokens receive more; NaN without some."""
    one = heads.pivot(index=["layer", "head"], columns="group", values=column)
    clustered, unclustered = (one[group] for group in GROUPS)
    more = (unclustered > clustered).astype(float).where(clustered.notna() & unclustered.notna())
    return more.groupby("layer").mean().rename("value").reset_index()


def shared_limits(runs: Sequence[pd.DataFrame]) -> float:
    """Choose the end of the axis that all panels of received attention share: the largest value."""
    data = pd.concat(runs)
    largest = data.loc[data["measure"].isin(RECEIVED), "value"].max()
    return float(np.nanmax([largest, PARITY]))


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    title: str,
    titles: Mapping[str, str],
    limit: float,
    colours: Mapping[str, str],
) -> Figure:
    """Draw three panels side by side, or with their controls in a grid of two columns.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it.
    readings : sequence of str
        `published`, or `published` and `controlled`.
    title : str
        What the whole picture shows.
    titles : mapping
        Reading -> text above its column.
    limit : float
        The end of the axes of received attention, as `shared_limits` returns it.
    colours : mapping
        Group -> colour.
    """
    alone = len(readings) == 1
    shown = {name: panel for name, panel in PANELS.items() if panel[0] in readings}
    figure = style.new(style.PAGE, 2.5 if alone else style.TALLEST)
    figure.suptitle(title, x=0.01, ha="left")
    grid = figure.subplots(1, 3).reshape(-1, 1) if alone else figure.subplots(4, 2)
    for measure, (reading, cell, label) in shown.items():
        axes: Axes = grid[*cell]
        _panel(axes, data[data["measure"] == measure], colours)
        axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), ylabel=label)
        if measure in RECEIVED:
            axes.axhline(PARITY, color=style.MARK, lw=0.8, zorder=1)
        top = limit if measure in RECEIVED else 1.0
        axes.set_ylim(-0.03 * top, 1.03 * top)
        if not alone and cell[0] == 0:
            axes.set_title(titles[reading], loc="left")
    wide = "depth (layer / number of layers)"
    for axes in grid[:, 0] if alone else grid[-1]:
        axes.set_xlabel(wide.replace(" (", "\n(") if alone else wide)
    figure.legend(handles=_legend(data, colours), loc="outside lower left", ncols=3)
    return figure


def _look(line: str, colours: Mapping[str, str]) -> dict[str, Any]:
    if line in colours:
        return {"color": colours[line], "linestyle": "solid"}
    return {
        "color": style.MARK,
        "linestyle": {EXPECTED: "dotted", CORRECTED: "dashed"}.get(line, "solid"),
    }


def _panel(axes: Axes, points: pd.DataFrame, colours: Mapping[str, str]) -> None:
    values = points.pivot(index="depth", columns="line", values="value").sort_index()
    depths = values.index.to_numpy()
    style.shade_undefined(axes, depths, np.where(values.isna().all(axis="columns"), np.nan, 0.0))
    for line in points["line"].unique():
        marker = "." if len(depths) < 16 else None
        look = _look(line, colours)
        axes.plot(depths, values[line], marker=marker, clip_on=False, **look)
        style.mark_final_norm(axes, points[points["line"] == line], "depth", look["color"])


def _legend(data: pd.DataFrame, colours: Mapping[str, str]) -> list[Line2D]:
    names = dict.fromkeys([*colours, *data["line"]])
    handles = [Line2D([], [], label=name, **_look(name, colours)) for name in names if name != ALL]
    if (data["state"] == "final_norm").any():
        handles.append(style.final_norm_entry())
    return handles
