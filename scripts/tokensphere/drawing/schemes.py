"""Schemes: collapse under trained weights and under every random scheme, against depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tokensphere.drawing import style
from tokensphere.tables import states

COLUMNS = [
    "reading", "measure", "model", "label", "weights", "layer", "state", "depth", "n_tokens",
    "value",
]  # fmt: skip
KEYS = ["measure", "model", "weights", "layer", "state"]
EMPTY = ["value"]  # a prompt without a pair of distinct tokens

# Reading -> measure -> column of its table, label of its axis, and whether it ends at 1.
PANELS: dict[str, dict[str, tuple[str, str, bool]]] = {
    "published": {
        "mass": ("mass_near_one", "mass near 1\n(share of pairs)", True),
        "rank": ("raw", "effective rank,\nraw states", False),
    },
    "controlled": {
        "mass": ("mass_near_one_distinct", "mass near 1\n(distinct-id pairs)", True),
        "rank": ("sphere", "effective rank\non the sphere", False),
    },
}
MEASURES = ("mass", "rank")


def assemble(
    products: Sequence[pd.DataFrame],
    ranks: Sequence[pd.DataFrame],
    runs: Sequence[Mapping[str, str]],
) -> pd.DataFrame:
    """Choose the numbers that a figure of schemes draws, both readings.

    Parameters
    ----------
    products, ranks : sequence of DataFrame
        `inner_products` and `effective_rank`, one a run.
    runs : sequence of mapping
        What the frames are of: model, label, weights.

    Returns
    -------
    DataFrame
        One row a point drawn: reading, measure (mass, rank), model, label, weights, layer, state,
        depth, n_tokens, value. The published reading has the final norm, where there is one, in
        the place of the last layer; the controlled one is the raw residual stream.
    """
    parts = []
    for reading, panels in PANELS.items():
        for measure, (column, _, _) in panels.items():
            for table, run in zip(products if measure == "mass" else ranks, runs, strict=True):
                rows = states(table, reading)
                parts.append(
                    rows[["layer", "state", "n_tokens"]].assign(
                        reading=reading,
                        measure=measure,
                        **{key: run[key] for key in ("model", "label", "weights")},
                        depth=rows["layer"] / rows["layer"].max(),
                        value=rows[column],
                    )
                )
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def scheme_of(weights: str) -> str:
    """Return `trained`, or the scheme of a random weight set."""
    return weights.partition(".")[0]


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    title: str,
    trained: str = "trained",
    looks: Mapping[str, Mapping[str, str]],
) -> Figure:
    """Draw the published reading, a row a model; or a row a model and measure, its control beside.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it.
    readings : sequence of str
        `published`, or `published` and `controlled`.
    title : str
        What the whole picture shows.
    trained : str
        What the legend calls trained weights.
    looks : mapping
        `trained`, or a scheme -> `colour` and `line` (a style of lines).
    """
    models = data[["model", "label"]].drop_duplicates().to_numpy().tolist()
    if len(readings) == 1:
        rows = [[(model, readings[0], measure) for measure in MEASURES] for model, _ in models]
    else:
        rows = [
            [(model, reading, measure) for reading in readings]
            for model, _ in models
            for measure in MEASURES
        ]
    handles = _legend(data, looks, trained)
    figure = style.new(style.PAGE, min(1.7 * len(rows) + 0.75, style.TALLEST))
    grid = figure.subplots(len(rows), 2, squeeze=False)
    labels = dict(models)
    for place, cells in enumerate(rows):
        for column, (model, reading, measure) in enumerate(cells):
            axes: Axes = grid[place, column]
            here = (data["model"] == model) & (data["reading"] == reading)
            _panel(axes, data[here & (data["measure"] == measure)], PANELS[reading][measure], looks)
            if place == 0 or rows[place - 1][column][0] != model:
                axes.set_title(_title(labels[model], readings, column), loc="left")
            if place == len(rows) - 1:
                axes.set_xlabel("depth (layer / number of layers)")
    figure.suptitle(title, x=0.01, ha="left")
    figure.legend(handles=handles, loc="outside lower left", ncols=3)
    return figure


def _title(label: str, readings: Sequence[str], column: int) -> str:
    if len(readings) == 1:
        return label if column == 0 else ""
    return f"{label}, {('as published', 'controlled')[column]}"


def _look(weights: str, looks: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    look = looks[scheme_of(weights)]
    return {"color": look["colour"], "linestyle": look["line"]}


def _panel(
    axes: Axes,
    points: pd.DataFrame,
    panel: tuple[str, str, bool],
    looks: Mapping[str, Mapping[str, str]],
) -> None:
    values = points.pivot(index="depth", columns="weights", values="value").sort_index()
    depths = values.index.to_numpy()
    style.shade_undefined(axes, depths, np.where(values.isna().any(axis="columns"), np.nan, 0.0))
    for weights in points["weights"].unique():
        look = _look(weights, looks)
        axes.plot(depths, values[weights], clip_on=False, **look)
        style.mark_final_norm(axes, points[points["weights"] == weights], "depth", look["color"])
    _, label, share = panel
    top = 1.0 if share else float(np.nanmax([points["value"].max(), 1.0]))
    axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), ylim=(-0.03 * top, 1.03 * top), ylabel=label)


def _legend(
    data: pd.DataFrame, looks: Mapping[str, Mapping[str, str]], trained: str
) -> list[Line2D]:
    drawn = {scheme_of(weights) for weights in data["weights"]}
    handles = [
        Line2D([], [], label=trained if scheme == "trained" else scheme, **_look(scheme, looks))
        for scheme in looks
        if scheme in drawn
    ]
    if (data["state"] == "final_norm").any():
        handles.append(style.final_norm_entry())
    return handles
