"""Steps: collapse and clusters against the training step, a line for each of a few depths."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from tokensphere import statistics
from tokensphere.drawing import style
from tokensphere.tables import joined, states

COLUMNS = [
    "reading", "measure", "sweep", "label", "model", "step", "place", "layer", "state", "depth",
    "series", "n_tokens", "value", "low", "high", "prompts",
]  # fmt: skip
KEYS = ["measure", "model", "place", "series"]
EMPTY = ["n_tokens", "value", "low", "high"]
MEAN = "mean over prompts"
MEASURES = ("mass", "rank", "membership")
# Reading -> measure -> its column, the label of its axis, whether it ends at 1, and the column that
# must be true for it to be defined.
PANELS: dict[str, dict[str, tuple[str, str, bool, str | None]]] = {
    "published": {
        "mass": ("mass_near_one", "mass near 1\n(share of pairs)", True, None),
        "rank": ("raw", "effective rank,\nraw states", False, None),
        "membership": ("membership", "share of tokens\nin clusters", True, None),
    },
    "controlled": {
        "mass": ("mass_near_one_distinct", "mass near 1\n(distinct pairs)", True, None),
        "rank": ("sphere", "effective rank\non the sphere", False, None),
        "membership": ("membership", "share of tokens\nin clusters", True, "gate_sphere_3"),
    },
}
# Of panels side by side; what else there is stands below.
ACROSS = 4
# The share of a logarithmic decade that steps from 0 to the first take on the axis, and how far
# apart the labels of steps are, as a share of it.
FIRST_STEP, APART = 0.5, 0.24


def assemble(
    tables: Sequence[Sequence[pd.DataFrame]],
    runs: Sequence[Mapping[str, Any]],
    *,
    depths: int,
    prompt: str,
    controls: Sequence[str],
) -> pd.DataFrame:
    """Choose the numbers that a figure of training steps draws, both readings.

    The published reading is one prompt, with the final norm in the place of the last layer. The
    controlled one is the raw residual stream, mean and bootstrap band over prompts; a control
    prompt is a series of its own.

    Parameters
    ----------
    tables : sequence of sequence of DataFrame
        Per-run tables of states whose columns are joined (`inner_products`, `effective_rank`,
        `clusters`): for each table one frame a run.
    runs : sequence of mapping
        What the frames are of: model, sweep, sweep_label, step, prompt.
    depths : int
        How many layers are drawn, equally spaced from the first to the last, rounded, each once.
    prompt : str
        The prompt of the published reading.
    controls : sequence of str
        Prompts that are never averaged with others.

    Returns
    -------
    DataFrame
        One row a point drawn: reading, measure (mass, rank, membership), sweep, label (of the
        sweep), model, step, place (of the depth, from 0), layer, state, depth, series (the prompt,
        or `mean over prompts`), n_tokens (NaN over several prompts), value, low, high, prompts
        (how many are in the value). The membership of the controlled reading is undefined where
        the effective rank on the sphere is below 3.
    """
    parts = []
    for frames, run in zip(zip(*tables, strict=True), runs, strict=True):
        table = joined(frames)
        chosen = _layers(int(table["layer"].max()), depths)
        for reading, panels in PANELS.items():
            if reading == "published" and run["prompt"] != prompt:
                continue
            rows = states(table, reading)
            rows = rows[rows["layer"].isin(chosen)]
            for measure, (column, _, _, gate) in panels.items():
                value = rows[column].to_numpy(dtype=float)
                if gate is not None:
                    value = np.where(rows[gate].to_numpy(dtype=bool), value, np.nan)
                parts.append(
                    rows[["layer", "state", "n_tokens"]].assign(
                        reading=reading,
                        measure=measure,
                        **{key: run[key] for key in ("sweep", "model", "step", "prompt")},
                        label=run["sweep_label"],
                        place=rows["layer"].map(chosen),
                        depth=rows["layer"] / table["layer"].max(),
                        value=value,
                    )
                )
    every = pd.concat(parts, ignore_index=True)
    # A control is a series of its own.
    every["series"] = every["prompt"].where(every["prompt"].isin(controls), MEAN)
    groups = every.groupby(["reading", "measure", "series"], sort=False)
    return pd.concat([_points(rows) for _, rows in groups], ignore_index=True)[COLUMNS]


def _layers(last: int, depths: int) -> dict[int, int]:
    """Return the layers drawn -> their place among the depths."""
    layers: dict[int, int] = {}
    for place, layer in enumerate(np.rint(np.linspace(0, last, depths)).astype(int).tolist()):
        layers.setdefault(layer, place)
    return layers


def _points(rows: pd.DataFrame) -> pd.DataFrame:
    """Average every point over its prompts; NaN if one is: none must vanish from a mean."""
    points = rows.drop_duplicates(["model", "place"])
    prompts = rows["prompt"].unique()
    values = rows.pivot(index="prompt", columns=["model", "place"], values="value")
    # In the order of the configuration: the band depends on it in its last digits.
    names = pd.MultiIndex.from_frame(points[["model", "place"]])
    band = statistics.over_prompts(values.reindex(index=prompts, columns=names))
    one = len(prompts) == 1
    return points.assign(
        series=prompts[0] if one else MEAN,
        n_tokens=points["n_tokens"] if one else np.nan,
        value=band.mean,
        low=band.low,
        high=band.high,
        prompts=len(prompts),
    )


def draw(
    data: pd.DataFrame,
    readings: Sequence[str],
    *,
    titles: Mapping[str, str],
    shades: Sequence[str],
    controls: Sequence[str],
    band_opacity: float,
) -> Figure:
    """Draw a row a measure and a column a sweep, published columns left and controlled ones right.

    More sweeps than fit beside each other stand below, in rows of their own.

    Parameters
    ----------
    data : DataFrame
        As `assemble` returns it.
    readings : sequence of str
        `published`, or `published` and `controlled`.
    titles : mapping
        What the whole picture shows, by the last of its readings.
    shades : sequence of str
        The colour of each depth.
    controls : sequence of str
        Series that are drawn as thin lines.
    band_opacity : float
    """
    sweeps = data[["sweep", "label"]].drop_duplicates().to_numpy().tolist()
    across = min(len(sweeps), ACROSS // len(readings))
    blocks = -(-len(sweeps) // across)
    handles = _legend(data, shades, controls)
    rows, columns = len(MEASURES) * blocks, across * len(readings)
    width = style.PAGE if columns > 1 else style.COLUMN + 0.5
    per_row = 3 if columns > 1 else 1
    height = 1.7 * rows + 0.75 + 0.17 * -(-len(handles) // per_row)
    figure = style.new(width, min(height, style.TALLEST))
    grid = figure.subplots(rows, columns, squeeze=False)
    drawn = set()
    for number, (sweep, label) in enumerate(sweeps):
        for side, reading in enumerate(readings):
            column = side * across + number % across
            for line, measure in enumerate(MEASURES):
                cell = (len(MEASURES) * (number // across) + line, column)
                drawn.add(cell)
                axes: Axes = grid[cell]
                alike = data[(data["reading"] == reading) & (data["measure"] == measure)]
                points = alike[alike["sweep"] == sweep]
                _panel(axes, points, shades, controls, band_opacity)
                _, says, share, _ = PANELS[reading][measure]
                # All sweeps on one scale.
                top = 1.0 if share else float(np.nanmax([*alike["value"], *alike["high"], 1.0]))
                axes.set_ylim(-0.03 * top, 1.03 * top)
                if column % across == 0:
                    axes.set_ylabel(says)
                else:
                    axes.tick_params(labelleft=False)
                if line == 0:
                    axes.set_title(_title(label, readings, side, columns), loc="left")
                if line == len(MEASURES) - 1:
                    axes.set_xlabel("training step")
                else:
                    axes.tick_params(labelbottom=False)
    for place, axes in np.ndenumerate(grid):
        if place not in drawn:
            axes.remove()
    figure.suptitle(titles[readings[-1]], x=0.01, ha="left")
    figure.legend(handles=handles, loc="outside lower left", ncols=per_row)
    return figure


def _title(label: str, readings: Sequence[str], side: int, columns: int) -> str:
    named = textwrap.fill(label, width={1: 50, 2: 40}.get(columns, 20), max_lines=2)
    return named if len(readings) == 1 else f"{named}\n{('as published', 'controlled')[side]}"


def _panel(
    axes: Axes,
    points: pd.DataFrame,
    shades: Sequence[str],
    controls: Sequence[str],
    opacity: float,
) -> None:
    steps = np.unique(points["step"].to_numpy())
    _set_steps(axes, steps)
    usual = points[~points["series"].isin(controls)]
    undefined = usual[usual["value"].isna()]["step"].unique()
    style.shade_undefined(axes, steps, np.where(np.isin(steps, undefined), np.nan, 0.0))
    for _, line in points.groupby(["series", "place"], sort=False):
        shown = line.sort_values("step")
        series, place = str(line["series"].iloc[0]), int(line["place"].iloc[0])
        at, value = shown["step"].to_numpy(), shown["value"].to_numpy()
        colour = shades[place]
        thin = series in controls
        look: dict[str, Any] = {"lw": 0.7} if thin else {"marker": ".", "ms": 4}
        axes.plot(at, value, color=colour, clip_on=False, **look)
        low, high = (shown[end].to_numpy() for end in ("low", "high"))
        axes.fill_between(at, low, high, color=colour, alpha=opacity, lw=0)
        style.mark_final_norm(axes, shown, "step", colour)


def _set_steps(axes: Axes, steps: NDArray[Any]) -> None:
    """Set the axis of steps: logarithmic from the first after 0 on, labelled by the steps drawn."""
    least = min(steps[steps > 0].tolist(), default=1)
    axes.set_xscale("symlog", linthresh=least, linscale=FIRST_STEP)
    if len(steps) > 1:
        axes.set_xlim(steps[0], steps[-1])
    at = axes.xaxis.get_transform().transform(steps.astype(float))
    apart = APART * (at[-1] - at[0])
    labelled = [0]
    for index in range(1, len(steps) - 1):
        if min(at[index] - at[labelled[-1]], at[-1] - at[index]) >= apart:
            labelled.append(index)
    axes.set_xticks(steps[[*labelled, -1] if len(steps) > 1 else labelled])
    axes.set_xticks(steps, minor=True)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter("")


def _legend(data: pd.DataFrame, shades: Sequence[str], controls: Sequence[str]) -> list[Line2D]:
    handles = []
    for place in map(int, np.unique(data["place"])):
        depths = _depths(data[data["place"] == place]["depth"])
        handles.append(Line2D([], [], color=shades[place], marker=".", ms=4, label=depths))
    if (data["state"] == "final_norm").any():
        handles.append(style.final_norm_entry())
    for control in controls:
        if (data["series"] == control).any() and (data["reading"] == "controlled").any():
            name = f"thin lines: {control} (control)"
            handles.append(Line2D([], [], color=style.MARK, lw=0.7, label=name))
    return handles


def _depths(depths: pd.Series[float]) -> str:
    """Name a depth; sweeps of other numbers of layers have one that differs by rounding."""
    low, high = f"{depths.min():.2g}", f"{depths.max():.2g}"
    beside = {"0": " (embedding output)", "1": " (last layer)"}.get(low, "")
    return f"depth {low}{beside}" if low == high else f"depth {low} to {high}"
