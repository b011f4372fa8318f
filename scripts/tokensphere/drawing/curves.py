"""Curves: one value a layer, of each model, trained and random, against depth.

Panels of the same figure may also show a measure against the number of tokens, the spread of a
per-token share in bins, and the paired difference of trained and random weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from tokensphere import statistics
from tokensphere.drawing import captions, style
from tokensphere.tables import joined, states

COLUMNS = [
    "reading", "measure", "where", "model", "label", "weights", "series", "layer", "state",
    "depth", "n_tokens", "bin_left", "bin_right", "value", "low", "high", "least", "most",
    "reference", "violated", "seeds", "prompts",
]  # fmt: skip
MEAN = "mean over prompts"
OVER_DEPTH = "mean over depth"
DIFFERENCE = "trained - random"
KEYS = [
    "measure", "where", "model", "weights", "series", "layer", "n_tokens", "bin_left",
]  # fmt: skip
EMPTY = [
    "layer", "depth", "n_tokens", "bin_left", "bin_right", "value", "low", "high", "least", "most",
    "reference", "violated",
]  # fmt: skip

# A share of layers is a quotient: 3/20 may lie below the edge .15000000000000002.
EDGE = 1e-9
# With more models than this, the legend says once what solid and dashed lines are.
FEW_MODELS = 4
# The height of a bar that says where one of many models is undefined, as a share of its panel.
BAR = 0.03
UNDEFINED_BAR: dict[str, Any] = {"lw": 2, "alpha": 0.7}
RANGE_SAMPLE = 0.2  # opacity in the legend
TRAINED_DEPTH: dict[str, Any] = {"linestyle": (0, (1, 3)), "linewidth": 1}
TRAINED_SAYS = "as deep as in training"

Panel = Mapping[str, Any]


def expand(panels: Sequence[Panel], constants: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Fill constants into panels, and repeat a panel for each value of a constant.

    Parameters
    ----------
    panels : sequence of mapping
        A panel with `each: beta` becomes one panel for each value of the constant `beta`, below
        each other, or side by side where it says `across`: `{each}` in its texts is the value,
        and only rows with it in the column of that name, or of the one that `by` names, are drawn.
    constants : mapping

    Returns
    -------
    list of dict
        Each with its `cell`, row and column of the grid (default: one row, in this order), and
        `where`, which rows it draws (`beta = 1`, or empty for all).
    """
    expanded: list[dict[str, Any]] = []
    for place, panel in enumerate(panels):
        row, column = panel.get("cell", (0, place))
        values = constants[panel["each"]] if "each" in panel else [None]
        for index, value in enumerate(values):
            filled = captions.filled(panel, {**constants, "each": value})
            where = "" if value is None else f"{panel.get('by', panel['each'])} = {value:g}"
            cell = (row, column + index) if panel.get("across") else (row + index, column)
            expanded.append(filled | {"cell": cell, "where": where})
    return expanded


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
        `state`; their columns are joined. Tables of lengths have `layer` and `tokens`, tables of
        tokens `token`, and tables of floors `floor`. In tables of heads, with `head`, a value is
        the mean over heads.
    runs : sequence of mapping
        What the frames are of: model, weights, prompt, label.
    panels : sequence of mapping
        As `expand` returns them: `reading` (published, controlled); `column`, the measure;
        `where`; `gate`, a column that must be true, or the value counts as undefined;
        `reference`, a column drawn beside it; `range`, true for the least and the most of all
        heads beside their mean; `marks`, a column of truths that are marked; `x`,
        `depth` (default) or `n_tokens`, which takes means over layers of a table of lengths;
        `bins`, into how many a per-token share is counted; `difference`, true for trained minus
        random, paired by prompt; `controls`, false where control prompts are not drawn.
    prompt : str
        The prompt of the published reading.
    controls : sequence of str
        Prompts that are never averaged with others.

    Returns
    -------
    DataFrame
        One row a point drawn: reading, measure, where (`beta = 1`), model, label, weights
        (trained, random, `trained - random`), series (the prompt, `mean over prompts`, or `mean
        over depth` of a difference), layer, state, depth, n_tokens (NaN over several prompts),
        bin_left, bin_right, value, low, high, least and most (over heads, mean over runs),
        reference, violated (in which share of the runs the mark is true), seeds and prompts (how
        many are in the value).
    """
    stacks = {
        kind: _stack([name for name in tables if _kind(tables[name]) == kind], tables, runs)
        for kind in ("states", "floors", "lengths", "tokens")
    }
    parts = []
    for panel in panels:
        every = _values(stacks[_kind_of(panel)], panel)
        if "bins" in panel:
            every = _binned(every, panel["bins"])
        if panel.get("difference"):
            usual = every[~every["prompt"].isin(controls)]
            parts += [_differences(one) for _, one in usual.groupby("model", sort=False)]
            continue
        for _, one in every.groupby(["model", "weights"], sort=False):
            if panel["reading"] == "published":
                parts.append(_published(one[one["prompt"] == prompt]))
                continue
            usual = one[~one["prompt"].isin(controls)]
            apart = [] if "bins" in panel or not panel.get("controls", True) else controls
            shown = [usual, *(one[one["prompt"] == control] for control in apart)]
            collect = _over_lengths if _by_length(panel) else _controlled
            parts += [collect(rows) for rows in shown if len(rows)]
    drawn = [part.reindex(columns=COLUMNS) for part in parts if len(part)]
    return pd.concat(drawn, ignore_index=True)


def _kind(frames: Sequence[pd.DataFrame]) -> str:
    kinds = {"tokens": "lengths", "token": "tokens", "floor": "floors"}
    return next((kind for name, kind in kinds.items() if name in frames[0]), "states")


def _kind_of(panel: Panel) -> str:
    if panel.get("by") == "floor":
        return "floors"
    return "tokens" if "bins" in panel else "lengths" if _by_length(panel) else "states"


def _over_heads(rows: pd.DataFrame) -> pd.DataFrame:
    """Average a table of heads over them; `{column}_least` and `_most` are their range."""
    if "head" not in rows:
        return rows
    keys = [name for name in ("layer", "floor") if name in rows]
    measures = rows.drop(columns=["head", "reason"]).astype(float).groupby(keys)
    mean, least, most = (measures.agg(how).reset_index() for how in (_mean, "min", "max"))
    named = [
        one.drop(columns=keys).add_suffix(f"_{name}")
        for one, name in ((least, "least"), (most, "most"))
    ]
    return pd.concat([mean, *named], axis="columns").assign(state="residual")


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
        frames = [_over_heads(tables[name][position]) for name in names]
        stacked.append(
            joined(frames).assign(
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
    where = panel.get("where", "")
    if where:
        column, _, wanted = where.partition(" = ")
        rows = rows[rows[column].map("{:g}".format) == wanted]
    value = rows[panel["column"]].to_numpy(dtype=float)
    if "gate" in panel:
        value = np.where(rows[panel["gate"]].to_numpy(dtype=bool), value, np.nan)
    shown = rows.assign(
        reading=panel["reading"],
        measure=panel["column"],
        where=where,
        value=value,
        reference=np.nan,
        violated=np.nan,
        least=np.nan,
        most=np.nan,
    )
    if "reference" in panel:
        shown["reference"] = rows[panel["reference"]]
    if "marks" in panel:
        shown["violated"] = rows[panel["marks"]].astype(float)
    if panel.get("range"):
        shown["least"], shown["most"] = (
            rows[f"{panel['column']}_{end}"] for end in ("least", "most")
        )
    return shown


def _binned(tokens: pd.DataFrame, bins: int) -> pd.DataFrame:
    """Count each run's tokens in equal bins of their value in [0, 1]: `value` is their share."""
    edges = np.linspace(0, 1, bins + 1)
    counted = []
    for _, one in tokens.groupby(["model", "seed", "prompt"], sort=False):
        counts, _ = np.histogram(np.minimum(one["value"] + EDGE, 1.0), bins=edges)
        frame = pd.DataFrame(
            {"bin_left": edges[:-1], "bin_right": edges[1:], "value": counts / len(one)}
        )
        for name in ("reading", "measure", "where", "model", "label", "weights", "seed", "prompt"):
            frame[name] = one[name].iloc[0]
        counted.append(frame.assign(n_tokens=len(one), layer=np.nan, state="residual"))
    return pd.concat(counted, ignore_index=True)


