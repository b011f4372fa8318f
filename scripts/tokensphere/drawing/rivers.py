"""Rivers: tracked clusters through depth, each a band as high as its share of the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tokensphere.drawing import style

COLUMNS = [
    "reading", "weights", "kind", "layer", "depth", "tracked", "from_tracked", "bottom", "top",
    "value", "chance",
]  # fmt: skip
KEYS = ["weights", "kind", "layer", "tracked", "from_tracked"]
EMPTY = ["depth", "tracked", "from_tracked", "bottom", "top", "value", "chance"]
OPENING = 0.45  # of the way between two layers, in which a band that is born or dies has its point


def assemble(
    tracks: pd.DataFrame,
    events: pd.DataFrame,
    turnover: pd.DataFrame,
    *,
    weights: str,
    tokens: int,
) -> pd.DataFrame:
    """Compute the bands of one run, what happens to them, and the share of clusters that stay.

    Parameters
    ----------
    tracks, events, turnover : DataFrame
        `cluster_tracks`, `cluster_events` and `cluster_turnover` of the run.
    weights : str
        trained or random.
    tokens : int
        Tokens of the prompt.

    Returns
    -------
    DataFrame
        Raw residual stream, one row a band and layer (kind `band`: `bottom` and `top`, as shares
        of all tokens; bands lie in the order of their tokens in the text), one row an event
        (kind birth, death, merge, split; `tracked`, and `from_tracked`, the one split from or
        merged into), and, in the controlled reading, one row a layer (kind `kept`: the share of
        the clusters before that stay, and by chance, under permuted labels).
    """
    # A table without a row does not know that its columns are numbers.
    number = {"layer": "int64", "tracked": "int64", "size": "int64", "position": "float64"}
    here = tracks[tracks["state"] == "residual"].astype(number)
    last = int(turnover["layer"].max())
    place = (here["position"] * here["size"]).groupby(here["tracked"]).sum()
    place /= here.groupby("tracked")["size"].sum()
    here = here.assign(place=here["tracked"].map(place)).sort_values(["layer", "place", "tracked"])
    top = here.groupby("layer")["size"].cumsum() / tokens
    bands = here.assign(kind="band", bottom=top - here["size"] / tokens, top=top)
    happened = events[events["state"] == "residual"].rename(columns={"event": "kind"})
    into = pd.to_numeric(happened["into"])
    split = happened["kind"] == "split"
    happened = happened.assign(
        tracked=happened["cluster"].where(~split, into),
        from_tracked=into.where(~split, happened["cluster"]),
    )
    moves = turnover[turnover["state"] == "residual"]
    kept = moves.assign(
        kind="kept",
        reading="controlled",
        value=moves["kept"] / moves["clusters"],
        chance=moves["kept_chance"] / moves["clusters"],
    )
    parts = [bands.assign(reading="published"), happened.assign(reading="published"), kept]
    every = pd.concat([part.reindex(columns=COLUMNS) for part in parts], ignore_index=True)
    return every.assign(weights=weights, depth=every["layer"] / last)


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    names: Mapping[str, str],
    colour: str,
    least_layers: int,
) -> Figure:
    """Draw a river for each weights, one below the other; beside them the clusters that stay.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it, of one run or several with different weights.
    readings : sequence of str
    names : mapping
        Weights -> text above their river.
    colour : str
        The model's colour, for the curves of the controlled reading.
    least_layers : int
        Clusters that live in fewer layers are grey.
    """
    several = len(readings) > 1
    figure = style.new(style.PAGE, 2.35 * len(names) + 0.5)
    widths = [2.2, 1] if several else [1]
    grid = figure.subplots(
        len(names), len(widths), squeeze=False, sharex="col", sharey="col", width_ratios=widths
    )
    for row, (weights, name) in zip(grid, names.items(), strict=True):
        shown = data[data["weights"] == weights]
        _river(row[0], shown, least_layers)
        row[0].set_title(name, loc="left")
        row[0].set_ylabel("share of tokens")
        if several:
            _kept(row[1], shown[shown["kind"] == "kept"], colour, style.LINE_STYLES[weights])
            row[1].set_ylabel("share of clusters that stay")
    for axes in grid[-1]:
        axes.set_xlabel("depth (layer / number of layers)")
    handles: list[Any] = [
        Patch(color=style.CLUSTERS[0], label="a cluster (its colour stays with it)"),
        Patch(color=style.SHORT_LIVED, label=f"lives in fewer than {least_layers} layers"),
    ]
    if several:
        handles.append(Line2D([], [], color=colour, label="clusters of the layer before that stay"))
        handles.append(Line2D([], [], color=style.MARK, ls="dotted", label="with permuted labels"))
    figure.legend(handles=handles, loc="outside lower left", ncols=2)
    return figure


def _river(axes: Axes, data: pd.DataFrame, least_layers: int) -> None:
    bands = data[data["kind"] == "band"]
    later = data[data["layer"] > 0]  # the last layer may have no row: not its number, but its depth
    step = float((later["depth"] / later["layer"]).max())
    middle = {
        (int(band["tracked"]), int(band["layer"])): (band["bottom"] + band["top"]) / 2
        for band in bands.to_dict("records")
    }
    joined = data[data["kind"].isin(("merge", "split"))]
    joins = {
        (row["kind"], int(row["tracked"]), int(row["layer"])): int(row["from_tracked"])
        for row in joined.to_dict("records")
    }
    bodies, tapers, colours = [], [], []
    for _, band in bands.groupby("tracked"):
        identity = int(band["tracked"].to_numpy()[0])
        first, last = int(band["layer"].iloc[0]), int(band["layer"].iloc[-1])
        x, low, high = (band[name].to_list() for name in ("depth", "bottom", "top"))
        # Of one layer only its tapers are left, which meet there.
        bodies.append([*zip(x, low, strict=True), *zip(x[::-1], high[::-1], strict=True)])
        short = len(band) < least_layers
        colours.append(style.SHORT_LIVED if short else style.cluster_colour(identity))
        start = middle.get((joins.get(("split", identity, first), -1), first - 1))
        end = middle.get((joins.get(("merge", identity, last + 1), -1), last + 1))
        ends = [(0, -1, start)] if first > 0 else []
        ends += [(-1, 1, end)] if band["depth"].iloc[-1] < 1 else []
        for at, way, other in ends:
            reach = step * (OPENING if other is None else 1)
            point = (low[at] + high[at]) / 2 if other is None else other
            triangle = [(x[at], low[at]), (x[at], high[at]), (x[at] + way * reach, point)]
            tapers.append((triangle, colours[-1]))
    # Bands over tapers: a thin merger must not scratch the bands that it crosses.
    axes.add_collection(
        PolyCollection(
            [triangle for triangle, _ in tapers], facecolors=[colour for _, colour in tapers], lw=0
        )
    )
    axes.add_collection(PolyCollection(bodies, facecolors=colours, edgecolors="white", lw=0.25))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    if bands.empty:
        axes.text(0.5, 0.5, "no cluster in any layer", ha="center", va="center")


def _kept(axes: Axes, moves: pd.DataFrame, colour: str, look: Any) -> None:
    axes.plot(moves["depth"], moves["value"], color=colour, ls=look)
    axes.plot(moves["depth"], moves["chance"], color=style.MARK, ls="dotted")
    style.shade_undefined(axes, moves["depth"].to_numpy(), moves["value"].to_numpy())
    axes.set(xticks=(0, 0.5, 1), xlim=(0, 1), ylim=(-0.03, 1.03))
