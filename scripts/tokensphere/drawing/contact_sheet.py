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
    rows = -(-len(figures) // COLUMNS)
    width = CELL + 2 * MARGIN
    height = TITLE + width
    sheet = Image.new("RGB", (width * min(COLUMNS, len(figures)), height * rows), "white")
    names = ImageDraw.Draw(sheet)
    font = ImageFont.truetype(Path(matplotlib.get_data_path()) / FONT, LETTERS)
    for place, figure in enumerate(figures):
        left, top = width * (place % COLUMNS), height * (place // COLUMNS)
        names.text((left + width // 2, top + TITLE // 2), figure.stem, "black", font, anchor="mm")
        with Image.open(figure) as picture:
            small = picture.convert("RGB")
        small.thumbnail((CELL, CELL), Image.Resampling.LANCZOS)
        sheet.paste(small, (left + (width - small.width) // 2, top + TITLE))
    about = PngInfo()
    about.add_text("Description", stamp)
    sheet.save(path, format="png", pnginfo=about)