def _along(rows: pd.DataFrame) -> str:
    """Name the column that the values of a panel run along."""
    return "bin_left" if "bin_left" in rows else "layer"


def _published(rows: pd.DataFrame) -> pd.DataFrame:
    shown = states(rows, "published")
    values = shown.pivot(index="seed", columns=_along(rows), values="value")
    return _points(shown, statistics.over_seeds(values), len(values), 1)


def _by_prompt(rows: pd.DataFrame) -> pd.DataFrame:
    """Average the raw residual stream's values over seeds: one row a prompt."""
    shown = states(rows, "controlled")
    # `sort=False` keeps the prompts in the order of the configuration; layers are sorted after.
    return shown.pivot_table(
        index="prompt",
        columns=_along(rows),
        values="value",
        aggfunc=_mean,
        dropna=False,
        sort=False,
    ).sort_index(axis="columns")


def _controlled(rows: pd.DataFrame) -> pd.DataFrame:
    shown = states(rows, "controlled")
    values = _by_prompt(rows)
    return _points(shown, statistics.over_prompts(values), shown["seed"].nunique(), len(values))


def _differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Subtract a model's random values from its trained ones, prompt by prompt.

    Against depth, a last row holds the mean over depth. A prompt without both is left out, and so
    is a model without such a prompt.
    """
    trained, random = (rows[rows["weights"] == kind] for kind in ("trained", "random"))
    trained = trained[trained["prompt"].isin(random["prompt"])]
    random = random[random["prompt"].isin(trained["prompt"])]
    if trained.empty:
        return pd.DataFrame(columns=COLUMNS)
    one = _by_prompt(trained)
    difference = one - _by_prompt(random).loc[one.index]
    shown = states(trained, "controlled").drop(
        columns=["reference", "violated", "least", "most"], errors="ignore"
    )
    seeds = random["seed"].nunique()
    points = _points(shown, statistics.over_prompts(difference), seeds, len(one))
    if _along(rows) == "layer":
        band = statistics.over_prompts(difference.mean(axis="columns", skipna=False).to_frame())
        mean = points.iloc[[-1]].assign(
            series=OVER_DEPTH,
            layer=np.nan,
            depth=np.nan,
            n_tokens=np.nan,
            value=band.mean,
            low=band.low,
            high=band.high,
        )
        points = pd.concat([points, mean])
    return points.assign(weights=DIFFERENCE)


def _over_lengths(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over layers and seeds, then over the prompts that have so many tokens.

    A length that only one of several prompts has (its own) would make the mean jump: it is left
    out. Where no two prompts have a length in common there is no mean, and each is a series of its
    own.
    """
    values = rows.groupby(["tokens", "prompt"], sort=False)["value"].mean().reset_index()
    several = rows["prompt"].nunique() > 1
    if several and not values["tokens"].duplicated().any():
        alone = [_over_lengths(one) for _, one in rows.groupby("prompt", sort=False)]
        return pd.concat(alone)
    parts = []
    for tokens, some in values.groupby("tokens"):
        if several and len(some) == 1:
            continue
        band = statistics.over_prompts(some["value"].to_numpy()[:, None])
        first = rows[rows["tokens"] == tokens].iloc[[0]]
        one = MEAN if several else some["prompt"].iloc[0]
        parts.append(
            first[["reading", "model", "label", "weights", "measure", "where"]].assign(
                series=one,
                layer=np.nan,
                state="residual",
                depth=np.nan,
                n_tokens=tokens,
                bin_left=np.nan,
                bin_right=np.nan,
                value=band.mean,
                low=band.low,
                high=band.high,
                seeds=rows["seed"].nunique(),
                prompts=len(some),
            )
        )
    return pd.concat(parts)


