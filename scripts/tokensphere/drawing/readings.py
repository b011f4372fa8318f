"""The files of a figure: the published reading alone, and its companion with both readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from tokensphere import tables
from tokensphere.drawing import captions, style

PUBLISHED = ["published"]
COMPANION = ["published", "controlled"]


def read(path: str | Path, about: Mapping[str, Any]) -> pd.DataFrame:
    """Read a table of a run, up to the layer at which the run is drawn.

    Parameters
    ----------
    path : str or Path
    about : mapping
        What the figure says of the run: `cut`, where it has one, is that layer.
    """
    rows = tables.read(path)
    return rows[rows["layer"] <= about["cut"]] if "cut" in about and "layer" in rows else rows


def write(
    output: SimpleNamespace,
    data: pd.DataFrame,
    draw: Callable[[pd.DataFrame, Sequence[str]], Figure],
    *,
    keys: Sequence[str],
    empty: Sequence[str],
    template: Path,
    facts: Mapping[str, Any],
    stamp: str,
) -> None:
    """Write picture, csv and caption of a figure and of its companion.

    Parameters
    ----------
    output : SimpleNamespace
        Paths `png`, `svg`, `pdf`, `csv`, `caption`, and each with `controlled_` in front.
    data : DataFrame
        The numbers drawn, with a column `reading` (published, controlled).
    draw : callable (data, readings) -> Figure
    keys, empty : sequence of str
        Columns that name a row, and that may be empty (`tables.write`).
    template : Path
        The caption's template.
    facts : mapping
        What the caption may say beside the numbers.
    stamp : str
        What each picture says of itself (`style.save`).
    """
    for prefix, shown in (("", PUBLISHED), ("controlled_", COMPANION)):
        place = {
            kind: getattr(output, prefix + kind) for kind in ("png", "svg", "pdf", "csv", "caption")
        }
        drawn = data[data["reading"].isin(shown)]
        rows = [
            {str(name): value for name, value in row.items()} for row in drawn.to_dict("records")
        ]
        columns = [str(name) for name in drawn]
        tables.write(place["csv"], rows, ["reading", *keys], empty=empty, columns=columns)
        pictures = place["png"], place["svg"], place["pdf"]
        style.save(draw(drawn, shown), *pictures, stamp=stamp)
        caption = captions.render(template, place["csv"], shown[-1], facts)
        place["caption"].write_text(caption, encoding="utf-8")
