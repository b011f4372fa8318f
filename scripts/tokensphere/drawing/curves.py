"""Curves: one value a layer, of every model, trained and random, against depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tokensphere import statistics
from tokensphere.drawing import style

COLUMNS = [
    "reading", "measure", "model", "label", "weights", "series", "layer", "state", "depth",
    "n_tokens", "value", "low", "high", "reference", "seeds", "prompts",
]  # fmt: skip
MEAN = "mean over prompts"
KEYS = ["measure", "model", "weights", "series", "layer", "n_tokens"]

Panel = Mapping[str, Any]


def assemble(
    tables: Mapping[str, Sequence[pd.DataFrame]],
    runs: Sequence[Mapping[str, str]],
    panels: Sequence[Panel],
    *,
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
    tables : mapping
        Name of a table -> its per-run frames, one a run. Tables of states have `layer` and
        `state`; their columns are joined. Tables of lengths have `layer` and `tokens`.
    runs : sequence of mapping
        What the frames are of: model, weights, prompt, label.
    panels : sequence of mapping
        `reading` (published, controlled); `column`, the measure; `gate`, a column that must be
        true, or the value counts as undefined; `reference`, a column drawn beside it; `x`,
        `depth` (default) or `n_tokens`, which takes means over layers of a table of lengths.
    prompt : str
        The prompt of the published reading.
    controls : sequence of str
        Prompts that are never averaged with others.

    Returns
    -------
    DataFrame
        One row a point drawn: reading, measure, model, label, weights (trained, random), series
        (the prompt, or `mean over prompts`), layer, state, depth, n_tokens (NaN over several
        prompts), value, low, high, reference, seeds and prompts (how many are in the value).
    """
    states = _stack([names for names in tables if not _has_lengths(tables[names])], tables, runs)
    lengths = _stack([names for names in tables if _has_lengths(tables[names])], tables, runs)
    parts = []
    for panel in panels:
        every = _values(lengths if _by_length(panel) else states, panel)
        for _, one in every.groupby(["model", "weights"], sort=False):
            if panel["reading"] == "published":
                parts.append(_published(one[one["prompt"] == prompt]))
                continue
            usual = one[~one["prompt"].isin(controls)]
            shown = [usual, *(one[one["prompt"] == control] for control in controls)]
            collect = _over_lengths if _by_length(panel) else _controlled
            parts += [collect(rows) for rows in shown if len(rows)]
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def _has_lengths(frames: Sequence[pd.DataFrame]) -> bool:
    return "tokens" in frames[0]


def _by_length(panel: Panel) -> bool:
    return bool(panel.get("x", "depth") == "n_tokens")


def _stack(
    names: Sequence[str],
    tables: Mapping[str, Sequence[pd.DataFrame]],
    runs: Sequence[Mapping[str, str]],
) -> pd.DataFrame:
    """Join the tables of each run on what names a row, and put the runs under each other."""
    if not names:
        return pd.DataFrame()
    stacked = []
    for position, run in enumerate(runs):
        frames = [tables[name][position] for name in names]
        joined = frames[0]
        for frame in frames[1:]:
            fresh = [name for name in frame if name not in joined or name in ("layer", "state")]
            joined = joined.merge(frame[fresh], on=["layer", "state"], validate="one_to_one")
        stacked.append(
            joined.assign(
                model=run["model"],
                label=run["label"],
                weights="trained" if run["weights"] == "trained" else "random",
                seed=run["weights"],
                prompt=run["prompt"],
            )
        )
    return pd.concat(stacked, ignore_index=True)


def _values(rows: pd.DataFrame, panel: Panel) -> pd.DataFrame:
    """Take a panel's measure as `value`, undefined where its gate is closed."""
    value = rows[panel["column"]].to_numpy(dtype=float)
    if "gate" in panel:
        value = np.where(rows[panel["gate"]].to_numpy(dtype=bool), value, np.nan)
    shown = rows.assign(measure=panel["column"], value=value, reference=np.nan)
    if "reference" in panel:
        shown["reference"] = rows[panel["reference"]]
    return shown


def _published(rows: pd.DataFrame) -> pd.DataFrame:
    last = rows["layer"].max()
    normed = (rows["state"] == "final_norm").any()
    shown = rows[(rows["state"] == "residual") & ~(normed & (rows["layer"] == last))]
    shown = pd.concat([shown, rows[rows["state"] == "final_norm"]])
    values = shown.pivot(index="seed", columns="layer", values="value")
    return _points(shown, "published", statistics.over_seeds(values), len(values), 1)


def _controlled(rows: pd.DataFrame) -> pd.DataFrame:
    shown = rows[rows["state"] == "residual"]
    # `sort=False` keeps the prompts in the order of the configuration; layers are sorted after.
    values = shown.pivot_table(
        index="prompt", columns="layer", values="value", aggfunc=_mean, dropna=False, sort=False
    ).sort_index(axis="columns")
    seeds = shown["seed"].nunique()
    return _points(shown, "controlled", statistics.over_prompts(values), seeds, len(values))