def _mean(values: pd.Series[float]) -> float:
    """Average with NaN if one is NaN: an undefined seed must not vanish from a mean."""
    return float(np.mean(values.to_numpy()))


def _points(rows: pd.DataFrame, band: statistics.Band, seeds: int, prompts: int) -> pd.DataFrame:
    """Make the rows of one curve, in the order of the columns that its band was taken over."""
    along = _along(rows)
    first = rows.drop_duplicates(along).sort_values(along)
    beside = ["reference", "violated", "least", "most"]
    means = rows.reindex(columns=[along, *beside]).groupby(along).mean().reindex(first[along])
    kept = ["reading", "measure", "where", "model", "label", "weights", "layer", "state"]
    return first[kept].assign(
        series=rows["prompt"].iloc[0] if prompts == 1 else MEAN,
        depth=first["layer"] / first["layer"].max(),
        n_tokens=first["n_tokens"] if prompts == 1 else np.nan,
        bin_left=first.get("bin_left", np.nan),
        bin_right=first.get("bin_right", np.nan),
        value=band.mean,
        low=band.low,
        high=band.high,
        **{name: means[name].to_numpy() for name in beside},
        seeds=seeds,
        prompts=prompts,
    )


X_LABELS = {
    "depth": "depth ({along} / number of {along}s)",
    "n_tokens": "first tokens of each prompt",
    "bins": "share of layers in a cluster",
}


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
    along: str = "layer",
    trained_depths: Mapping[str, float] | None = None,
) -> Figure:
    """Draw the panels of the readings in their grid, with one legend below.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it.
    readings : sequence of str
        `published`, or `published` and `controlled`.
    panels : sequence of mapping
        As `assemble` takes them; also `axis`, the label of the value axis, `limits`, its ends
        (default: from the data, 0 included), `free`, true where 0 need not be, `line`, a value
        to mark, `alike`, a name that panels share which have the same ends, and `marks_say`,
        `reference_says`, `range_says`, what the legend says of marks, references and ranges.
    colours : mapping
        Model -> colour; random weights have the same one, dashed.
    controls : sequence of str
        Series that are drawn as thin lines.
    trained_as : mapping
        Model -> what its trained weights are called.
    titles : mapping
        Reading -> text.
    band_opacity : float
    along : str
        What depth counts: layer or block.
    trained_depths : mapping, optional
        Model whose one block runs more or less often than it was trained for -> the depth at which
        its training ends.
    """
    trained_depths = {model: depth for model, depth in (trained_depths or {}).items() if depth != 1}
    shown = [panel for panel in panels if panel["reading"] in readings]
    data = data[data["reading"].isin(readings)]
    rows, columns = (1 + max(panel["cell"][axis] for panel in shown) for axis in (0, 1))
    handles = _legend(data, shown, colours, controls, trained_as)
    if trained_depths:
        handles.append(Line2D([], [], color=style.MARK, label=TRAINED_SAYS, **TRAINED_DEPTH))
    width = style.COLUMN if columns == 1 else style.PAGE
    legend_columns = min(columns, 2)
    if _are_many(data):
        legend_columns = style.legend_columns([str(one.get_label()) for one in handles], width)
    legend = 0.17 * -(-len(handles) // legend_columns)
    figure = style.new(
        width,
        min((2.6 if rows == 1 else 1.75 * rows + 0.4) + legend, style.TALLEST),
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    for panel in shown:
        row, column = panel["cell"]
        axes: Axes = grid[row, column]
        points = data[
            (data["reading"] == panel["reading"])
            & (data["measure"] == panel["column"])
            & (data["where"] == panel["where"])
            & ((data["weights"] == DIFFERENCE) == bool(panel.get("difference")))
            & (data["bin_left"].notna() == ("bins" in panel))
            & (data["n_tokens"].notna() & data["layer"].isna() & data["bin_left"].isna()).eq(
                _by_length(panel)
            )
        ]
        _panel(axes, points, panel, colours, controls, band_opacity)
        if _x(panel) == "depth":
            for model in trained_depths.keys() & set(points["model"]):
                axes.axvline(trained_depths[model], color=colours[model], **TRAINED_DEPTH)
        if panel is next(one for one in shown if one["reading"] == panel["reading"]):
            axes.set_title(titles[panel["reading"]], loc="left")
        below = [one for one in shown if one["cell"][1] == panel["cell"][1]]
        if not any(one["cell"][0] > panel["cell"][0] and _x(one) == _x(panel) for one in below):
            axes.set_xlabel(X_LABELS[_x(panel)].format(along=along))
    _make_alike([(grid[*panel["cell"]], panel["alike"]) for panel in shown if "alike" in panel])
    cells = {panel["cell"] for panel in shown}
    for cell, axes in np.ndenumerate(grid):
        if cell not in cells:
            axes.remove()
    figure.legend(handles=handles, loc="outside lower left", ncols=legend_columns)
    return figure


def _make_alike(panels: Sequence[tuple[Axes, str]]) -> None:
    """Give panels of one name the same ends, the widest of theirs."""
    for name in {name for _, name in panels}:
        same = [axes for axes, other in panels if other == name]
        ends = [axes.get_ylim() for axes in same]
        for axes in same:
            axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))


