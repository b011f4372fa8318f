"""The contact sheet: every figure in small, to see all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt

from tokensphere.drawing import style

COLUMNS = 4
CELL = 3.5  # inches: a figure of one column is shown at about its print size


def write(path: Path, figures: Sequence[Path], *, stamp: str) -> None:
    """Write pictures under their names, row by row.

    Parameters
    ----------
    path : Path
        The PNG to write.
    figures : sequence of Path
        PNG files, in order.
    stamp : str
        What the sheet says of itself.
    """
    rows = -(-len(figures) // COLUMNS)
    sheet = style.new(CELL * COLUMNS, CELL * rows)
    grid = sheet.subplots(rows, COLUMNS, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, figure in zip(grid.flat, figures, strict=False):
        axes.imshow(plt.imread(figure), interpolation="antialiased")
        axes.set_anchor("N")
        axes.set_title(figure.stem)
    sheet.savefig(path, format="png", metadata={"Description": stamp})
    plt.close(sheet)