def _over_lengths(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over layers and seeds, then over the prompts that have so many tokens.

    A length that only one of several prompts has (its own) would make the mean jump: it is left
    out.
    """
    values = rows.groupby(["tokens", "prompt"], sort=False)["value"].mean().reset_index()
    parts = []
    several = rows["prompt"].nunique() > 1
    for tokens, some in values.groupby("tokens"):
        if several and len(some) == 1:
            continue
        band = statistics.over_prompts(some["value"].to_numpy()[:, None])
        first = rows[rows["tokens"] == tokens].iloc[[0]]
        one = MEAN if several else some["prompt"].iloc[0]
        parts.append(
            first[["model", "label", "weights", "measure"]].assign(
                reading="controlled",
                series=one,
                layer=np.nan,
                state="residual",
                depth=np.nan,
                n_tokens=tokens,
                value=band.mean,
                low=band.low,
                high=band.high,
                reference=np.nan,
                seeds=rows["seed"].nunique(),
                prompts=len(some),
            )
        )
    return pd.concat(parts) if parts else pd.DataFrame()


def _mean(values: pd.Series[float]) -> float:
    """Average with NaN if one is NaN: an undefined seed must not vanish from a mean."""
    return float(np.mean(values.to_numpy()))


def _points(
    rows: pd.DataFrame, reading: str, band: statistics.Band, seeds: int, prompts: int
) -> pd.DataFrame:
    first = rows.drop_duplicates("layer").sort_values("layer")
    series = rows["prompt"].iloc[0] if prompts == 1 else MEAN
    reference = rows.groupby("layer")["reference"].mean()
    return first[["measure", "model", "label", "weights", "layer", "state"]].assign(
        reading=reading,
        series=series,
        depth=first["layer"] / first["layer"].max(),
        n_tokens=first["n_tokens"] if prompts == 1 else np.nan,
        value=band.mean,
        low=band.low,
        high=band.high,
        reference=reference.reindex(first["layer"]).to_numpy(),
        seeds=seeds,
        prompts=prompts,
    )


X_LABELS = {"depth": "depth (layer / number of layers)", "n_tokens": "first tokens of each prompt"}


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    panels: Sequence[Panel],
    colours: Mapping[str, str],
    controls: Sequence[str],
    trained_as: Mapping[str, str],
    titles: Mapping[str, str],
    band_opacity: float,
) -> Figure:
    """Draw the panels of the readings side by side, with one legend below.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it.
    readings : sequence of str
        `published`, or `published` and `controlled`.
    panels : sequence of mapping
        As `assemble` takes them; also `axis`, the label of the value axis, `limits`, its ends
        (default: from the data), and `line`, a value to mark.
    colours : mapping
        Model -> colour; random weights have the same one, dashed.
    controls : sequence of str
        Series that are drawn as thin lines.
    trained_as : mapping
        Model -> what its trained weights are called.
    titles : mapping
        Reading -> text.
    band_opacity : float
    """
    shown = [panel for panel in panels if panel["reading"] in readings]
    data = data[data["reading"].isin(readings)]
    handles = _legend(data, colours, controls, trained_as)
    columns = min(len(shown), 2)
    figure = style.new(
        style.COLUMN if len(shown) == 1 else style.PAGE, 2.6 + 0.17 * -(-len(handles) // columns)
    )
    for axes, panel in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        here = (data["reading"] == panel["reading"]) & (data["measure"] == panel["column"])
        by_length = _by_length(panel)
        for _, points in data[here & (data["layer"].isna() == by_length)].groupby(
            ["model", "weights", "series"], sort=False
        ):
            first = points.iloc[0]
            thin = first["series"] in controls
            x = panel.get("x", "depth")
            _line(axes, points, x, colours[first["model"]], first["weights"], thin, band_opacity)
        if "line" in panel:
            axes.axhline(panel["line"], color=style.MARK, lw=0.8, zorder=1)
        first_of_reading = panel is next(p for p in shown if p["reading"] == panel["reading"])
        axes.set_title(titles[panel["reading"]] if first_of_reading else "", loc="left")
        axes.set_xlabel(X_LABELS[panel.get("x", "depth")])
        axes.set_ylabel(panel["axis"])
        if by_length:
            axes.set_xlim(left=0)
        else:
            axes.set_xlim(0, 1)
        low, high = panel.get("limits", (0, axes.get_ylim()[1]))
        margin = 0.03 * (high - low)
        axes.set_ylim(low - margin, high + margin)
    figure.legend(handles=handles, loc="outside lower left", ncols=columns)
    return figure


def _line(
    axes: Axes,
    points: pd.DataFrame,
    x: str,
    colour: str,
    weights: str,
    thin: bool,
    opacity: float,
) -> None:
    along, value = points[x].to_numpy(), points["value"].to_numpy()
    axes.plot(
        along,
        value,
        color=colour,
        linestyle=style.LINE_STYLES[weights],
        linewidth=0.7 if thin else None,
        marker="." if len(along) < 16 and not thin else None,
        markersize=4,
        clip_on=False,
    )
    axes.fill_between(
        along,
        points["low"].to_numpy(),
        points["high"].to_numpy(),
        color=colour,
        alpha=opacity,
        lw=0,
    )
    if not thin and weights == "trained" and points["reference"].notna().any():
        axes.plot(along, points["reference"].to_numpy(), color=colour, ls="dotted", lw=1)
    for _, normed in points[points["state"] == "final_norm"].iterrows():
        axes.plot(
            normed[x],
            normed["value"],
            marker="o",
            mfc="white",
            mec=colour,
            ms=4,
            clip_on=False,
            zorder=3,
        )
    style.shade_undefined(axes, along, value)


def _legend(
    data: pd.DataFrame,
    colours: Mapping[str, str],
    controls: Sequence[str],
    trained_as: Mapping[str, str],
) -> list[Line2D]:
    handles = []
    for _, points in data.groupby(["model", "weights"], sort=False):
        model, label, weights = (str(points[key].iloc[0]) for key in ("model", "label", "weights"))
        named = trained_as[model] if weights == "trained" else weights
        style_of = {"color": colours[model], "linestyle": style.LINE_STYLES[weights]}
        handles.append(Line2D([], [], label=f"{label}, {named}", **style_of))
    for control in controls:
        if (data["series"] == control).any():
            name = f"thin lines: {control} (control)"
            handles.append(Line2D([], [], color=style.MARK, linewidth=0.7, label=name))
    return handles