def _x(panel: Panel) -> str:
    return "bins" if "bins" in panel else str(panel.get("x", "depth"))


def _panel(
    axes: Axes,
    data: pd.DataFrame,
    panel: Panel,
    colours: Mapping[str, str],
    controls: Sequence[str],
    opacity: float,
) -> None:
    """Draw one panel's curves or histograms, and set its axes."""
    curves = []
    for _, points in data.groupby(["model", "weights", "series"], sort=False):
        model, weights, series = (
            str(points[key].iloc[0]) for key in ("model", "weights", "series")
        )
        look = {"color": colours[model], "linestyle": style.LINE_STYLES.get(weights, "solid")}
        if series == OVER_DEPTH:
            axes.set_title(_interval(points.iloc[0]), loc="left", color=colours[model])
        elif "bins" in panel:
            _steps(axes, points, look, opacity)
        else:
            _line(axes, points, _x(panel), look, series in controls, opacity)
            if series not in controls:
                curves.append((points[_x(panel)].to_numpy(), points["value"].to_numpy(), look))
    if panel.get("difference"):
        axes.axhline(0, color=style.MARK, lw=0.8, zorder=1)
    if "line" in panel:
        axes.axhline(panel["line"], color=style.MARK, lw=0.8, zorder=1)
    axes.set_ylabel(panel["axis"])
    if _by_length(panel):
        axes.set_xlim(left=0)
    else:
        axes.set_xlim(0, 1)
    low, high = axes.get_ylim()
    if not panel.get("free"):
        values = data[["value", "low", "least", "reference"]].to_numpy(dtype=float)
        low = float(np.nanmin(values, initial=0.0))
        high = max(0.0, high)
    low, high = panel.get("limits", (low, high))
    margin = 0.03 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    _mark_undefined(axes, curves, _are_many(data))


