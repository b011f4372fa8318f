"""Curves: one value a layer, of every model, trained and random, against depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tokensphere import statistics
from tokensphere.drawing import style

COLUMNS = [
    "reading", "model", "label", "weights", "series", "layer", "state", "depth", "n_tokens",
    "value", "low", "high", "seeds", "prompts",
]  # fmt: skip


def assemble(
    frames: Sequence[pd.DataFrame],
    runs: Sequence[Mapping[str, str]],
    *,
    published: str,
    controlled: str,
    prompt: str,
    controls: Sequence[str],
) -> pd.DataFrame:
    """Compute the numbers that a figure of curves draws.

    The published reading is one prompt, mean and -+ 1 SD over seeds, with the final norm in the
    place of the last layer. The controlled reading is the raw residual stream, seeds averaged
    within a prompt, mean and bootstrap band over prompts; a control prompt is a series of its
    own.

    Parameters
    ----------
    frames : sequence of DataFrame
        Per-run tables with `layer`, `state`, `n_tokens` and the two columns.
    runs : sequence of mapping
        What each table is of: model, weights, prompt, label.
    published, controlled : str
        The column of each reading.
    prompt : str
        The prompt of the published reading.
    controls : sequence of str
        Prompts that are never averaged with others.

    Returns
    -------
    DataFrame
        One row a point drawn: reading, model, label, weights (trained, random), series (the
        prompt, or `mean over prompts`), layer, state, depth, n_tokens (NaN over several
        prompts), value, low, high, seeds and prompts (how many are in the value).
    """
    rows = [
        frame.assign(
            model=run["model"],
            label=run["label"],
            weights="trained" if run["weights"] == "trained" else "random",
            seed=run["weights"],
            prompt=run["prompt"],
        )
        for frame, run in zip(frames, runs, strict=True)
    ]
    every = pd.concat(rows, ignore_index=True)
    parts = []
    for _, one in every.groupby(["model", "weights"], sort=False):
        parts.append(_published(one[one["prompt"] == prompt], published))
        usual = one[~one["prompt"].isin(controls)]
        if len(usual):
            parts.append(_controlled(usual, controlled))
        for control in controls:
            parts.append(_controlled(one[one["prompt"] == control], controlled))
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def _published(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    last = rows["layer"].max()
    normed = (rows["state"] == "final_norm").any()
    shown = rows[(rows["state"] == "residual") & ~(normed & (rows["layer"] == last))]
    shown = pd.concat([shown, rows[rows["state"] == "final_norm"]])
    values = shown.pivot(index="seed", columns="layer", values=column)
    return _points(shown, "published", statistics.over_seeds(values), len(values), 1)


def _controlled(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    shown = rows[rows["state"] == "residual"]
    # `sort=False` keeps the prompts in the order of the configuration; layers are sorted after.
    values = shown.pivot_table(
        index="prompt", columns="layer", values=column, aggfunc=_mean, dropna=False, sort=False
    ).sort_index(axis="columns")
    seeds = shown["seed"].nunique()
    return _points(shown, "controlled", statistics.over_prompts(values), seeds, len(values))


def _mean(values: pd.Series[float]) -> float:
    """Average with NaN if one is NaN: an undefined seed must not vanish from a mean."""
    return float(np.mean(values.to_numpy()))


def _points(
    rows: pd.DataFrame, reading: str, band: statistics.Band, seeds: int, prompts: int
) -> pd.DataFrame:
    first = rows.drop_duplicates("layer").sort_values("layer")
    series = rows["prompt"].iloc[0] if prompts == 1 else "mean over prompts"
    return first[["model", "label", "weights", "layer", "state"]].assign(
        reading=reading,
        series=series,
        depth=first["layer"] / first["layer"].max(),
        n_tokens=first["n_tokens"] if prompts == 1 else np.nan,
        value=band.mean,
        low=band.low,
        high=band.high,
        seeds=seeds,
        prompts=prompts,
    )


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    colours: Mapping[str, str],
    controls: Sequence[str],
    titles: Mapping[str, str],
    axes_labels: Mapping[str, str],
    limits: Sequence[float],
    band_opacity: float,
) -> Figure:
    """Draw one panel for each reading, side by side, with one legend below.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it.
    readings : sequence of str
        `published`, or `published` and `controlled`.
    colours : mapping
        Model -> colour; random weights have the same one, dashed.
    controls : sequence of str
        Series that are drawn as thin lines.
    titles, axes_labels : mapping
        Reading -> text.
    limits : sequence of float
        Smallest and largest value of the axis.
    band_opacity : float
    """
    width = style.COLUMN if len(readings) == 1 else style.PAGE
    entries = 2 * data["model"].nunique()
    rows = -(-entries // len(readings)) + len(set(controls))
    figure = style.new(width, 2.6 + 0.17 * rows)
    panels = figure.subplots(1, len(readings), sharey=False, squeeze=False)[0]
    for axes, reading in zip(panels, readings, strict=True):
        shown = data[data["reading"] == reading]
        for _, points in shown.groupby(["model", "weights", "series"], sort=False):
            first = points.iloc[0]
            thin = first["series"] in controls
            _line(axes, points, colours[first["model"]], first["weights"], thin, band_opacity)
        axes.set_title(titles[reading], loc="left")
        axes.set_xlabel("depth (layer / number of layers)")
        axes.set_ylabel(axes_labels[reading])
        axes.set_xlim(0, 1)
        margin = 0.03 * (limits[1] - limits[0])
        axes.set_ylim(limits[0] - margin, limits[1] + margin)
    figure.legend(
        handles=_legend(data[data["reading"].isin(readings)], colours, controls),
        loc="outside lower left",
        ncols=len(readings),
    )
    return figure


def _line(
    axes: Axes, points: pd.DataFrame, colour: str, weights: str, thin: bool, opacity: float
) -> None:
    depth, value = points["depth"].to_numpy(), points["value"].to_numpy()
    axes.plot(
        depth,
        value,
        color=colour,
        linestyle=style.LINE_STYLES[weights],
        linewidth=0.7 if thin else None,
        marker="." if len(depth) < 16 and not thin else None,
        markersize=4,
        clip_on=False,
    )
    axes.fill_between(
        depth,
        points["low"].to_numpy(),
        points["high"].to_numpy(),
        color=colour,
        alpha=opacity,
        lw=0,
    )
    for _, normed in points[points["state"] == "final_norm"].iterrows():
        axes.plot(
            normed["depth"],
            normed["value"],
            marker="o",
            mfc="white",
            mec=colour,
            ms=4,
            clip_on=False,
            zorder=3,
        )
    style.shade_undefined(axes, depth, value)


def _legend(
    data: pd.DataFrame, colours: Mapping[str, str], controls: Sequence[str]
) -> list[Line2D]:
    handles = []
    for _, points in data.groupby(["model", "weights"], sort=False):
        model, label, weights = (str(points[key].iloc[0]) for key in ("model", "label", "weights"))
        for thin in (False, True):
            if (points["series"].isin(controls) == thin).any():
                handles.append(
                    Line2D(
                        [],
                        [],
                        color=colours[model],
                        linestyle=style.LINE_STYLES[weights],
                        linewidth=0.7 if thin else 1.5,
                        label=f"{label}, {weights}" + (", control prompt" if thin else ""),
                    )
                )
    return handles
