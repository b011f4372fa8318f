"""The one style of all figures: sizes at print, fonts, colours of meaning, how files are saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

# Inches at print size: one column of a two-column paper, and the whole page width.
COLUMN, PAGE = 3.5, 7.2
TALLEST = 8.0
DPI = 200  # the tallest figure has 1600 pixels

# Inches of a letter in a legend, about, and of the sample of an entry with the space around it.
LETTER, LEGEND_SAMPLE = 0.062, 0.55

UNDEFINED = "#e4e4e4"
MARK = "#555555"
# Clusters: neighbours in this cycle differ in hue and lightness, for the colour-blind too.
CLUSTERS = (
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc",
    "#ca9161", "#fbafe4", "#56b4e9", "#ece133", "#5d4e9c",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P")
LOOKS = len(CLUSTERS) * len(MARKERS)
UNCLUSTERED = "#8c8c8c"
SHORT_LIVED = "#c9c9c9"
TRAINED, RANDOM = "solid", (0, (4, 2))
CIRCLE: dict[str, Any] = {"marker": "o", "mfc": "white", "ms": 4, "lw": 0}
LINE_STYLES: dict[str, Any] = {"trained": TRAINED, "random": RANDOM}

RC: dict[Any, Any] = {
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same letters everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "figure.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ececec",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "tokensphere",  # ids in an SVG depend on its content alone
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
}


def new(width: float, height: float) -> Figure:
    """Start a figure of a size in inches at print, in this style."""
    plt.rcParams.update(matplotlib.rcParamsDefault)
    plt.rcParams.update(RC)
    return plt.figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, png: Path, svg: Path, pdf: Path, *, stamp: str) -> None:
    """Save a figure in three formats, each free of dates, so that equal pictures are equal files.

    Parameters
    ----------
    figure : Figure
    png, svg, pdf : Path
    stamp : str
        What each file says of itself: what made it.

    Raises
    ------
    RuntimeError
        If a file does not end as its format does.
    """
    figure.savefig(png, format="png", metadata={"Description": stamp})
    figure.set_layout_engine("none")  # once is enough, and the three are laid out alike
    figure.savefig(svg, format="svg", metadata={"Date": None, "Description": stamp})
    figure.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Subject": stamp})
    plt.close(figure)
    for path, end in ((png, b"IEND\xaeB`\x82"), (svg, b"</svg>"), (pdf, b"%%EOF")):
        if not path.read_bytes().rstrip(b"\n").endswith(end):
            raise RuntimeError(f"{path} was not written whole")


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Return in how many columns (four at most) a legend of these labels fits a width in inches."""
    for count in range(min(4, len(labels)), 1, -1):
        # As matplotlib deals entries out: the first columns are full.
        columns = np.array_split(np.array([len(label) for label in labels]), count)
        if sum(LEGEND_SAMPLE + LETTER * int(column.max()) for column in columns) <= width:
            return count
    return 1


def mark_final_norm(axes: Axes, points: pd.DataFrame, x: str, colour: str) -> None:
    """Draw an open circle at a curve's points (`state`, `value`, x) that are of the final norm."""
    normed = points[points["state"] == "final_norm"]
    if len(normed):  # marks that are not clipped and not there break the layout
        axes.plot(normed[x], normed["value"], mec=colour, clip_on=False, zorder=3, **CIRCLE)


def final_norm_entry() -> Line2D:
    """Return the legend's entry of the final norm."""
    return Line2D([], [], mec=MARK, label="output of the final norm", **CIRCLE)


def watermark(figure: Figure, text: str) -> None:
    """Write a text across a whole figure, through which everything is still seen."""
    width, height = figure.get_size_inches()
    angle = np.arctan2(height, width)
    size = 72 * 0.8 * np.hypot(width, height) / max(map(len, text.splitlines())) / 0.6
    figure.text(
        0.5,
        0.5,
        text,
        rotation=float(np.degrees(angle)),
        fontsize=min(float(size), 40.0),
        color=MARK,
        alpha=0.18,
        ha="center",
        va="center",
        zorder=100,
    )


def colours(name: str) -> Colormap:
    """Return a colour map in which an undefined value has the grey of what is undefined."""
    return matplotlib.colormaps[name].with_extremes(bad=UNDEFINED)


def cluster_colour(identity: int) -> str:
    """Return the colour of a tracked cluster: it depends on its identity alone."""
    return CLUSTERS[identity % len(CLUSTERS)]


def cluster_marker(identity: int) -> str:
    """Return the shape of a tracked cluster: with its colour, the first 60 all look different."""
    return MARKERS[identity // len(CLUSTERS) % len(MARKERS)]


def shade_undefined(axes: Axes, depths: NDArray[Any], values: NDArray[Any]) -> None:
    """Mark depths whose value is undefined by a grey band, so that no gap looks like data."""
    for start, end in undefined(axes, depths, values):
        axes.axvspan(start, end, color=UNDEFINED, zorder=0)


def undefined(
    axes: Axes, depths: NDArray[Any], values: NDArray[Any]
) -> Iterator[tuple[float, float]]:
    """Yield from where to where values are undefined, point by point.

    They end half-way between two points as the axis shows them, logarithmic or not.
    """
    scale = axes.xaxis.get_transform()
    at = scale.transform(np.asarray(depths, dtype=float))
    for index in map(int, np.flatnonzero(np.isnan(values))):
        ends = [
            (at[index] + at[one]) / 2 for one in (max(index - 1, 0), min(index + 1, len(at) - 1))
        ]
        start, end = scale.inverted().transform(ends)
        yield float(start), float(end)