def _are_many(data: pd.DataFrame) -> bool:
    """Say whether there are too many models for what each of few may have to itself."""
    return bool(data["model"].nunique() > FEW_MODELS)


def _interval(mean: pd.Series[Any]) -> str:
    """Write a mean difference and its interval, as a panel's title."""
    text = f"{OVER_DEPTH}:\n{mean['value']:+.2g}"
    if np.isnan(mean["low"]):
        return text
    return f"{text} [{mean['low']:+.2g}, {mean['high']:+.2g}]"


def _steps(axes: Axes, points: pd.DataFrame, look: Mapping[str, Any], opacity: float) -> None:
    edges = [*points["bin_left"], points["bin_right"].iloc[-1]]
    axes.stairs(points["value"], edges, baseline=None, lw=1.2, **look)
    if points["low"].notna().any():
        axes.stairs(
            points["high"], edges, baseline=points["low"], fill=True,
            color=look["color"], alpha=opacity, lw=0,
        )  # fmt: skip


def _line(
    axes: Axes,
    points: pd.DataFrame,
    x: str,
    look: Mapping[str, Any],
    thin: bool,
    opacity: float,
) -> None:
    along, value = points[x].to_numpy(), points["value"].to_numpy()
    axes.plot(
        along,
        value,
        linewidth=0.7 if thin else None,
        marker="." if len(along) < 16 and not thin else None,
        markersize=4,
        clip_on=False,
        **look,
    )
    axes.fill_between(
        along,
        points["low"].to_numpy(),
        points["high"].to_numpy(),
        color=look["color"],
        alpha=opacity,
        lw=0,
    )
    if not thin and points["least"].notna().any():
        least, most = points["least"].to_numpy(), points["most"].to_numpy()
        axes.fill_between(along, least, most, color=look["color"], alpha=opacity / 2, lw=0)
    if not thin and points["reference"].notna().any():
        axes.plot(along, points["reference"].to_numpy(), color=look["color"], ls="dotted", lw=1)
    style.mark_final_norm(axes, points, x, look["color"])
    marked = points[points["violated"] > 0.5]
    if not thin and len(marked):  # marks that are not clipped and not there break the layout
        axes.plot(
            marked[x], marked["value"], "v", color=look["color"], mec="black", mew=0.4, ms=4.5,
            clip_on=False, zorder=4,
        )  # fmt: skip


