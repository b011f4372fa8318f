"""Pair populations: what pairs within a cluster, between two, and outside do through depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from tokensphere.drawing import style
from tokensphere.tables import states
from tokensphere.populations import POPULATIONS

COLUMNS = [
    "reading", "population", "measure", "layer", "state", "depth", "n_tokens", "beta", "value",
]  # fmt: skip
KEYS = ["population", "measure", "layer", "state"]
MEASURES = ("mean", "mass_near_one", "share")
ENERGY = "energy"
# Reading -> what its columns end in.
SUFFIXES = {"published": "", "controlled": "_distinct"}

NAMES = {
    "within": "within one cluster",
    "between": "between two clusters",
    "mixed": "mixed: clustered with unclustered",
    "unclustered": "both unclustered",
}
AXES = {
    "published": {
        "mean": "mean inner product ⟨sᵢ, sⱼ⟩",
        "mass_near_one": "mass near 1 (share of its\nown pairs above {near_one:g})",
        "share": "share of all pairs",
    },
    "controlled": {
        "mean": "mean inner product,\ndistinct-id pairs",
        "mass_near_one": "mass near 1 (share of its\ndistinct-id pairs above {near_one:g})",
        "share": "share of all distinct-id pairs",
    },
}
# In the order of drawing the lines grow thinner, so that where some coincide all are seen.
WIDTHS = {"unclustered": 2.8, "mixed": 2.2, "between": 1.6, "within": 1.1, ENERGY: 1.3}
# Strips above a panel, one a line that is undefined somewhere, in shares of the panel's height.
STRIP, STRIP_STEP, STRIPS_START = 0.035, 0.05, 1.03


def assemble(pairs: pd.DataFrame, energies: pd.DataFrame) -> pd.DataFrame:
    """Choose the numbers that a figure of pair populations draws, both readings.

    Parameters
    ----------
    pairs : DataFrame
        `pair_populations` of one run.
    energies : DataFrame
        `energy` of the same run; the beta nearest to 1 is taken, the smaller of two equally near.

    Returns
    -------
    DataFrame
        One row a point drawn: reading, population (or `energy`), measure (mean, mass_near_one,
        share; or `energy`), layer, state, depth, n_tokens, beta (NaN but for the energy), value
        (NaN where there is no such pair). The published reading takes all pairs, with the final
        norm, where there is one, in the place of the last layer; the controlled reading takes
        the raw residual stream and pairs of distinct token ids.
    """
    beta = min(sorted(energies["beta"].unique()), key=lambda one: abs(one - 1))
    energies = energies[energies["beta"] == beta]
    parts = []
    for reading, suffix in SUFFIXES.items():
        for measure in MEASURES:
            for population in POPULATIONS:
                rows = states(pairs[pairs["population"] == population], reading)
                value = rows[f"{measure}{suffix}"]
                parts.append(
                    rows.assign(reading=reading, measure=measure, beta=np.nan, value=value)
                )
        rows = states(energies, reading)
        parts.append(
            rows.assign(
                reading=reading,
                population=ENERGY,
                measure=ENERGY,
                value=rows["energy"],
            )
        )
    every = pd.concat(parts, ignore_index=True)
    points: pd.DataFrame = every.assign(depth=every["layer"] / every["layer"].max())[COLUMNS]
    return points


def shared_limits(runs: Sequence[pd.DataFrame]) -> dict[str, tuple[float, float]]:
    """Choose the ends of the value axes that all panels of a measure share.

    Parameters
    ----------
    runs : sequence of DataFrame
        As `assemble` returns them, one a run.

    Returns
    -------
    dict
        Measure -> lowest and highest value. Shares have the whole of [0, 1], so that little looks
        little; a mean reaches lower where one is negative. The energy, which has no natural ends
        within sight, has those of the data.
    """
    data = pd.concat(runs)
    lowest = data.groupby("measure")["value"].min()
    highest = data.groupby("measure")["value"].max()
    low, high = float(lowest[ENERGY]), float(highest[ENERGY])
    # An energy that does not change must not fill the axis with its rounding.
    room = max(0.0, 0.02 * high - (high - low)) / 2
    return {
        "mean": (min(0.0, float(lowest["mean"])), 1.0),
        "mass_near_one": (0.0, 1.0),
        "share": (0.0, 1.0),
        ENERGY: (low - room, high + room),
    }


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    title: str,
    titles: Mapping[str, str],
    limits: Mapping[str, tuple[float, float]],
    near_one: float,
    colours: Mapping[str, str],
) -> Figure:
    """Draw three panels: side by side for one reading, one column a reading for two.

    A line breaks where its population has no pair, and a grey strip above the panel marks the
    stretch: a band behind the panel would grey the other three lines, too, and says that none
    of them is defined.

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
    limits : mapping
        As `shared_limits` returns them.
    near_one : float
    colours : mapping
        Population, or `energy` -> colour.
    """
    data = data[data["reading"].isin(readings)]
    handles = _legend(data, colours)
    rows = -(-len(handles) // 3)
    alone = len(readings) == 1
    figure = style.new(style.PAGE, (2.5 if alone else 6.6) + 0.17 * rows)
    figure.suptitle(title, x=0.01, ha="left")
    grid = figure.subplots(1, 3, squeeze=False) if alone else figure.subplots(3, 2).T
    for column, reading in zip(grid, readings, strict=True):
        shown = data[data["reading"] == reading]
        for axes, measure in zip(column, MEASURES, strict=True):
            points = shown[shown["measure"] == measure]
            axes.set_ylabel(AXES[reading][measure].format(near_one=near_one))
            axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), ylim=_with_margin(limits[measure]))
            for population in reversed(POPULATIONS):
                one = points[points["population"] == population]
                _line(axes, one, colours[population], WIDTHS[population])
            if measure == "mean":
                energy = shown[shown["measure"] == ENERGY]
                _energy(axes, energy, limits[ENERGY], colours[ENERGY])
                points = pd.concat([points, energy])
            strips = _mark_undefined(axes, points, colours)
            if not alone and measure == MEASURES[0]:
                above = STRIPS_START + STRIP_STEP * strips
                axes.set_title(titles[reading], loc="left", y=above)
        for axes in column if alone else column[-1:]:
            wide = "depth (layer / number of layers)"
            axes.set_xlabel(wide.replace(" (", "\n(") if alone else wide)
    figure.legend(
        handles=list(handles.values()),
        labels=list(handles),
        handler_map={tuple: HandlerTuple(ndivide=1)},
        loc="outside lower left",
        ncols=3,
    )
    return figure


def _with_margin(ends: tuple[float, float]) -> tuple[float, float]:
    low, high = ends
    margin = 0.03 * (high - low)
    return low - margin, high + margin


def _line(
    axes: Axes, points: pd.DataFrame, colour: str, width: float, linestyle: str = "solid"
) -> None:
    depth, value = points["depth"].to_numpy(), points["value"].to_numpy()
    axes.plot(
        depth,
        value,
        color=colour,
        linestyle=linestyle,
        linewidth=width,
        marker=".",
        markersize=3 + width,
        # A point between two undefined ones has no line.
        markevery=list(range(len(depth))) if len(depth) < 16 else _lonely(value),
        clip_on=False,
    )
    style.mark_final_norm(axes, points, "depth", colour)


def _lonely(value: NDArray[np.float64]) -> list[int]:
    """List the places of defined values that have no defined neighbour."""
    defined = np.pad(~np.isnan(value), 1)
    return list(np.flatnonzero(defined[1:-1] & ~defined[:-2] & ~defined[2:]))


def _energy(axes: Axes, points: pd.DataFrame, ends: tuple[float, float], colour: str) -> None:
    twin = axes.twinx()
    twin.grid(False)
    twin.spines["right"].set(visible=True, color=colour)
    twin.tick_params(axis="y", colors=colour)
    twin.set_ylim(_with_margin(ends))
    twin.set_ylabel(_energy_name(points), color=colour)
    _line(twin, points, colour, WIDTHS[ENERGY], "dotted")


def _energy_name(points: pd.DataFrame) -> str:
    return f"interaction energy E(β = {points['beta'].dropna().iloc[0]:g})"


def _mark_undefined(axes: Axes, points: pd.DataFrame, colours: Mapping[str, str]) -> int:
    """Mark where lines are undefined; return how many strips that took.

    Where no line at all is defined, the panel is grey from below to above.
    """
    values = points.pivot(index="depth", columns="population", values="value").sort_index()
    depths = values.index.to_numpy()
    undefined = values.isna()
    style.shade_undefined(axes, depths, np.where(undefined.all(axis="columns"), np.nan, 0.0))
    shown = [one for one in colours if one in undefined and undefined[one].any()]
    for place, population in enumerate(shown):
        bottom = STRIPS_START + STRIP_STEP * place
        for left, right in _stretches(depths, undefined[population].to_numpy()):
            axes.axvspan(
                left, right, bottom, bottom + STRIP, color=style.UNDEFINED, lw=0, clip_on=False
            )
            axes.plot(
                [left, right],
                [bottom + STRIP / 2] * 2,
                color=colours[population],
                linewidth=1,
                solid_capstyle="butt",
                transform=axes.get_xaxis_transform(),
                clip_on=False,
            )
    return len(shown)


def _stretches(
    depths: NDArray[np.float64], undefined: NDArray[np.bool_]
) -> list[tuple[float, float]]:
    """List the ends of undefined stretches, halfway to the defined neighbours."""
    between = (depths[1:] + depths[:-1]) / 2
    edges = np.concatenate([depths[:1], between, depths[-1:]])
    steps = np.diff(np.pad(undefined.astype(int), 1))
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    return [(float(edges[s]), float(edges[e])) for s, e in zip(starts, ends, strict=True)]


def _legend(
    data: pd.DataFrame, colours: Mapping[str, str]
) -> dict[str, Line2D | tuple[Patch, Line2D]]:
    """Label -> what stands for it."""
    handles: dict[str, Line2D | tuple[Patch, Line2D]] = {
        NAMES[population]: Line2D([], [], color=colours[population], linewidth=WIDTHS[population])
        for population in POPULATIONS
    }
    energy = data[data["measure"] == ENERGY]
    handles[f"{_energy_name(energy)}, right axis"] = Line2D(
        [], [], color=colours[ENERGY], linewidth=WIDTHS[ENERGY], linestyle="dotted"
    )
    if (data["state"] == "final_norm").any():
        handles["output of the final norm"] = style.final_norm_entry()
    if data["value"].isna().any():
        handles["grey strip: no such pair there"] = (
            Patch(color=style.UNDEFINED, lw=0),
            Line2D([], [], color=style.MARK, linewidth=1),
        )
    return handles
