"""The contact sheet: every figure in small, to see all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

COLUMNS = 4
# Pixels: a figure of one column is shown as large as it is, and has a margin around it.
CELL, MARGIN = 700, 20
TITLE, LETTERS = 60, 24
FONT = "fonts/ttf/DejaVuSans.ttf"  # ships with matplotlib, as the letters of the figures do


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
    width = CELL + 2 * MARGIN
    pictures = [_shrunk(figure) for figure in figures]
    rows = range(0, len(figures), COLUMNS)
    heights = [max(one.height for one in pictures[row : row + COLUMNS]) for row in rows]
    size = (width * min(COLUMNS, len(figures)), sum(heights) + (TITLE + 2 * MARGIN) * len(heights))
    sheet = Image.new("RGB", size, "white")
    names = ImageDraw.Draw(sheet)
    font = ImageFont.truetype(Path(matplotlib.get_data_path()) / FONT, LETTERS)
    top = 0
    for row, height in zip(rows, heights, strict=True):
        for column, picture in enumerate(pictures[row : row + COLUMNS]):
            left, name = width * column, figures[row + column].stem
            names.text((left + width // 2, top + TITLE // 2), name, "black", font, anchor="mm")
            sheet.paste(picture, (left + (width - picture.width) // 2, top + TITLE))
        top += TITLE + height + 2 * MARGIN
    about = PngInfo()
    about.add_text("Description", stamp)
    sheet.save(path, format="png", pnginfo=about)


def _shrunk(figure: Path) -> Image.Image:
    """Read a picture, made small enough for its cell."""
    with Image.open(figure) as picture:
        small = picture.convert("RGB")
    small.thumbnail((CELL, CELL), Image.Resampling.LANCZOS)
    return small
