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
        What the caption may say beside the numbers. Where a run has `stand_in`, which its weights
        are in place of published ones, picture, csv and caption say so.
    stamp : str
        What each picture says of itself (`style.save`).
    """
    stand_ins = {
        one["model"]: one["stand_in"] for one in facts.get("runs", []) if "stand_in" in one
    }
    if stand_ins:
        data = _marked(data, stand_ins, facts["runs"][0]["model"])
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
        figure = draw(drawn, shown)
        caption = captions.render(template, place["csv"], shown[-1], facts)
        if stand_ins:
            style.watermark(figure, "stand-in weights\nno result")
            caption = _warning(stand_ins) + caption
        style.save(figure, place["png"], place["svg"], place["pdf"], stamp=stamp)
        place["caption"].write_text(caption, encoding="utf-8")


def _marked(data: pd.DataFrame, stand_ins: Mapping[str, str], only: str) -> pd.DataFrame:
    """Say in each row of numbers what its model's weights stand in for.

    Parameters
    ----------
    data : DataFrame
    stand_ins : mapping
        Model -> words.
    only : str
        The model of numbers that do not name theirs: they are of one.
    """
    models = data["model"] if "model" in data else pd.Series(only, index=data.index)
    return data.assign(stand_in=models.map(stand_ins).fillna("none"))


def _warning(stand_ins: Mapping[str, str]) -> str:
    """Open the caption of a figure in which weights stand in for published ones."""
    said = captions.listed(captions.plain(one) for one in dict.fromkeys(stand_ins.values()))
    return f"**No result.** Drawn with {said}: whatever is called trained here is not trained. "