def _mark_undefined(
    axes: Axes, curves: Sequence[tuple[NDArray[Any], NDArray[Any], Mapping[str, Any]]], many: bool
) -> None:
    """Mark where curves are undefined: by grey bands; of many models, each by a bar at the top.

    A band says nothing of the other curves, which go on: of many models it would hide them.

    Parameters
    ----------
    axes : Axes
    curves : sequence of (along, value, look)
        Those that are not thin: a thin line is broken, and the panel is not its own.
    many : bool
    """
    broken = [curve for curve in curves if np.isnan(curve[1]).any()]
    if not many:
        for along, value, _ in broken:
            style.shade_undefined(axes, along, value)
        return
    low, top = axes.get_ylim()
    bar = BAR * (top - low)
    axes.set_ylim(low, top + bar * len(broken))
    for place, (along, value, look) in enumerate(broken):
        spans: list[list[float]] = []
        for start, end in style.undefined(axes, along, value):
            if spans and start == spans[-1][1]:
                spans[-1][1] = end
            else:
                spans.append([start, end])
        for span in spans:
            height = [top + bar * (place + 0.5)] * 2
            axes.plot(span, height, solid_capstyle="butt", **UNDEFINED_BAR, **look)


def _legend(
    data: pd.DataFrame,
    panels: Sequence[Panel],
    colours: Mapping[str, str],
    controls: Sequence[str],
    trained_as: Mapping[str, str],
) -> list[Artist]:
    handles: list[Artist] = []
    curves = data[data["weights"] != DIFFERENCE]
    shown = curves[["model", "label", "weights"]].drop_duplicates().to_numpy().tolist()
    if _are_many(curves):
        handles += _many(shown, colours, trained_as)
    else:
        for model, label, weights in shown:
            named = trained_as[model] if weights == "trained" else weights
            style_of = {"color": colours[model], "linestyle": style.LINE_STYLES[weights]}
            handles.append(Line2D([], [], label=f"{label}, {named}", **style_of))
    usual = curves[~curves["series"].isin([*controls, OVER_DEPTH]) & curves["bin_left"].isna()]
    if _are_many(curves) and usual["value"].isna().any():
        handles.append(Line2D([], [], color=style.MARK, label="bar: undefined", **UNDEFINED_BAR))
    for says in dict.fromkeys(one["reference_says"] for one in panels if "reference" in one):
        handles.append(Line2D([], [], color=style.MARK, ls="dotted", lw=1, label=says))
    for says in dict.fromkeys(one["range_says"] for one in panels if one.get("range")):
        handles.append(Patch(color=style.MARK, alpha=RANGE_SAMPLE, lw=0, label=says))
    if (data.loc[~data["series"].isin(controls), "violated"] > 0.5).any():
        says = next(one["marks_say"] for one in panels if "marks" in one)
        handles.append(Line2D([], [], color=style.MARK, ls="none", marker="v", label=says))
    for control in controls:
        if (data["series"] == control).any():
            name = f"thin lines: {control} (control)"
            handles.append(Line2D([], [], color=style.MARK, linewidth=0.7, label=name))
    return handles


def _many(
    shown: Sequence[Sequence[str]], colours: Mapping[str, str], trained_as: Mapping[str, str]
) -> list[Line2D]:
    """List the models by colour, and once what solid and dashed lines are."""
    called = {trained_as[model] for model, _, weights in shown if weights == "trained"}
    solid = next(iter(called)) if len(called) == 1 else "trained"
    labels = {model: label for model, label, _ in shown}
    handles = []
    for model, label in labels.items():
        own = trained_as.get(model, solid)
        text = label if own == solid else f"{label}, {own}"
        handles.append(Line2D([], [], color=colours[model], label=text))
    for weights, text in (("trained", solid), ("random", "random")):
        if any(weights == one for _, _, one in shown):
            line: dict[str, Any] = {"linestyle": style.LINE_STYLES[weights]}
            handles.append(Line2D([], [], color=style.MARK, label=text, **line))
    return handles
